"""Streams read as one, of which some are several replicas: of each, the one that is read until the next look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from strandline.errors import StrandlineError
from strandline.inputs.input_marks import in_logs
from strandline.inputs.replicas.replica_input import ReplicaInput
from strandline.inputs.replicas.replica_set import MISSING
from strandline.inputs.serialised_union import SerialisedUnion
from strandline.log.operator_state.standing import Standing, marks_in


@dataclass(slots=True)
class Replicated(SerialisedUnion):
    """Beside streams, replicas. While none of those can be read that has what was taken in, the operator waits, unless
    it has a bound: then they are missing."""

    members: Mapping[int, ReplicaInput] = field(default_factory=dict)
    """By number, the inputs that are several replicas; `logs` has the one of each that was chosen last."""
    absent: frozenset[int] = field(init=False, default=frozenset())
    """The numbers of those of which no replica can be read that has what was taken in, as of the last look."""

    def __post_init__(self) -> None:
        self.absent = frozenset(number for number, member in self.members.items() if member.log is None)

    def choose(self, standings: Sequence[Standing]) -> None:
        """Decides which replicas are read from now on, and takes in what these have published."""
        logs, absent, marks = list(self.logs), set(), marks_in(standings)
        for number, member in self.members.items():
            if found := member.choose(marks, number):
                logs[number] = found
            else:
                absent.add(number)
        self.logs, self.absent = tuple(logs), frozenset(absent)

    def bears(self, problem: StrandlineError) -> bool:
        """Leaves the replica alone for a while in which a problem lies; returns whether it lies in one."""
        return any(member.bears(problem) for member in self.members.values())

    def waiting(self, standings: Sequence[Standing]) -> int:
        return SerialisedUnion.waiting(self, self.here(standings))

    def here(self, standings: Sequence[Standing]) -> Sequence[Standing]:
        """Returns the standings in the replicas that are read now; as they are noted, if these cannot tell."""
        try:
            marks = [in_logs(m, self.logs, p, self.absent) for p, m in enumerate(marks_in(standings))]
        except MISSING:
            return standings
        return [replace(s, marks=m) for s, m in zip(standings, marks, strict=True)]

    @property
    def waits_for(self) -> str:
        """Which inputs cannot be read, and why; empty if all can."""
        missing = [self.members[number].none_readable() for number in sorted(self.absent)]
        return "; ".join(f"{one.what}: {one.where}" for one in missing)
