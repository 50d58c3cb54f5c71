"""What the specification of availability promises, over random arrivals: stable results as if nothing had failed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from random import Random
from typing import Any

import pytest

from tests.specification.plain_availability import Arrived, Entry, PlainAvailability, counted

WINDOW = 10


def windows(tuples: Sequence[Arrived], bound: int) -> list[Any]:
    """The end of each window that is over, with the tuples in it, in order."""
    by_window = groupby(tuples, key=lambda one: one.time // WINDOW)
    return [((w + 1) * WINDOW, tuple(found)) for w, found in by_window if (w + 1) * WINDOW <= bound]


class Story:
    """Inputs that come and stay away, and an operator that guesses."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.model = PlainAvailability(windows)
        self.reached = [0, 0, 0]
        self.ends = [0, 0, 0]

    def arrive(self, number: int) -> None:
        """Tuples of one input, and its boundary behind them."""
        until = self.reached[number] + self.rng.randint(1, 25)
        for time in sorted(self.rng.randrange(self.reached[number], until) for _ in range(self.rng.randint(0, 6))):
            self.model.there.append(Arrived(time, number, self.ends[number]))
            self.ends[number] += 1
        self.reached[number] = until

    def go_on(self) -> None:
        """Either lineage, or none."""
        before = list(self.model.log)
        chance = self.rng.random()
        if chance < 0.3 and min(self.reached) > (self.model.stable.bound or 0):
            self.model.advance(self.rng.randint((self.model.stable.bound or 0) + 1, min(self.reached)))
        elif chance < 0.8:
            self.model.guess(self.rng.choice(sorted(self.reached)))
        elif chance < 0.9:
            self.model.reconcile()
        assert self.model.log[: len(before)] == before


@pytest.mark.parametrize("seed", range(200))
def test_stable_results_are_those_of_all_tuples_in_order_and_in_the_end_there_are_no_others(seed: int) -> None:
    story = Story(Random(seed))
    for _ in range(40):
        story.arrive(story.rng.randrange(3 if story.rng.random() < 0.5 else 2))
        story.go_on()
    end = min(story.reached)
    story.model.advance(max(end, story.model.stable.bound or 0))
    story.model.reconcile()
    stable, tentative = counted(story.model.log)
    before_end = sorted(one for one in story.model.there if one.time < end)
    assert stable == windows(before_end, end)
    assert tentative == []


def test_an_undo_voids_what_was_tentative_before_it_and_nothing_else() -> None:
    log = [Entry("stable", 1), Entry("tentative", 2), Entry("undo"), Entry("stable", 3), Entry("tentative", 4)]
    assert counted(log) == ([1, 3], [4])


def test_the_first_step_after_a_guess_undoes_it_and_the_last_one_says_that_it_is_over() -> None:
    model = PlainAvailability(windows, [Arrived(3, 0, 0), Arrived(13, 0, 1)])
    model.guess(20)
    assert [entry.kind for entry in model.log] == ["tentative", "tentative"]
    model.there.append(Arrived(4, 1, 0))
    model.advance(10)
    assert [entry.kind for entry in model.log[2:]] == ["undo", "stable"]
    model.advance(20)
    model.reconcile()
    assert [entry.kind for entry in model.log[4:]] == ["stable", "rec_done"]
    model.guess(30)
    model.reconcile()
    assert [entry.kind for entry in model.log[6:]] == []


def test_a_fork_that_was_overtaken_begins_where_the_stable_lineage_is() -> None:
    model = PlainAvailability(windows, [Arrived(3, 0, 0), Arrived(13, 0, 1), Arrived(23, 0, 2)])
    model.guess(10)
    model.advance(20)
    model.guess(30)
    assert counted(model.log) == (
        [(10, (Arrived(3, 0, 0),)), (20, (Arrived(13, 0, 1),))],
        [(30, (Arrived(23, 0, 2),))],
    )
