"""Operators with a bound over each other: guesses, undos and corrections go from one to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strandline.checkpoint.policy import cec
from strandline.inputs.stream_definition import output_spec
from strandline.log.audit.stream_audit import verify
from strandline.log.index import index
from strandline.log.operator_state.input_lag import input_lags, taken_in_until, waits_for
from strandline.log.operator_state.outage import Outage
from strandline.log.operator_state.upstream import Origin, upstream_of
from strandline.log.reading.tentative_results import changes
from strandline.log.stream import quiet
from strandline.log.stream.block import Block
from strandline.log.stream.log import Log
from strandline.log.upkeep.compaction import compact
from strandline.operators.aggregate.windows import time_window
from strandline.running import fork as forks
from strandline.running.element import Element
from strandline.running.promise import Mode, Promise
from strandline.running.state.state_cache import StateCache
from strandline.running.tick import Work, Worked
from strandline.testing import MemoryStorage
from tests.simulation.chained_operators import TUMBLING
from tests.simulation.table_codec import table_codec
from tests.support.bounded_stage import Stage
from tests.support.operator_streams import PLANS, append_rows, input_spec
from tests.support.union_streams import UnionStreams

SECOND_US = 1_000_000


class Chain:
    """Two inputs, an operator over them, and one over its results and a third input."""

    def __init__(self, folder: Path, promise: Promise) -> None:
        first = replace(TUMBLING, more_times=("t",))
        time = (first.result_time, "long")
        second = replace(PLANS["tumbling time"], window=time_window(20), time=time, more_times=("t",))
        self.streams = UnionStreams(first, 2, lambda p: StateCache(folder / "unused"))
        clock = self.streams.clock
        self.third = Log.create(MemoryStorage(clock), replace(input_spec(["s"]), id="third", lateness=0), clock)
        inputs = (self.streams.output, self.third)
        upstream = upstream_of([Origin(log.spec.id, log.storage.url) for log in inputs])
        spec = replace(output_spec(second, self.third.spec), id="second", upstream=upstream)
        output = Log.create(MemoryStorage(clock), spec, clock)
        elements = [Element(definition, cec()) for definition in (first, second)]
        self.first = Stage(folder / "first", elements[0], self.streams.inputs, self.streams.output, promise)
        self.second = Stage(folder / "second", elements[1], inputs, output, promise)

    def feed(self, begin: int, end: int, *numbers: int) -> None:
        """A tuple every unit of time in some of the inputs, and their boundaries behind them."""
        rows = [{"k": 1, "s": "a", "v": 1, "x": 1.0, "t": t} for t in range(begin, end)]
        for number in numbers:
            if number < 2:
                self.streams.append(number, {0: rows})
            else:
                append_rows(self.third, {0: rows})
            quiet.pass_time(self.third if number == 2 else self.streams.inputs[number], end, "run")

    def tick(self, many: int = 1) -> None:
        """Seconds pass."""
        for _ in range(many):
            self.streams.clock.advance(1)
            self.first.tick()
            self.second.tick()


@pytest.fixture
def tables() -> Iterator[None]:
    """Blocks are tables, for a test of many of them."""
    with table_codec():
        yield


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path, Promise(3 * SECOND_US))


def test_a_story_of_a_failure_that_goes_through_two_operators(chain: Chain) -> None:
    first, second = chain.first, chain.second
    chain.feed(0, 20, 0, 1, 2)
    chain.tick()
    assert (first.told(), second.told()) == ([("stable", 10), ("stable", 20)], [("stable", 20)])

    chain.feed(20, 60, 0, 2)  # and the second input of the first operator stays away
    chain.tick(3)
    assert (first.told(), second.told()) == ([], [])
    chain.tick()  # the first has waited for its bound, and so has the second for the first
    assert first.told() == [("tentative", end) for end in (30, 40, 50, 60)]
    assert second.told() == [("tentative", 40), ("tentative", 60)]
    assert (second.outage.state, second.outage.missing, second.outage.left_out) == ("UP_FAILURE", (0,), (0,))

    chain.feed(20, 45, 1)  # some of it comes: both correct what they can, in the same tick
    chain.tick()
    assert first.told() == [("undo", 20), ("stable", 30), ("stable", 40)]
    assert second.told() == [("undo", 20), ("stable", 40)]
    assert first.outage.state == "STABILIZATION"

    chain.feed(45, 60, 1)
    chain.tick()
    assert first.told() == [("stable", 50), ("stable", 60), ("rec_done", 45)]
    assert second.told() == [("stable", 60), ("rec_done", 45)]
    assert (first.outage.state, second.outage.state) == ("STABLE", "STABLE")


def test_guesses_alone_are_passed_on_within_another_bound(chain: Chain) -> None:
    chain.feed(0, 20, 0, 1, 2)
    chain.tick()
    quiet.pass_time(chain.third, 100, "run")  # complete, and without a tuple that waits
    chain.feed(20, 60, 0)
    chain.tick(4)
    chain.second.told()
    assert chain.first.outage.tentative == 4
    chain.tick(2)
    assert chain.second.told() == []
    chain.tick()
    assert chain.second.told() == [("tentative", 40), ("tentative", 60)]
    assert chain.second.outage.missing == (0,)


def test_guesses_are_found_in_blocks_that_hold_results_too(chain: Chain) -> None:
    chain.feed(0, 25, 0, 1)
    chain.tick()
    chain.feed(25, 60, 0)
    chain.tick(4)
    joined = compact(chain.first.output, target_bytes=100_000, blocks_min=2, unique=lambda: "joined")
    assert joined
    chain.second.told()
    chain.feed(0, 60, 2)
    chain.tick(4)
    assert [end for kind, end in chain.second.told() if kind == "tentative"] == [40, 60]


@pytest.mark.parametrize("is_compacted", [False, True])
def test_what_an_input_corrects_while_a_fork_is_at_work_is_not_taken_in_beside_its_guesses(
    chain: Chain, monkeypatch: pytest.MonkeyPatch, is_compacted: bool
) -> None:
    chain.feed(0, 20, 0, 1, 2)
    chain.tick()
    chain.feed(20, 60, 0, 2)
    chain.tick(3)
    chain.second.told()
    run, seen = chain.second._run, chain.second.output.state.ends[0]

    def corrected_meanwhile(works: Sequence[Work]) -> list[Worked]:
        """As in Spark, where tasks look at their inputs later than the driver did."""
        assert [work.stable for work in works] == [None]
        chain.feed(20, 60, 1)
        chain.first.tick()
        if is_compacted:
            assert compact(chain.first.output, target_bytes=100_000, blocks_min=2, unique=lambda: "joined")
        return run(works)

    monkeypatch.setattr(chain.second, "_run", corrected_meanwhile)
    chain.tick()
    assert chain.first.told()[-3:] == [("stable", 50), ("stable", 60), ("rec_done", 20)]
    tables = changes(chain.second.output, 0, seen, columns=["n"])
    found = [(row["_kind"], row["n"]) for table in tables for row in table.to_pylist()]
    assert found == [("tentative", 22), ("tentative", 22)], "twenty of the third input, two guesses of the first"
    monkeypatch.setattr(chain.second, "_run", run)
    chain.tick()
    assert [kind for kind, _ in chain.second.told()] == ["tentative"] * 2 + ["undo"] + ["stable"] * 2 + ["rec_done"]


def test_corrections_are_taken_in_though_another_input_is_missing(chain: Chain) -> None:
    chain.feed(0, 20, 0, 1, 2)
    chain.tick()
    chain.feed(20, 60, 0)
    chain.tick(7)  # the third has stood still since 20, the first guesses
    assert chain.second.told() == [("stable", 20), ("tentative", 40), ("tentative", 60)]
    assert chain.second.outage.missing == (0, 1)
    chain.feed(20, 60, 1)
    chain.tick(3)
    assert chain.first.outage.state == "STABLE"
    assert chain.second.told() == []
    chain.tick()
    assert chain.second.told() == [("undo", 20), ("tentative", 40), ("tentative", 60)]
    assert (chain.second.outage.missing, chain.second.outage.left_out) == ((1,), (1,))
    chain.feed(20, 60, 2)
    chain.tick()
    assert chain.second.told() == [("undo", 20), ("stable", 40), ("stable", 60), ("rec_done", 20)]


def test_another_process_goes_on_with_the_guesses_that_there_are(chain: Chain) -> None:
    chain.feed(0, 20, 0, 1, 2)
    chain.tick()
    quiet.pass_time(chain.third, 100, "run")
    chain.feed(20, 60, 0)
    chain.tick(7)
    chain.second.told()
    chain.second.begin_anew()
    chain.feed(60, 85, 0)
    chain.tick()
    assert chain.second.told() == [("undo", 20), ("tentative", 40), ("tentative", 60), ("tentative", 80)]


def test_an_operator_without_a_bound_waits_and_says_for_what(chain: Chain) -> None:
    chain.feed(0, 25, 0, 1, 2)
    chain.tick()
    quiet.pass_time(chain.third, 100, "run")
    chain.feed(25, 60, 0)
    chain.tick(4)
    standings = chain.second.output.state.standings
    found = waits_for(input_lags(chain.second.inputs, standings), taken_in_until(standings), is_timestamp=False)
    assert found is not None
    assert "its boundary is 25 and 4 tuples behind it are only tentative" in found


def test_with_undo_a_fork_has_the_state_and_the_stable_one_is_rebuilt(tmp_path: Path) -> None:
    chain = Chain(tmp_path, Promise(3 * SECOND_US, reconcile="undo"))
    chain.feed(0, 25, 0, 1)
    chain.tick()
    chain.feed(25, 60, 0)
    chain.tick(4)
    standing = chain.first.output.state.standings[0]
    assert chain.first.caches(0).stable.open(standing.attempt) is None
    assert not list((tmp_path / "first" / "fork0").glob("*.whole"))  # nothing was copied
    chain.feed(60, 75, 0)
    chain.tick()
    assert not list((tmp_path / "first" / "fork0").glob("*.whole"))
    chain.feed(25, 75, 1)
    chain.streams.clock.advance(1)
    recovery = chain.first.tick().done[0].recovery
    assert recovery is not None
    ends = range(10, 80, 10)
    assert [end for kind, end in chain.first.told() if kind == "stable"] == list(ends)
    assert not verify(chain.first.output).problems


def test_a_fork_that_fails_ends_and_results_come_all_the_same(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    first, take_in = chain.first, forks._take_in
    chain.feed(0, 20, 0, 1)
    chain.tick()
    chain.feed(20, 40, 0)
    chain.tick(4)

    def failing(*args: object, **more: object) -> None:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(forks, "_take_in", failing)
    chain.feed(40, 60, 0)
    chain.tick()
    kinds = [("stable", 10), ("stable", 20), ("tentative", 30), ("tentative", 40), ("undo", 20)]
    assert first.told() == kinds
    assert first.outage.state == "UP_FAILURE"
    assert first.outage.forks[0].problem == "RuntimeError: no such luck"
    assert Outage.from_json(first.outage.to_json()) == first.outage
    monkeypatch.setattr(forks, "_take_in", take_in)
    chain.tick()
    assert first.told() == []  # not before there is something else to begin with
    chain.feed(20, 35, 1)
    chain.tick()
    assert [kind for kind, _ in first.told()] == ["stable", *["tentative"] * 3, "undo", "rec_done"]
    chain.tick()
    assert first.told() == [("tentative", 40), ("tentative", 50), ("tentative", 60)]
    chain.feed(35, 60, 1)
    chain.tick()
    assert [end for kind, end in first.told() if kind == "stable"] == [40, 50, 60]
    assert not verify(first.output).problems


@pytest.mark.parametrize("mode", ["process", "delay", "suspend"])
def test_a_tick_looks_at_no_more_blocks_however_long_a_failure_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode, tables: None
) -> None:
    chain, looked, walk = Chain(tmp_path, Promise(3 * SECOND_US)), [0], Log._walk

    def counted(*args: Any) -> Iterator[Block]:
        for block in walk(*args):
            looked[0] += 1
            yield block

    monkeypatch.setattr(Log, "_walk", counted)
    monkeypatch.setattr(index, "FOLD_EVERY", 8)
    chain.second.promise = Promise(3 * SECOND_US, mode, mode)
    chain.feed(0, 20, 0, 1, 2)
    chain.tick()
    ticks = []
    for begin in range(20, 420, 10):
        chain.feed(begin, begin + 10, 0, 2)  # the second input of the first operator stays away
        looked[0] = 0
        chain.tick()
        ticks.append(looked[0])
        if begin == 100:  # a block with results and guesses
            compact(chain.first.output, target_bytes=100_000, blocks_min=2, unique=lambda: "joined")
    assert chain.first.outage.tentative > 30
    assert (chain.second.outage.tentative > 10) is (mode != "suspend")
    assert max(ticks[20:]) <= max(ticks[10:20])
