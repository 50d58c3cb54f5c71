"""The part of an append that concerns missing inputs: the state, since when, and how far a fork has come meanwhile.

Part of every append of an operator with a bound, and from then on of every append of its stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from strandline.log.stream.json_part import JsonPart

State = Literal["STABLE", "UP_FAILURE", "STABILIZATION"]
"""Which lineage moves: only the stable one; only the fork, or none; the stable one while there is a fork."""
STATES: tuple[State, ...] = ("STABLE", "UP_FAILURE", "STABILIZATION")


@dataclass(frozen=True, slots=True)
class ForkStanding(JsonPart):
    """Where the fork of one partition stands after a commit."""

    ONLY_IF_SAID = "problem latest begun"

    bound: int | None
    """The input tuples before this time that were published are in its state; None: it has not begun."""
    ordinal: int
    """So many tuples are, counted on from those of the stable lineage."""
    boundary: int | None
    """No tentative result before this time will follow from it."""
    first: int
    """The offset behind the last undo: tentative tuples before it are void."""
    tuples: int = 0
    """Tentative tuples that are not void."""
    published: int = 0
    """Tentative tuples since the last reconciliation, void or not."""
    attempt: str = ""
    """Which attempt made its state; empty if there is none to be found."""
    problem: str = ""
    """Why it has ended before its time: it begins again when the stable lineage moves. Empty if it has not."""
    latest: int | None = None
    """No tentative tuple that is not void has a later time; None if there is none, or that is not known."""
    begun: int = 0
    """How often it has begun again since the failure began: it has gone back, and guesses other things than before."""

    def undone(self, first: int) -> ForkStanding:
        """Returns the fork behind an undo, which ends at this offset."""
        return replace(self, first=first, tuples=0, latest=None)

    def begun_anew(self, problem: str = "") -> ForkStanding:
        """Returns the fork without a state: one that is made of the stable one again, or has failed."""
        begun = self.begun + (self.bound is not None)
        return replace(self, bound=None, ordinal=0, boundary=None, attempt="", problem=problem, begun=begun)


@dataclass(frozen=True, slots=True)
class Outage(JsonPart):
    """The state of an operator with a bound, over all partitions."""

    ONLY_IF_SAID = "missing left_out target forks"
    PARTS: ClassVar = {"forks": ForkStanding}

    state: State = "STABLE"
    since_us: int = 0
    """When it came into this state, by the clock of its driver."""
    missing: tuple[int, ...] = ()
    """Numbers of the inputs that tuples of others, or tentative ones of their own, have waited for, for the bound."""
    left_out: tuple[int, ...] = ()
    """Numbers of the inputs that were not complete where the forks have come: tuples of theirs may have come since."""
    target: int | None = None
    """STABILIZATION: the time up to which the forks had come when it began."""
    forks: tuple[ForkStanding, ...] = ()
    """Per partition; none if there is no fork."""

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ValueError(f"unknown state {self.state!r}")

    @property
    def tentative(self) -> int:
        """How many tentative tuples are not void."""
        return sum(fork.tuples for fork in self.forks)


def outage_problem(before: Outage | None, now: Outage | None, begins: Sequence[int], ends: Sequence[int]) -> str | None:
    """Returns why one outage cannot follow the other; the partitions ended at `begins` before, and end at `ends`."""
    if now is None:
        return "an append to a stream whose operator has a bound does not say how it is" if before else None
    if now.state == "STABLE" and (now.forks or now.missing or now.target is not None):
        return "it says STABLE, and speaks of missing inputs or of a fork"
    if now.state == "STABILIZATION" and not now.forks:
        return "it says STABILIZATION, and there is no fork to be corrected"
    if now.forks and len(now.forks) != len(ends):
        return f"it speaks of {len(now.forks)} forks in {len(ends)} partitions"
    for p, fork in enumerate(now.forks):
        if not 0 <= fork.tuples <= min(fork.published, ends[p] - fork.first) or fork.first < 0:
            return f"in partition {p} {fork.tuples} tentative tuples count from offset {fork.first} to {ends[p]}"
        old = before.forks[p] if before and before.forks else None
        if old is not None and old.first != fork.first and fork.first <= begins[p]:
            return f"in partition {p} tentative tuples are void before {fork.first}, and no undo says so"
    return None


def outage_report(outage: Outage, inputs: Sequence[str], blocked: str | None) -> dict[str, Any]:
    """Returns the state in plain values, with the problems of forks by partition.

    `inputs` are the names of the inputs, `blocked` says why the operator has no tentative results without one of
    them; None if it may have some.

    >>> outage_report(Outage("UP_FAILURE", 5, missing=(1,)), ["a", "b"], "a barrier has nothing to say")["blocked"]
    'without b a barrier has nothing to say: it is blocked until b is back'
    """
    missing = [inputs[number] for number in outage.missing]
    who, verb = " and ".join(missing), "is" if len(missing) == 1 else "are"
    problems = {p: fork.problem for p, fork in enumerate(outage.forks) if fork.problem}
    return {
        "state": outage.state,
        "since_us": outage.since_us,
        "missing": missing,
        "tentative": outage.tentative,
        **({"blocked": f"without {who} {blocked}: it is blocked until {who} {verb} back"} if who and blocked else {}),
        **({"problems": problems} if problems else {}),
    }
