"""`start(…, restart="10 s")`: after which errors an element starts again, and after which pauses."""

from __future__ import annotations

from dataclasses import dataclass, replace

from strandline.errors import StrandlineError
from strandline.units import Duration, positive_clock_us

_FIRST_S = 1.0
_UNKNOWN_MAX = 5
"""So many errors in a row that Strandline does not know are borne: the cause of some comes again each time."""


@dataclass(frozen=True, slots=True)
class Restart:
    """The pauses before the next tries: a second, then twice as long each time, up to the longest."""

    longest_s: float
    bears_all: bool = False
    """Starts again after every error: of a source whose stream is a missing input meanwhile."""

    @classmethod
    def of(cls, longest: Duration | None) -> Restart | None:
        """Returns the option of a user; None if it was not given. Raises `OptionError` if it is no duration."""
        if longest is None:
            return None
        return cls(positive_clock_us(longest, "restart") / 1e6)

    @classmethod
    def behind_a_bound(cls, asked: Restart | None) -> Restart:
        """Returns the pauses of a source behind an operator with a bound: up to those that the user asked for."""
        return BEHIND_A_BOUND if asked is None else replace(asked, bears_all=True)

    def pause_s(self, tries: int) -> float:
        """Returns the pause after so many tries in a row that failed.

        >>> [Restart(10.0).pause_s(tries) for tries in (1, 2, 3, 4, 5, 5000)]
        [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
        """
        return min(self.longest_s, _FIRST_S * 2.0 ** min(tries - 1, 30))

    def bears(self, problem: BaseException, unknown: int) -> bool:
        """Returns whether the element starts again after this error.

        `unknown` is the number of errors in a row that Strandline does not know, this one included.
        """
        if self.bears_all:
            return True
        return problem.may_pass if isinstance(problem, StrandlineError) else unknown <= _UNKNOWN_MAX


BEHIND_A_BOUND = Restart(60.0, bears_all=True)
"""Of a source whose stream is a missing input while it fails: an operator with a bound goes on without it."""
