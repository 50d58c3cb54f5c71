"""Rows in another order: the same whether they fit into one array or have to be taken in portions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from strandline import arrow_rows
from strandline.arrow_rows import in_order

ROWS = pa.table({"n": [1, 2, 3, None, 5], "s": ["a", None, "ccc", "", "eeeee"], "l": [[1], [], None, [2, 3], [4]]})
PARTS = pa.concat_tables([ROWS.slice(0, 2), ROWS.slice(2, 0), ROWS.slice(2)])


@pytest.mark.parametrize("bytes_max", [1, 60, 1 << 30])
@pytest.mark.parametrize("table", [ROWS, PARTS, PARTS.slice(1, 3)], ids=["whole", "in parts", "a slice"])
@pytest.mark.parametrize("take", ["all", "some", "none"])
def test_rows_come_in_the_order_that_is_asked_for(
    table: pa.Table, take: str, bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_rows, "ARRAY_BYTES_MAX", bytes_max)
    order = {"all": np.arange(len(table))[::-1].copy(), "some": np.array([2, 0]), "none": np.array([], np.int64)}[take]
    found = in_order(table, order)
    rows = table.to_pylist()
    assert found.schema == table.schema
    assert found.to_pylist() == [rows[at] for at in order]
