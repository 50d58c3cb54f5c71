"""Operators with a bound over a single stream: its tentative tuples come through, are undone and corrected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from strandline.checkpoint.policy import cec
from strandline.inputs.stream_definition import output_spec
from strandline.log.operator_state.upstream import Origin, upstream_of
from strandline.log.stream import quiet
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.upkeep.consumer_registry import register
from strandline.log.upkeep.retention import apply_retention
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.aggregate.windows import count_window
from strandline.running import step as steps
from strandline.running.batch import end_outage
from strandline.running.element import Element
from strandline.running.promise import Promise
from strandline.running.state.state_cache import StateCache
from strandline.running.step import Done, Logs, Step
from strandline.running.tick import run_batch
from strandline.testing import MemoryStorage
from strandline.units import CONSUMED
from tests.simulation.chained_operators import TUMBLING
from tests.support.bounded_stage import Stage
from tests.support.operator_streams import published_results
from tests.support.union_streams import UnionStreams

PROMISE = Promise(3_000_000)
"""Three ticks."""


class Pair:
    """Windows of ten units of time over two streams, and an operator over their results."""

    def __init__(self, folder: Path, second: AggregateDefinition = TUMBLING) -> None:
        first = replace(TUMBLING, more_times=("t",))
        second = replace(second, time=(first.result_time, "long"))
        self.streams = UnionStreams(first, 2, lambda p: StateCache(folder / "unused"))
        clock, over = self.streams.clock, self.streams.output
        spec = output_spec(second, over.spec)
        spec = replace(spec, id="second", upstream=upstream_of([Origin(over.spec.id, over.storage.url)]))
        output = Log.create(MemoryStorage(clock), spec, clock)
        self.first = Stage(folder / "first", Element(first, cec()), self.streams.inputs, over, PROMISE)
        self.second = Stage(folder / "second", Element(second, cec()), (over,), output, PROMISE)

    def feed(self, begin: int, end: int, *numbers: int) -> None:
        """A tuple every unit of time in some of the inputs, and their boundaries behind them."""
        rows = [{"k": 1, "s": "a", "v": 1, "x": 1.0, "t": t} for t in range(begin, end)]
        for number in numbers:
            self.streams.append(number, {0: rows})
            quiet.pass_time(self.streams.inputs[number], end, "run")

    def tick(self, many: int = 1, *, is_bound: bool = True) -> None:
        """Seconds pass."""
        for _ in range(many):
            self.streams.clock.advance(1)
            self.first.tick()
            if is_bound:
                self.second.tick()
            else:
                self.take_a_step()

    def take_a_step(self) -> None:
        """The second operator without its bound."""
        stage = self.second
        end_outage(stage.output)

        def run(works: list[Step]) -> list[Done]:
            logs, clock = Logs(stage.output, stage.inputs), stage.output.clock
            return [steps.run(work, stage.element, logs, stage.caches(0).stable, clock) for work in works]

        for log in stage.inputs:
            log.refresh()
        while run_batch(stage.element, stage.inputs, stage.output, run, Writer("q", "r", 1), stage.output.clock):
            pass

    def trim(self) -> None:
        """Drops what the second operator has passed of the results of the first."""
        over, second = self.first.output, self.second
        over.refresh()
        needs = second.element.input(second.inputs).needs(0, second.output.state.standings, None)
        register(over, "second", needs)
        apply_retention(over, CONSUMED)


def kinds(stage: Stage) -> list[str]:
    return [kind for kind, _ in stage.told()]


def test_a_story_of_a_failure_upstream(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    first, second = pair.first, pair.second
    pair.feed(0, 20, 0, 1)
    pair.tick()
    assert kinds(first) == ["stable", "stable"]
    assert second.told() == [("stable", 20)], "a result at 20 is in the window behind it"
    pair.feed(20, 60, 0)  # and the other input stays away
    pair.tick(4)
    assert kinds(first) == ["tentative"] * 4
    assert second.told() == [], "guesses wait for the bound, too, for the right ones may come"
    pair.tick(3)
    assert [kind for kind, _ in second.told()] == ["tentative"] * 4
    assert (second.outage.state, second.outage.missing) == ("UP_FAILURE", (0,))
    standing = second.output.state.standings[0]

    pair.feed(60, 80, 0)
    pair.tick(3)
    assert kinds(first) == kinds(second) == ["tentative"] * 2, "no undo: commits of guesses are no progress"
    assert second.output.state.standings[0].input == standing.input

    pair.feed(20, 80, 1)
    pair.tick()
    assert kinds(first) == kinds(second) == ["undo", *["stable"] * 6, "rec_done"]
    assert second.outage.state == "STABLE"


def test_a_driver_that_starts_in_the_middle_guesses_what_counts(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.feed(0, 20, 0, 1)
    pair.tick()
    pair.feed(20, 60, 0)
    pair.tick(7)
    assert kinds(pair.second)[-4:] == ["tentative"] * 4
    pair.second.begin_anew()
    pair.tick()
    assert kinds(pair.second) == ["undo", *["tentative"] * 4], "its fork may have held what an undo has voided since"
    pair.feed(20, 60, 1)
    pair.tick()
    assert kinds(pair.second) == ["undo", *["stable"] * 4, "rec_done"]


@pytest.mark.parametrize("window", ["time", "count"])
def test_results_do_not_depend_on_when_there_is_a_bound(tmp_path: Path, window: str) -> None:
    by_count = replace(TUMBLING, window=count_window(2))
    second = TUMBLING if window == "time" else by_count
    pairs = [Pair(tmp_path / name, second) for name in ("with", "without", "changing")]
    for pair, bounds in zip(pairs, ([True] * 6, [False] * 6, [False, True, True, False, True, False]), strict=True):
        for at, is_bound in enumerate(bounds):
            begin = 30 * at
            pair.feed(begin, begin + 30, 0)
            pair.tick(7, is_bound=is_bound)
            pair.feed(begin, begin + 30, 1)
            pair.tick(2, is_bound=is_bound)
            if is_bound and at < 5 and not bounds[at + 1]:
                pair.second.begin_anew()
    found = [published_results(pair.second.output, 0) for pair in pairs]
    assert len(found[0]) > 4
    assert found[0].equals(found[1])
    assert found[0].equals(found[2])
    assert [pair.second.output.state.outage is None for pair in pairs] == [False, True, False]
    told = [kinds(pair.second) for pair in pairs]
    assert "tentative" in told[0]
    assert "tentative" not in told[1]


def test_guesses_that_count_stay_when_what_is_consumed_is_dropped(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.feed(0, 20, 0, 1)
    pair.tick()
    pair.feed(20, 60, 0)
    pair.tick(7)
    pair.feed(20, 40, 1)  # a part of what is missing: results, with guesses on both sides of them
    pair.tick()
    pair.feed(60, 80, 0)
    pair.tick(7)
    pair.feed(40, 50, 1)
    pair.tick(2)
    pair.second.told()
    pair.trim()
    assert pair.first.output.state.starts[0] > 0
    pair.second.begin_anew()  # another driver: its fork reads all guesses again
    pair.tick(4)
    assert [time for kind, time in pair.second.told() if kind == "tentative"] == [60, 80]
