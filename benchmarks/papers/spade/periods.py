"""Joins in steps that last as long as the paper's checkpoint periods, without Spark.

The window is full before the first step. A step takes in what comes in a period, and saves what its policy asks for
before it ends: that is a checkpoint each period. A step is that of a task, as in `join_steps`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

import strandline as sl
from benchmarks.harness import spread
from benchmarks.join_steps import Taken
from benchmarks.orders import (
    PAPER_LEFT,
    PAPER_RIGHT,
    Ids,
    Joined,
    Matches,
    Side,
    definition,
    paper_tuples,
)
from strandline.operators.join.definition import JoinDefinition, JoinInput
from strandline.operators.join.join_windows import JoinWindows, WindowsKind
from strandline.operators.join.predicate import Predicate
from strandline.running.step import Done
from strandline.testing import MemoryStorage

INPUT_RATES: Final = {8_192: 9350.94, 16_384: 5054.39, 32_768: 2503.25, 65_536: 970.19, 131_072: 889.64}
OUTPUT_RATES: Final = {8_192: 25451.04, 16_384: 27180.69, 32_768: 25643.36, 65_536: 14099.27, 131_072: 13062.59}
"""Table 1: tuples a second by window. The paper prints 131071 for the last window and says 131072 elsewhere."""
NO_KEY: Final = -1
_SAME_KEY: Final = Predicate.of(lambda left, right: left.id == right.id)
"""One for all joins: each compiles its own code."""
INCREMENTAL: Final = sl.cec(extent=1 << 40, replay=0)
"""Saves in each step what came in it, once: the extent is so large that no footprint is written again."""
WHOLE: Final = sl.instant("1 us")
"""Saves all that is kept in each step."""


def matches_of(window: int) -> float:
    """Returns how many left tuples a right one meets in the paper: half of the input is of the right side."""
    return OUTPUT_RATES[window] / (INPUT_RATES[window] / 2)


@dataclass(frozen=True)
class Periods:
    """The tuples of both sides: those that fill the window, then as many of each side in every period."""

    fill: Ids
    """Keys of left; right has none that meets them."""
    left: Ids
    right: Ids
    each: int
    """Tuples of a side in a period."""

    @classmethod
    def of_window(cls, window: int, matches: float, each: int, periods: int) -> Periods:
        """Returns uniformly chosen keys, so many of them that a right tuple meets so many left ones."""
        rng, keys = np.random.default_rng(15), max(1, round(window / matches))
        fill, left, right = (rng.integers(0, keys, n) for n in (window, each * periods, each * periods))
        return cls(fill, left, right, each)

    @property
    def many(self) -> int:
        """How many periods there are."""
        return len(self.left) // self.each

    @property
    def measured(self) -> int:
        """The tuples of both sides in all periods."""
        return 2 * len(self.left)

    def tables(self) -> list[tuple[pa.Table, pa.Table]]:
        """Makes the tuples of both sides: the fill, and one pair of tables for each period."""
        rng, first = np.random.default_rng(16), len(self.fill)
        # The right tuple at the end of the fill says that no other one comes before it.
        nothing = paper_tuples(rng, "right", first - 1, np.array([NO_KEY]))
        found = [(paper_tuples(rng, "left", 0, self.fill), nothing)]
        for at in range(0, len(self.left), self.each):
            part = slice(at, at + self.each)
            found.append(
                (
                    paper_tuples(rng, "left", first + at, self.left[part]),
                    paper_tuples(rng, "right", first + at, self.right[part]),
                )
            )
        return found


def by_key(window: int, group: int, kind: WindowsKind = "partition") -> JoinDefinition:
    """Returns the join of equal keys: tuples are found by their key."""
    return definition(JoinWindows(kind, sizes=(window, 0)), PAPER_LEFT, PAPER_RIGHT, group)


def by_looking(window: int, group: int) -> JoinDefinition:
    """Returns the paper's join: each right tuple is compared with the whole window."""
    return JoinDefinition.of(
        JoinInput(PAPER_LEFT, ("id",), "at"),
        JoinInput(PAPER_RIGHT, ("id",), "at"),
        JoinWindows("partition", sizes=(window, 0), match="any"),
        _SAME_KEY,
        group=group,
    )


Contenders = Mapping[str, tuple[JoinDefinition, sl.Policy]]


def run_periods(periods: Periods, contenders: Contenders, repeat: int, folder: Path) -> dict[str, Taken]:
    """Runs all contenders over the same tuples, period by period in turns; the best of all rounds counts for each.

    Seconds are those of the processor, so that other programs do not count. Raises if the contenders do not find the
    same pairs.
    """
    tables, names = periods.tables(), list(contenders)
    seconds: dict[str, list[list[float]]] = {name: [] for name in names}
    last: dict[str, _Contender] = {}
    for turn in range(repeat):
        last = {name: _Contender(*contenders[name], folder / f"{turn}-{i}") for i, name in enumerate(names)}
        for number, pair in enumerate(tables):
            first = (number + turn) % len(names)
            for name in names[first:] + names[:first]:
                last[name].take_in(pair, counts=number > 0)
        for name, contender in last.items():
            seconds[name].append(contender.seconds)
    pairs = {name: Matches.found(contender.found) for name, contender in last.items()}
    if any(not found.same_as(pairs[names[0]]) for found in pairs.values()):
        raise RuntimeError("the joins have found different pairs")
    return {
        name: Taken(
            sum(map(min, zip(*seconds[name], strict=True))),
            spread([sum(each) for each in seconds[name]]),
            sum(step.opened + step.checked for step in contender.steps),
            max(step.standing.extent for step in contender.steps),
            pairs[name],
        )
        for name, contender in last.items()
    }


class _Contender:
    """A join at work, and the steps that count."""

    def __init__(self, join: JoinDefinition, policy: sl.Policy, folder: Path) -> None:
        self._sides = Side(MemoryStorage(), "left", PAPER_LEFT), Side(MemoryStorage(), "right", PAPER_RIGHT)
        self._joined = Joined(self._sides, MemoryStorage(), folder, join, policy)
        self.steps: list[Done] = []
        self.seconds: list[float] = []
        self.found: list[pa.Table] = []

    def take_in(self, pair: tuple[pa.Table, pa.Table], *, counts: bool) -> None:
        """Takes in tuples of both sides in one step, and keeps what it took and found if the step counts."""
        for side, table in zip(self._sides, pair, strict=True):
            side.append(table)
        log = self._joined.log
        many, end = sum(table.num_rows for table in pair), log.state.ends[0]
        began = time.process_time()
        done = self._joined.step(2 * many)
        taken = time.process_time() - began
        if done.tuples < many - 2:  # the last tuple of each side waits
            raise RuntimeError(f"a step has taken in {done.tuples:,} of {many:,} tuples")
        if counts:
            self.steps.append(done)
            self.seconds.append(taken)
            self.found += log.read(0, end, columns=["left_at", "right_at", "_kind"])
        for block in done.blocks:  # read for the last time; all of them would not fit the memory
            log.storage.delete(block.file)
