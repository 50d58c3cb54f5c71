"""What a driver has seen of an input, when the input is read from another replica from now on."""

from __future__ import annotations

from strandline.clock import ManualClock
from strandline.log.operator_state.input_mark import InputMark, Marks, Position
from strandline.log.stream import quiet
from strandline.log.stream.log import Log
from strandline.running.inputs_at_sight import look
from strandline.running.watch import Arrival, Watch
from strandline.testing import MemoryStorage
from tests.support.items import append_items, item_spec

BOUND_US = 3_000_000
HERE = [Marks(Position(0, None), Position(0, None), (InputMark(0, 0), InputMark(0, 0)))]


def complete(name: str, until: int, times: list[int]) -> Log:
    """A stream with tuples of these times, in which nothing before `until` will follow."""
    log = Log.create(MemoryStorage(ManualClock()), item_spec(1, name=name))
    append_items(log, {0: [(1, t, t) for t in times]})
    quiet.pass_time(log, until, "run")
    return log


def looked(watch: Watch, inputs: list[Log], now_s: float, but: frozenset[int] = frozenset()) -> Watch:
    watch, sights = look(inputs, HERE, watch, but)
    return watch.looked(sights, round(now_s * 1e6), None, BOUND_US)


def arrived(watch: Watch) -> list[tuple[int, float, int | None]]:
    return [(one.boundary, one.seen_us / 1e6, one.latest) for one in watch.arrivals[0]]


def test_what_has_arrived_stays_as_far_as_the_other_replica_is_complete() -> None:
    beside, one = complete("beside", 1, [0]), complete("one", 10, [5])
    watch = looked(Watch.fresh(2), [one, beside], 1.0)
    append_items(one, {0: [(1, t, t) for t in (12, 18)]})
    quiet.pass_time(one, 20, "run")
    watch = looked(watch, [one, beside], 2.0)
    assert arrived(watch) == [(10, 1.0, 5), (20, 2.0, 18)]
    other = complete("other", 15, [5, 12])
    back = looked(watch, [other, beside], 2.5)
    assert arrived(back) == [(10, 1.0, 5), (15, 2.0, 12)], "it has waited since it was seen in the first"
    assert min(back.reach(None)) == 1
    assert back.reach(None)[0] == 15, "nobody believes that the other is complete for more"
    append_items(other, {0: [(1, 18, 18)]})
    quiet.pass_time(other, 20, "run")
    assert arrived(looked(back, [other, beside], 2.8))[-1] == (20, 2.8, 18), "what lies beyond arrives again"
    assert arrived(looked(watch, [complete("third", 10, [5]), beside], 2.5)) == [(10, 1.0, 5)]
    assert arrived(looked(watch, [complete("ahead", 30, [5, 12, 18, 25]), beside], 2.5))[-1] == (30, 2.5, 25)


def test_a_replica_that_cannot_be_read_is_no_other_one() -> None:
    beside, one = complete("beside", 1, [0]), complete("one", 20, [5])
    watch = looked(Watch.fresh(2), [one, beside], 1.0)
    nobody = Log(MemoryStorage(ManualClock()), item_spec(1, name="nobody"))
    away = looked(watch, [nobody, beside], 2.0, frozenset({0}))
    assert away.unreachable == {0}
    assert arrived(away) == arrived(watch)
    assert looked(away, [one, beside], 3.0) == looked(watch, [one, beside], 3.0)


def test_guesses_of_another_replica_are_others() -> None:
    beside, one = complete("beside", 1, [0]), complete("one", 10, [5])
    watch = looked(Watch.fresh(2), [one, beside], 1.0)
    guess = Arrival(30, 1_000_000, 25)
    undone = ((7, 1), ())
    guessing = Watch(watch.arrivals, guesses=((guess,), ()), undone=undone, streams=watch.streams)
    assert guessing.guessed(0, (7, 1)) == 30
    other = complete("other", 10, [5])
    changed, _ = look([other, beside], HERE, guessing)
    assert changed.guessed(0, (7, 1)) is None, "though its last undo is at the same offset"
    same, _ = look([one, beside], HERE, guessing)
    assert same.guessed(0, (7, 1)) == 30
