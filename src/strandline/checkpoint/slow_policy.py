"""The thesis's policy: windows that have been open for long are saved now and then, and no others."""

from __future__ import annotations

from dataclasses import dataclass, field

from strandline.checkpoint.input_times import InputTimes, StepEnd
from strandline.errors import OptionError
from strandline.log.operator_state.standing import Standing
from strandline.operators.operator import SlowLimits
from strandline.units import Duration, has_unit, positive_us
from strandline.wording import exact_duration

_AT_MOST = 100_000
"""Footprints of slow windows in one step: about a tenth of a second."""


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

    def limits(self, before: Standing | None, time: int | None) -> SlowLimits:
        """Returns which windows are due at the end of a step, at this time of the input."""
        times = InputTimes.of_words(before.times if before else ())
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
            "cec: every= and at_most= say how often slow windows are saved, and none are without slow=",
            todo='write slow="1 min", every="1 min"; for whole checkpoints use sl.instant("10 s")',
        )
    many = _AT_MOST if at_most is None else at_most
    if isinstance(many, bool) or not isinstance(many, int) or many < 1:
        raise OptionError(f"cec: at_most={at_most!r} is not a number of windows", todo="use 1 or more, as 10_000")
    if every is not None and has_unit(every) != has_unit(slow):
        raise OptionError(
            f"cec: of slow={slow!r} and every={every!r} one has a unit, and both are in the time of the input",
            todo='write both with one, as slow="1 min", every="10 s"; for integer time columns, both without',
        )
    open_for = positive_us(slow, "cec: slow")
    again = open_for if every is None else positive_us(every, "cec: every")
    return SlowWindows(open_for, again, many, has_unit(slow))
