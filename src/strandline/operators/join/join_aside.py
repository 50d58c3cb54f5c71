"""Tuples that no join can take and pairs that its condition cannot judge: set aside if they may be, else an error."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from strandline.control_columns import OFFSET
from strandline.errors import InputError
from strandline.operators.aside_tables import VALUE, AsideTables, bad_times, long_keys
from strandline.operators.join.definition import INPUT_COLUMN, ORDINAL_COLUMN, RESULT_TIME, SIDE_COLUMN, JoinDefinition
from strandline.operators.join.join_windows import NAMES
from strandline.operators.kernels.arrow_words import from_words, words_of
from strandline.operators.operator import OnError

WHERE: Final = "where"
"""The reason of pairs for which the condition raised."""
_SHOWN: Final = 60
"""So much of a value is shown in an error."""


class JoinAside(AsideTables):
    """The tuples and windows that one step has set aside, by reason, in the columns of footprints."""

    def __init__(self, definition: JoinDefinition) -> None:
        self._definition = definition
        super().__init__("join")

    def shaped(self, tuples: Sequence[pa.Table], on_error: OnError) -> list[pa.Table]:
        """Returns the tuples of both sides in their shapes, as far as a join can take them; see `healthy`."""
        made = self._definition.shaping.over(tuples, on_error, partial(self._add, VALUE))
        return [self.healthy(side, table, on_error) for side, table in enumerate(made)]

    def healthy(self, side: int, tuples: pa.Table, on_error: OnError) -> pa.Table:
        """Returns the tuples that a join can take; the others are kept here, or raised as an InputError."""
        d = self._definition
        times = bad_times(tuples, d.times[side], d.time_types[side]) if d.has_times else []
        unfit, place = [*times, *long_keys(tuples, d)], f"{NAMES[side]} input, place"
        return self._fit(tuples, unfit, on_error, lambda reason, found: self._add(reason, side, found), place)

    def add_pairs(self, results: Sequence[pa.Array], why: Sequence[str], on_error: OnError) -> None:
        """Keeps pairs for which the condition raised, in the columns of results, or raises an InputError about them."""
        d = self._definition
        names = [name for name, _ in d.result_columns]
        if on_error == "stop":
            assert d.where is not None
            pair = {name: array[0].as_py() for name, array in zip(names, results, strict=True)}
            raise InputError(
                f"where raised {why[0]}" + (f" (and for {len(why) - 1} more pairs)" if len(why) > 1 else ""),
                where=f"{d.where.text}, for the pair {', '.join(f'{n}={str(v)[:_SHOWN]}' for n, v in pair.items())}",
                todo='start the join with on_error="set_aside": such pairs are no results and go to its side log; '
                f"or repair the condition and say so: where(…, version={d.where.version + 1})",
            )
        self._keep(WHERE, pa.table(list(results), names=names), f"pairs {d.where.text if d.where else ''}")

    def _add(self, reason: str, side: int, tuples: pa.Table) -> None:
        if self.is_ignoring:
            return
        d, rows = self._definition, tuples.num_rows
        times, valid = words_of(tuples.column(d.times[side]), d.time_types[side])
        columns = {c: tuples.column(c) for c, _ in d.key} | {RESULT_TIME: from_words(times, valid, d.time_type)}
        own = {d.times[side], *(c for c, _ in d.key)}
        for name, (column, _) in zip(d.names[side], d.side_columns[side], strict=True):
            # Of a tuple that cannot be computed there is nothing but its key and its time.
            if reason != VALUE or column in own:
                columns[name] = tuples.column(column)
        columns[INPUT_COLUMN] = columns[ORDINAL_COLUMN] = tuples.column(OFFSET)
        columns[SIDE_COLUMN] = pa.array(np.full(rows, side, np.int8))
        place = tuples.column(OFFSET)[0].as_py() if rows else 0
        self._keep(reason, pa.table(columns), f"{NAMES[side]} input, place {place}")
