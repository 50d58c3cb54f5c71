"""For how long the oldest tuple of a pipeline has waited for its last results, without Spark, by a clock of hands."""

from __future__ import annotations

from typing import Any

import pytest

import strandline as sl
from strandline.running import oldest_waiting
from strandline.running.oldest_waiting import OldestWaiting, Passage

NAMES = ("north", "south")
PASSAGES = [Passage("first", NAMES, lambda time: time), Passage("last", ["first"], lambda time: time)]


class Chain:
    """Two feeds, windows over their union, and windows over those results."""

    def __init__(self, *, has_bound: bool = True, **options: Any) -> None:
        self.clock = sl.testing.HandClock()
        given = {"key": "room", "time": "at", "lateness": "0 s", "partitions": 2, "clock": self.clock, **options}
        self.feeds = [sl.testing.stream("room string, at timestamp", **given) for _ in NAMES]
        self.north, self.south = self.feeds
        first = sl.union(*self.feeds).window(sl.time_window("10 s")).aggregate(n=sl.count_all())
        self.first = sl.testing.run(first.availability("3 s") if has_bound else first)
        last = self.first.window(sl.time_window("20 s")).aggregate(n=sl.sum("n"))
        self.last = sl.testing.run(last.availability("3 s") if has_bound else last)
        self.waiting = OldestWaiting(NAMES, PASSAGES, self.clock)
        self.known = dict(zip(NAMES, (feed.input_log.state for feed in self.feeds), strict=True))

    def measure(self, at: int, *feeds: Any) -> None:
        for feed in feeds:
            feed.add([(room, f"2026-01-01 00:{at // 60:02d}:{at % 60:02d}") for room in "abc"])

    def after(self, seconds: float, *, works: bool = True) -> float:
        """Returns the figure after some time, in which the operators have looked once."""
        self.clock.advance(f"{seconds} s")
        if works:
            self.first.step()
            self.last.step()
        self.known |= {name: feed._log.state for name, feed in zip(NAMES, self.feeds, strict=True)}
        outputs = {"first": self.first._log.state, "last": self.last._log.state}
        self.waiting.look({**self.known, **outputs}, frozenset(NAMES))
        return self.waiting.seconds


@pytest.mark.parametrize("has_bound", [True, False])
def test_nothing_waits_while_all_is_there(has_bound: bool) -> None:
    chain = Chain(has_bound=has_bound)
    assert chain.after(5) == 0
    for at in (0, 7, 12, 25, 90):
        chain.measure(at, *chain.feeds)
        assert chain.after(1, works=False) == 1, "published, and nobody has looked"
        assert chain.after(1) == 0, "an open window has the tuples"


def test_tuples_wait_for_a_silent_input_until_guesses_have_come_through() -> None:
    chain = Chain()
    chain.measure(0, *chain.feeds)
    chain.measure(20, *chain.feeds)
    assert chain.after(1) == 0
    chain.measure(45, chain.north)
    assert chain.after(2) == 2
    chain.measure(60, chain.north)
    assert chain.after(1) == 3, "the older ones count"
    assert chain.after(2) == 5, "the first operator has guessed, the last one waits for its own bound"
    assert chain.first.state == "UP_FAILURE"
    assert chain.after(3) == 0, "the guesses of the last one are complete as far as the tuples that have come"
    assert chain.last.tentative.num_rows > 0
    chain.measure(80, chain.north)
    assert chain.after(0.5) == 0, "guesses go on at once"
    chain.measure(80, chain.south)
    assert chain.after(1) == 0
    assert chain.last.state == "STABLE"


def test_without_a_bound_tuples_wait_as_long_as_it_takes() -> None:
    chain = Chain(has_bound=False)
    chain.measure(0, *chain.feeds)
    chain.measure(20, chain.north)
    for seconds in (10, 20, 30):
        assert chain.after(10) == seconds
    chain.measure(20, chain.south)
    assert chain.after(0) == 0


def test_heartbeats_are_no_tuples() -> None:
    chain = Chain(heartbeat="1 s")
    chain.measure(0, *chain.feeds)
    chain.south.fall_silent()
    assert chain.after(5) == 0, "the tuples at 0 arrive with the heartbeat behind them"
    assert chain.after(2) == 2
    assert chain.after(2) == 0
    assert (chain.first.state, chain.last.state) == ("UP_FAILURE", "STABLE"), "they are in a window that is open"
    for _ in range(5):
        assert chain.after(60) == 0, "only time has come"


def test_many_arrivals_cost_little_and_the_oldest_one_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oldest_waiting, "_ARRIVALS_MAX", 5)
    chain = Chain(has_bound=False)
    chain.measure(0, *chain.feeds)
    chain.after(0)
    for number in range(1, 40):
        chain.measure(number, chain.north)
        assert chain.after(1) == number
        assert len(chain.waiting._waiting["north"]) <= 6
    chain.measure(38, chain.south)
    assert 1 <= chain.after(0) <= 20, "of two neighbours that count as one, the older one is told"
    chain.measure(39, chain.south)
    assert chain.after(0) == 0


def test_a_stream_of_another_program_counts_from_the_first_look() -> None:
    """Its clock may be any."""
    chain = Chain(has_bound=False)
    chain.measure(0, chain.north)
    chain.clock.advance("1 h")
    states = {"north": chain.north.input_log.state, "last": chain.last.input_log.state}
    waits, own = (OldestWaiting(["north"], PASSAGES, chain.clock) for _ in range(2))
    waits.look(states)
    own.look(states, frozenset(["north"]))
    assert (waits.seconds, own.seconds) == (0, 3600)
    chain.clock.advance("5 s")
    assert (waits.seconds, own.seconds) == (5, 3605)


def test_a_stream_that_is_not_known_or_says_no_time_is_no_reason_to_fail() -> None:
    chain = Chain(lateness="0 s")
    waiting = OldestWaiting(NAMES, PASSAGES, chain.clock)
    waiting.look({})
    waiting.look({"north": chain.north.input_log.state})
    assert waiting.seconds == 0
