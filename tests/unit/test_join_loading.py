"""The newest footprint of each tuple, out of however many blocks."""

import numpy as np
import pyarrow as pa
import pytest

from strandline.operators.join import join_columns
from strandline.operators.operator import Saved


def stretches(rng: np.random.Generator, blocks: int, rows: int, tuples: int) -> list[Saved]:
    """Blocks full of footprints, newest first: each of one of so many tuples."""
    found = []
    for number in reversed(range(blocks)):
        offsets = np.arange(number * rows, (number + 1) * rows)
        sides = pa.array(rng.integers(0, 2, rows), pa.int8())
        ordinals = rng.integers(0, tuples, rows)
        table = pa.table({"_offset": offsets, "_ordinal": ordinals, "_side": sides, "v": [[o] for o in offsets]})
        found.append(Saved(table.slice(0, 0), table))
    return found


@pytest.mark.parametrize("tuples", [5, 300, 1 << 40])
def test_of_each_tuple_the_footprint_that_was_written_last_counts(tuples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_columns, "_ROWS_MIN", 40)
    saved = stretches(np.random.default_rng(tuples), 100, 7, tuples)
    expected: dict[tuple[int, int], tuple[int, list[int]]] = {}
    for stretch in saved:
        for row in reversed(stretch.footprints.to_pylist()):
            expected.setdefault((row["_ordinal"], row["_side"]), (row["_offset"], row["v"]))
    found = join_columns.newest_footprints([saved[0], Saved(*[saved[0].closed] * 2), *saved[1:]])
    assert found is not None
    rows = found.to_pylist()
    assert [(r["_ordinal"], r["_side"]) for r in rows] == sorted(expected)
    assert [(r["_offset"], r["v"]) for r in rows] == [expected[o] for o in sorted(expected)]
    assert join_columns.newest_footprints([]) is None


def test_ten_times_the_blocks_are_ten_times_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each footprint is looked at a few times, and not once for every block behind it."""
    looked_at, distinct = [0], join_columns._distinct

    def counted(parts: list[pa.Table]) -> pa.Table:
        looked_at[0] += sum(part.num_rows for part in parts)
        return distinct(parts)

    monkeypatch.setattr(join_columns, "_distinct", counted)
    monkeypatch.setattr(join_columns, "_ROWS_MIN", 64)
    for tuples in (1_000, 1 << 40):
        looked_at[0] = 0
        join_columns.newest_footprints(stretches(np.random.default_rng(1), 2_000, 10, tuples))
        assert looked_at[0] < 4 * 20_000
