"""Users' classes under `partial`: results are those of the object without the tuples that are on record as lost."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import strandline as sl

Row = tuple[int, int, float]


class Buckets(sl.Operator):
    """The running total with every tuple; and when ten units of time are over, how many tuples they had."""

    output = "id long, at long, total double, n long"
    time = "at"

    def __init__(self) -> None:
        self.total = 0.0
        self.counts: dict[int, int] = {}

    def process(self, tuples: pa.Table) -> pa.Table:
        rows = []
        for one in tuples.to_pylist():
            self.total += one["price"]
            self.counts[one["at"] // 10] = self.counts.get(one["at"] // 10, 0) + 1
            rows.append({"id": one["id"], "at": one["at"], "total": self.total, "n": None})
        return self._table(rows)

    def advance(self, boundary: int) -> pa.Table:
        over = sorted(bucket for bucket in self.counts if bucket * 10 + 10 < boundary)
        rows = [{"id": 0, "at": boundary, "total": None, "n": self.counts.pop(bucket)} for bucket in over]
        return self._table(rows)

    def _table(self, rows: list[dict[str, Any]]) -> pa.Table:
        kinds = [("id", pa.int64()), ("at", pa.int64()), ("total", pa.float64()), ("n", pa.int64())]
        return pa.Table.from_pylist(rows, schema=pa.schema(kinds))

    def get_checkpoint(self) -> dict[str, Any]:
        return {"total": self.total, "buckets": pa.array([*self.counts]), "counts": pa.array([*self.counts.values()])}

    def restore_checkpoint(self, state: dict[str, Any]) -> None:
        self.total = state["total"]
        self.counts = dict(zip(state["buckets"].to_pylist(), state["counts"].to_pylist(), strict=True))


class Story:
    """Steps of a run that crashes now and then, and what the object makes of the same input in plain Python."""

    def __init__(self, seed: int, every: str) -> None:
        self.rng = Random(seed)
        self.source = sl.testing.stream("id long, at long, price double", key="id", time="at", lateness=3, partitions=1)
        self.run = sl.testing.run(self.source.apply(Buckets()).checkpoint(sl.partial(every)))
        self.rows: list[Row] = []
        self.steps: list[tuple[int, int | None]] = []
        """After each step, how many tuples were taken in and the time up to which results were complete."""
        self.time = 0

    def go_on(self) -> None:
        for _ in range(self.rng.randint(1, 6)):
            self.time += self.rng.randint(0, 4)
            row = (self.rng.randrange(3), self.time, round(self.rng.random(), 3))
            self.rows.append(row)
            self.source.add([row])
        self.source.clock.advance("2 ms")
        if self.rng.random() < 0.3:
            self.run.crash()
        self.run.step()
        state = self.run.input_log.state
        self.steps.append((state.standings[0].input, state.boundaries[0]))

    def expected(self) -> tuple[list[float], list[int], list[int]]:
        """Running totals, counts of buckets, and counts that came out incomplete."""
        now, totals, counts, incomplete = Buckets(), [], [], []
        losses = {row["until"]: row["from"] for row in self.run.losses().to_pylist()}
        saved: dict[int, Buckets] = {}
        at, boundary = 0, None
        for end, until in self.steps:
            if at in losses:  # the step began with a recovery, which lost something
                now = saved[losses.pop(at)]
                incomplete += [] if boundary is None else now.advance(boundary).column("n").to_pylist()
            rows = [dict(zip(("id", "at", "price"), row, strict=True)) for row in self.rows[at:end]]
            for row in rows:
                totals += now.process(pa.Table.from_pylist([row])).column("total").to_pylist()
            counts += [] if until is None else now.advance(until).column("n").to_pylist()
            at, boundary = end, until
            saved[at] = copy.deepcopy(now)
        assert not losses, "what was lost is something else than what came since a step"
        return totals, counts, incomplete


@pytest.mark.parametrize("seed", range(6))
def test_an_object_goes_on_without_what_is_on_record(seed: int) -> None:
    story = Story(seed, every="1 hour" if seed % 2 else "5 ms")
    for _ in range(25):
        story.go_on()
    totals, counts, incomplete = story.expected()
    assert story.run.losses().num_rows > 1
    assert [row["total"] for row in story.run.rows if row["n"] is None] == totals
    assert [row["n"] for row in story.run.rows if row["n"] is not None] == counts
    assert story.run.set_aside.column("_reason").unique().to_pylist() in ([], ["incomplete"])
    assert story.run.set_aside.column("n").to_pylist() == incomplete
