"""The tuples of a piece in one table, for operators over inputs that have the same columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from strandline.operators.operator import OFFSET

INPUT_NAME = "_input"


def one_table(tables: Sequence[pa.Table], names: Sequence[str] | None = None) -> pa.Table:
    """The tuples of all tables in the order of `_offset`; with `names` of the inputs, a column `_input` says which."""
    if names is not None:
        tables = [t.append_column(INPUT_NAME, pa.repeat(name, len(t))) for t, name in zip(tables, names, strict=True)]
    filled = [table for table in tables if len(table)]
    if len(filled) < 2:
        return filled[0] if filled else tables[0]
    table = pa.concat_tables(filled)
    places = table.column(OFFSET).to_numpy()
    first = int(min(t.column(OFFSET)[0].as_py() for t in filled))
    order = np.empty(len(places), np.int64)
    order[places - first] = np.arange(len(places))  # places of several inputs have no gaps
    sorted_ = table.drop_columns([OFFSET]).combine_chunks().take(pa.array(order))
    at = table.column_names.index(OFFSET)
    return sorted_.add_column(at, OFFSET, pa.array(np.arange(first, first + len(places))))
