"""The thesis's policy: windows that have been open for long are saved now and then, and no others.

To know which windows have been open for an hour takes the place of the input at which it was an hour earlier. So a
standing remembers where steps ended. Ends that lie close together for their age are forgotten: what is found is too
late by at most an eighth of the time that was asked for, and never too early.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self

import numpy as np

from strandline.errors import OptionError
from strandline.log.operator_state.standing import Standing
from strandline.operators.operator import SlowLimits
from strandline.units import Duration, has_unit, positive_us, whole_number
from strandline.wording import exact_duration

_AT_MOST = 100_000
"""Footprints of slow windows in one step: about a tenth of a second."""
_PARTS = 8
"""Of each span that is asked for: ends of steps that lie closer together are not told apart."""


@dataclass(frozen=True, slots=True)
class StepEnd:
    """Where a step ended."""

    time: int
    """The largest time of the input by then."""
    input: int
    output: int


@dataclass(frozen=True, slots=True)
class InputTimes:
    """Ends of steps, oldest first, with times that increase.

    >>> times = InputTimes().then(StepEnd(100, 5, 2), [60]).then(StepEnd(150, 9, 4), [60])
    >>> times.before(150)
    StepEnd(time=100, input=5, output=2)
    """

    ends: tuple[StepEnd, ...] = ()

    def then(self, end: StepEnd, spans: Sequence[int]) -> Self:
        """Adds an end and drops those that are not needed to look back by these spans of time; returns the times."""
        ends = [e for e in self.ends if e.time < end.time]
        oldest = max((i for i, e in enumerate(ends) if e.time < end.time - max(spans)), default=0)
        return type(self)(tuple(_thinned([*ends[oldest:], end], spans)))

    def before(self, time: int) -> StepEnd | None:
        """Returns the last end before this time; None if none is known."""
        return next((e for e in reversed(self.ends) if e.time < time), None)

    @property
    def words(self) -> tuple[int, ...]:
        """For the standing: the first end, and how far each of the others lies behind the one before it."""
        words = np.array([(e.time, e.input, e.output) for e in self.ends], np.int64).reshape(-1, 3)
        return tuple(np.diff(words, axis=0, prepend=0).ravel().tolist())

    @classmethod
    def of_words(cls, words: Sequence[int]) -> Self:
        """Returns what `words` gave."""
        return cls(tuple(StepEnd(*row) for row in np.array(words, np.int64).reshape(-1, 3).cumsum(axis=0).tolist()))


def _thinned(ends: Sequence[StepEnd], spans: Sequence[int]) -> Iterable[StepEnd]:
    """Returns the ends without those between two that are close together for their age."""
    now, kept = ends[-1].time, [ends[0]]
    for end, behind in pairwise(ends[1:]):
        # By each span it is asked for until the one behind it has grown as old.
        asked = [span for span in spans if now - behind.time <= span]
        if not asked or behind.time - kept[-1].time > min(asked) // _PARTS:
            kept.append(end)
    return kept if len(ends) == 1 else [*kept, ends[-1]]


@dataclass(frozen=True, slots=True)
class SlowWindows:
    """Windows that have been open for longer than H get a G-check within every T, at most M a step (thesis 4.2)."""

    open_for: int
    """H, in the time of the input: microseconds, or the number itself for integer time columns."""
    every: int
    """T, in the same."""
    at_most: int
    """M."""
    has_unit: bool = field(default=True, compare=False)
    """True if both were given with a unit, which integer times do not have."""

    def limits(self, before: Standing, time: int | None) -> SlowLimits:
        """Returns which windows are due at the end of a step, at this time of the input."""
        times = InputTimes.of_words(before.times)
        opened = None if time is None else times.before(time - self.open_for)
        written = None if time is None else times.before(time - self.every)
        return SlowLimits(opened.input if opened else 0, written.output if written else 0, self.at_most)

    def times_after(self, before: Standing | None, end: StepEnd | None) -> tuple[int, ...]:
        """Returns the ends of steps that a standing remembers: this one, if the time was known, and some before it."""
        known = before.times if before else ()
        return known if end is None else InputTimes.of_words(known).then(end, (self.open_for, self.every)).words

    def __str__(self) -> str:
        def text(span: int) -> str:
            return f'"{exact_duration(span)}"' if self.has_unit else f"{span:_}"

        return f"slow={text(self.open_for)}, every={text(self.every)}, at_most={self.at_most:_}"


def slow_windows(slow: Duration | None, every: Duration | None, at_most: int | None) -> SlowWindows | None:
    """Returns what options of `cec` say of slow windows; None if nothing. Raises `OptionError`."""
    if slow is None:
        if every is None and at_most is None:
            return None
        raise OptionError(
            "cec: every= and at_most= need slow=: without it no slow windows are saved",
            todo='write slow="1 min", every="1 min"; for whole checkpoints use sl.instant("10 s")',
        )
    many = _AT_MOST if at_most is None else whole_number(at_most)
    if many is None or many < 1:
        raise OptionError(
            f"cec: at_most={at_most!r} is not a number of windows", todo="use 1 or more, for example 10_000"
        )
    if every is not None and has_unit(every) != has_unit(slow):
        raise OptionError(
            f"cec: slow={slow!r} and every={every!r}: one has a unit and the other has none",
            todo='write both with a unit, such as slow="1 min", every="10 s"; for an integer time column, write both '
            "without",
        )
    open_for = positive_us(slow, "cec: slow")
    again = open_for if every is None else positive_us(every, "cec: every")
    return SlowWindows(open_for, again, many, has_unit(slow))
