"""The windows that an operator has open, as they were saved and as they are."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from strandline.checkpoint.policy import Policy, cec, instant, none, partial
from strandline.errors import StreamMismatchError, TruncatedError
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.upkeep import retention
from strandline.recovery.window_report import current_windows, saved_windows
from strandline.running.state.state_cache import StateCache
from tests.support.operator_streams import PLANS, Streams, Tuples, bits, identity, rows_table, windows_of

POLICIES = {"cec": cec(extent="4x"), "instant": instant("1 hour"), "partial": partial("1 hour"), "none": none()}


class Case:
    """An operator, and all that it was fed."""

    def __init__(self, name: str, policy: Policy, folder: Path) -> None:
        self.home = folder / "state"
        self.plan = PLANS[name]
        self.policy = policy
        self.rows: list[dict[str, Any]] = []
        self._tuples = Tuples(Random(7), keys=9)
        storages = (LocalStorage(folder / "input", durability="os"), LocalStorage(folder / "output", durability="os"))
        self.streams = Streams(self.plan, lambda partition: StateCache(self.home), storages=storages)

    def feed(self, *counts: int) -> None:
        for count in counts:
            rows = self._tuples.rows(count)
            self.rows += rows
            self.streams.append(rows)
            self.streams.batch(self.policy)

    @property
    def expected(self) -> dict[Any, Any]:
        """What one operator has open that took everything in."""
        operator = self.plan.fresh("set_aside")
        operator.begin()
        for _ in operator.feed([rows_table(self.rows)]):
            pass
        boundary = self.streams.output.state.boundaries[0]
        if self.plan.window.has_times and boundary is not None:
            operator.advance(boundary)
        return {key: _told(row) for key, row in windows_of(self.plan, operator.state).items()}

    def found(self, table: pa.Table) -> dict[Any, Any]:
        columns = identity(self.plan)
        return {tuple(row[c] for c in columns): _told(row) for row in bits(table).to_pylist()}


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """A window's tuples and state, without where and when it was saved."""
    return {name: value for name, value in row.items() if name.startswith("_") and name not in ("_input", "_partition")}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["tumbling count", "sliding time", "session"])
def test_windows_as_they_are_have_all_that_was_taken_in(name: str, policy: str, tmp_path: Path) -> None:
    case = Case(name, POLICIES[policy], tmp_path)
    case.feed(40, 30, 20)
    before = sorted(path for path in tmp_path.rglob("*") if "state" not in path.parts)
    table = current_windows(case.streams.output, [case.streams.input])
    assert case.found(table) == case.expected
    assert table.num_rows == case.streams.output.state.standings[0].open > 0
    assert set(table.column("_input").to_pylist()) == {90}, "all as of the last commit"
    assert table.schema == saved_windows(case.streams.output).schema
    assert sorted(path for path in tmp_path.rglob("*") if "state" not in path.parts) == before, "nothing is written"


def test_windows_as_they_were_saved_are_those_of_the_last_checkpoint(tmp_path: Path) -> None:
    """Which is why there are two: who saves once an hour has next to nothing saved."""
    case = Case("tumbling count", instant("1 hour"), tmp_path)
    case.feed(5)
    first = saved_windows(case.streams.output)
    case.feed(40)
    assert saved_windows(case.streams.output).num_rows == first.num_rows < len(case.expected)
    case.policy = none()
    case.feed(3)
    assert saved_windows(case.streams.output).num_rows == 0
    assert case.found(current_windows(case.streams.output, [case.streams.input])) == case.expected


def test_before_the_first_batch_no_window_is_open(tmp_path: Path) -> None:
    streams = Case("sliding time", cec(), tmp_path).streams
    assert current_windows(streams.output, [streams.input]) == saved_windows(streams.output)
    assert current_windows(streams.output, [streams.input]).num_rows == 0


def test_windows_that_a_failure_has_cost_are_not_made_up(tmp_path: Path) -> None:
    case = Case("tumbling count", none(), tmp_path)
    case.feed(50)
    case.home = tmp_path / "another machine"
    case.feed(2)
    table = current_windows(case.streams.output, [case.streams.input])
    assert table.num_rows == case.streams.output.state.standings[0].open
    assert sum(table.column("_rows").to_pylist()) == 2, "what came before the failure is in no window any more"
    case.feed(9)
    assert sum(current_windows(case.streams.output, [case.streams.input]).column("_rows").to_pylist()) == 11


def test_windows_of_an_input_that_is_not_there_any_more_are_not_made_up(tmp_path: Path) -> None:
    case = Case("tumbling count", none(), tmp_path)
    case.feed(40, 10)
    retention.truncate(case.streams.input, before_offset={0: 40})
    with pytest.raises(TruncatedError, match="begins at 40"):
        current_windows(case.streams.output, [case.streams.input])
    with pytest.raises(StreamMismatchError, match="another id"):
        current_windows(case.streams.output, [case.streams.output])
