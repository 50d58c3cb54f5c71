"""An operator with a bound at work: what it publishes when an input stays away and comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from strandline.checkpoint.policy import cec
from strandline.errors import CorruptManifestError
from strandline.log.audit.stream_audit import verify
from strandline.log.operator_state.guesses import guessed_until, undone_until
from strandline.log.operator_state.outage import Outage
from strandline.log.reading.tentative_results import changes
from strandline.log.stream import quiet
from strandline.log.stream.manifest import Writer
from strandline.operators.operator import Definition
from strandline.running import tick as ticks
from strandline.running.batch import end_outage
from strandline.running.element import TUPLES_MAX, Element
from strandline.running.fork import Caches
from strandline.running.promise import Promise
from strandline.running.state.state_cache import StateCache
from strandline.running.step import Logs
from strandline.running.tick import Operation, Ticked, Work, Worked
from strandline.running.watch import Watch
from tests.simulation.simulated_operators import SimulatedBarrier
from tests.support.operator_streams import PLANS, input_spec
from tests.support.union_streams import UnionStreams

PLAN = replace(PLANS["tumbling time"], more_times=("t",))
SECOND_US = 1_000_000


class Case:
    """Two inputs with a tuple every unit of time; windows have ten. A tick is a second, the bound three of them."""

    def __init__(
        self, folder: Path, promise: Promise | None = None, definition: Definition = PLAN, partitions: int = 1
    ) -> None:
        self._folder = folder
        self.definition = definition
        self.streams = UnionStreams(definition, 2, lambda p: StateCache(folder / f"stable{p}"), partitions)
        self.promise = promise or Promise(3 * SECOND_US)
        self.watch = Watch.fresh(2)
        self.tuples_max = TUPLES_MAX
        self.shown = 0

    def feed(self, number: int, begin: int, end: int) -> None:
        """Tuples of one input, and its boundary behind them."""
        rows = [{"k": 1, "s": "a", "v": number, "x": 1.0, "t": t} for t in range(begin, end)]
        self.streams.append(number, {0: rows})
        quiet.pass_time(self.streams.inputs[number], end, "run")

    def tick(self, *unreadable: int) -> Ticked:
        """A second passes; some inputs cannot be read."""
        streams = self.streams
        streams.clock.advance(1)
        element = Element(self.definition, cec(), tuples_max=self.tuples_max)
        unread = frozenset(unreadable)
        operation = Operation(
            element, self.promise, element.input(streams.inputs), streams.output, streams.clock, unread
        )
        ticked = operation.tick(self.watch, lambda works: self._run(works, element), Writer("q", "r", 1))
        self.watch = ticked.watch
        return ticked

    def _run(self, works: Sequence[Work], element: Element) -> list[Worked]:
        logs = Logs(self.streams.output, self.streams.inputs)
        return [ticks.run(work, element, logs, self.caches(work.partition), self.streams.clock) for work in works]

    def caches(self, partition: int) -> Caches:
        return Caches(self.streams.cache_of(partition), StateCache(self._folder / f"fork{partition}"))

    def told(self) -> list[tuple[str, int]]:
        """What a follower has got since it last looked: kinds, and ends of windows."""
        log = self.streams.output
        tables = changes(log, 0, self.shown, columns=["window_end", "n"])
        self.shown = log.state.ends[0]
        return [(r["_kind"], r["window_end"]) for table in tables for r in table.to_pylist()]

    @property
    def outage(self) -> Outage:
        assert self.streams.output.state.outage is not None
        return self.streams.output.state.outage


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_a_story_of_an_input_that_stays_away_and_comes_back(case: Case) -> None:
    case.feed(0, 0, 20)
    case.feed(1, 0, 20)
    case.tick()
    assert case.told() == [("stable", 10), ("stable", 20)]

    case.feed(0, 20, 40)
    for _ in range(3):  # the bound has not passed
        case.tick()
    assert (case.told(), case.outage.state) == ([], "STABLE")
    case.tick()
    assert case.told() == [("tentative", 30), ("tentative", 40)]
    assert (case.outage.state, case.outage.missing, case.outage.tentative) == ("UP_FAILURE", (1,), 2)

    case.feed(0, 40, 50)  # from now on at once
    case.tick()
    assert case.told() == [("tentative", 50)]

    case.feed(1, 20, 35)  # not all of it
    case.tick()
    assert case.told() == [("undo", 20), ("stable", 30)]
    assert (case.outage.state, case.outage.target, case.outage.tentative) == ("STABILIZATION", 50, 0)

    case.feed(0, 50, 60)
    case.feed(1, 35, 60)
    case.tick()
    assert case.told() == [("stable", 40), ("stable", 50), ("stable", 60), ("rec_done", 35)]
    assert case.outage == Outage("STABLE", case.streams.clock.now_us())
    assert not case.tick().done  # and then there is nothing to say


def test_what_is_tentative_in_the_end_is_void_with_the_last_correction(case: Case) -> None:
    case.feed(0, 0, 20)
    case.feed(1, 0, 10)
    for _ in range(4):
        case.tick()
    assert case.told() == [("stable", 10), ("tentative", 20)]
    case.feed(1, 10, 15)
    case.feed(0, 20, 30)
    case.tick()
    assert case.told() == [("undo", 10), ("tentative", 30)]
    case.feed(1, 15, 30)
    case.tick()
    assert case.told() == [("stable", 20), ("stable", 30), ("undo", 15), ("rec_done", 15)]
    assert case.streams.output.state.standings[0].results == 3


@pytest.mark.parametrize("is_lost", [False, True])
def test_the_fork_goes_on_wherever_its_state_is(case: Case, is_lost: bool) -> None:
    case.feed(0, 0, 25)
    for _ in range(4):
        case.tick()
    case.told()
    if is_lost:
        case.caches(0).fork._base.unlink(missing_ok=True)
        for path in (case._folder / "fork0").iterdir():
            path.unlink()
    case.feed(0, 25, 41)
    forked = case.tick().forked[0]
    assert forked is not None
    assert forked.is_anew == is_lost
    assert case.told() == [("tentative", 30), ("tentative", 40)]


def test_a_fork_begins_with_a_view_of_the_stable_state(case: Case) -> None:
    case.feed(0, 0, 25)
    case.feed(1, 0, 25)
    case.tick()
    case.feed(0, 25, 45)
    for _ in range(4):
        case.tick()
    left = [sorted(path.suffix for path in (case._folder / "fork0").iterdir())]
    for end in (55, 65, 75):
        case.feed(0, end - 10, end)
        forked = case.tick().forked[0]
        assert forked is not None
        assert not forked.is_anew
        left.append(sorted(path.suffix for path in (case._folder / "fork0").iterdir()))
    assert left[0] == [".delta"]  # what it touched, and nothing else
    assert ".whole" in left[1]
    assert case.told()[2:] == [("tentative", end) for end in (30, 40, 50, 60, 70)]
    assert case.streams.cache_of(0).open(case.streams.output.state.standings[0].attempt) is not None


def test_a_fork_that_is_made_anew_while_the_stable_lineage_moves_is_found_in_the_next_tick(case: Case) -> None:
    case.feed(0, 0, 20)
    case.feed(1, 0, 20)
    case.tick()
    case.feed(0, 20, 60)
    for _ in range(4):
        case.tick()
    assert case.outage.state == "UP_FAILURE"
    for begin in range(20, 40, 5):  # so that correcting it takes several ticks
        case.feed(1, begin, begin + 5)
    case.tuples_max = 1
    for path in (case._folder / "fork0").iterdir():
        path.unlink()
    anew = []
    for end in (70, 80, 90):
        case.feed(0, end - 10, end)
        ticked = case.tick()
        assert ticked.done[0].tuples
        assert ticked.forked[0] is not None
        anew.append(ticked.forked[0].is_anew)
    assert anew == [True, False, False]


def test_tentative_tuples_are_no_part_of_the_checkpoint(case: Case) -> None:
    case.feed(0, 0, 25)
    case.feed(1, 0, 25)
    case.tick()
    case.feed(0, 25, 60)
    for _ in range(4):
        case.tick()
    standing = case.streams.output.state.standings[0]
    assert case.outage.tentative == 4
    assert (standing.extent, standing.open) == (5, 1)
    case.caches(0).stable._base.unlink()
    for path in (case._folder / "stable0").iterdir():
        path.unlink()
    case.feed(1, 25, 60)
    done = case.tick().done[0]
    assert done.recovery is not None
    assert done.recovery.open_windows == 1
    assert case.streams.results(0).column("window_end").to_pylist() == [10, 20, 30, 40, 50, 60]


def test_what_waits_in_a_barrier_since_before_the_guesses_is_found_behind_them(tmp_path: Path) -> None:
    barrier = SimulatedBarrier(2, ("s",), None).again_over([input_spec(["s"])] * 2)
    case = Case(tmp_path, definition=barrier)
    case.feed(1, 0, 3)
    quiet.pass_time(case.streams.inputs[0], 10, "run")
    quiet.pass_time(case.streams.inputs[1], 10, "run")
    case.tick()
    case.feed(0, 12, 14)  # for which others wait, but perhaps there will be earlier ones
    for _ in range(4):
        case.tick()
    assert case.outage.tentative == 2
    quiet.pass_time(case.streams.inputs[1], 14, "run")
    case.tick()
    kinds = [row["_kind"] for table in changes(case.streams.output, 0, columns=[]) for row in table.to_pylist()]
    assert kinds == ["tentative", "tentative", "undo", "stable", "stable", "rec_done"]
    assert case.outage.state == "STABLE"


def test_whoever_reads_the_guesses_learns_that_a_fork_goes_back_though_nothing_is_undone(tmp_path: Path) -> None:
    case = Case(tmp_path, Promise(3 * SECOND_US, "process", "suspend"))
    case.feed(0, 0, 20)
    case.feed(1, 0, 20)
    case.tick()
    case.feed(0, 20, 60)
    for _ in range(4):
        case.tick()
    case.feed(1, 20, 25)
    case.tick()
    state = case.streams.output.state
    assert (case.outage.state, case.outage.tentative, guessed_until(state)) == ("STABILIZATION", 0, 60)
    case.feed(1, 25, 45)
    case.told()
    for _ in range(4):
        case.tick(0)  # which cannot be read, so that what came late is guessed from by another fork
    assert case.told() == [("tentative", 30), ("tentative", 40)]
    assert guessed_until(case.streams.output.state) == 45
    assert undone_until(case.streams.output.state) != undone_until(state)


def test_a_stream_with_all_of_it_verifies(case: Case) -> None:
    case.feed(0, 0, 45)
    case.feed(1, 0, 15)
    for _ in range(4):
        case.tick()
    assert case.outage.tentative > 0
    assert not verify(case.streams.output).problems
    case.feed(1, 15, 45)
    case.tick()
    assert not verify(case.streams.output).problems


def test_a_program_without_a_bound_undoes_the_guesses_of_every_partition_be_they_one(tmp_path: Path) -> None:
    case = Case(tmp_path, partitions=4)
    guesses = (1, 0, 2, 1)
    row = {"k": 1, "s": "a", "v": 0, "x": 1.0}
    rows = {p: [{**row, "t": 10 * n} for n in range(many)] for p, many in enumerate(guesses)}
    case.streams.append(0, rows)
    quiet.pass_time(case.streams.inputs[0], 20, "run")
    for _ in range(4):
        case.tick()
    assert tuple(fork.tuples for fork in case.outage.forks) == guesses
    end_outage(case.streams.output)
    log = case.streams.output
    for p, many in enumerate(guesses):
        kinds = [row["_kind"] for table in changes(log, p, columns=[]) for row in table.to_pylist()]
        assert kinds == ["tentative"] * many + ["undo"] * (many > 0)
    assert not verify(log).problems


def test_a_program_without_a_bound_undoes_what_is_tentative_before_it_goes_on(case: Case) -> None:
    case.feed(0, 0, 25)
    for _ in range(4):
        case.tick()
    case.feed(1, 0, 25)
    with pytest.raises(CorruptManifestError, match="does not say how it is"):
        case.streams.batch()
    assert end_outage(case.streams.output) is not None
    assert end_outage(case.streams.output) is None
    case.streams.drain()
    assert case.told() == [("tentative", 10), ("tentative", 20), ("undo", 0), ("stable", 10), ("stable", 20)]
    assert case.outage.state == "STABLE"
    case.feed(0, 25, 35)  # and with a bound again
    for _ in range(4):
        case.tick()
    assert case.told() == [("tentative", 30)]
