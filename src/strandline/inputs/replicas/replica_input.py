"""Replicas as one input of an operator: in every tick the one that is read, and none that lacks what was taken in.

A place in a serialised input is a number of tuples and a time. Both mean the same in all replicas, so an operator may
change between any two ticks, and take in the same tuples in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from strandline.errors import StorageError, StrandlineError, StreamMismatchError
from strandline.inputs.input_marks import in_logs, needs_of_replica, require_same_input
from strandline.inputs.left_alone import LeftAlone
from strandline.inputs.replicas.replica_check import BEGIN_ANEW
from strandline.inputs.replicas.replica_choice import ReplicaSight, choose
from strandline.inputs.replicas.replica_set import MISSING, ReplicaSet, ReplicaUser
from strandline.inputs.serialised_union import SerialisedUnion
from strandline.log.index.seek import offset_at
from strandline.log.operator_state.input_mark import Marks
from strandline.log.operator_state.standing import Standing, marks_in
from strandline.log.stream.log import Log
from strandline.log.upkeep import consumer_registry
from strandline.units import END_OF_TIME


class ReplicaInput(ReplicaUser):
    """One of the inputs of an operator."""

    def __init__(self, replicas: ReplicaSet) -> None:
        super().__init__(replicas)
        self._alone = LeftAlone(replicas.clock)

    def choose(self, marks: Sequence[Marks], number: int) -> Log | None:
        """Looks, and returns the replica to read now, as it is by now; None if none has what was taken in.

        `marks` say where the operator stands, per partition (empty: it has never worked), of which this is the input
        with that `number`. One that fails on the way is left out.
        """
        mine = [Marks(m.stands, m.oldest, (m.inputs[number],)) for m in marks]

        def best(sights: Sequence[ReplicaSight | None]) -> int | None:
            fit = [None if s is None or not self._reaches(i, mine) else s for i, s in enumerate(sights)]
            return choose(fit, self._taken_in(mine), self._at_hand(fit, mine))

        for attempt in self._attempts(best, self._alone.now()):
            with attempt as (chosen, log):
                if mine and log is not self.log:
                    _require_same(log, mine)
                self.current, self.log = chosen, log
                return log
        return None

    def _taken_in(self, marks: Sequence[Marks]) -> list[int]:
        """Returns how many results were certainly taken in, per partition."""
        known = [mark.inputs[0].replica for mark in marks]
        return [replica.first if replica else 0 for replica in known] or [0] * self._set.spec.partitions

    def _reaches(self, replica: int, marks: Sequence[Marks]) -> bool:
        """Returns whether a replica is complete up to where the operator stands, in every partition."""
        log = self._set.logs[replica]
        if log is None:
            return False
        pairs = zip(log.state.boundaries, (m.stands.bound for m in marks), strict=False)
        return all(bound is None or (boundary is not None and boundary >= bound) for boundary, bound in pairs)

    def _at_hand(self, fit: Sequence[ReplicaSight | None], marks: Sequence[Marks]) -> int | None:
        """Returns the replica that was read so far: after a restart, the one that the marks are of."""
        if self.current is not None or not marks:
            return self.current
        noted = marks[0].inputs[0].replica
        ids = [None if s is None or log is None else log.spec.id for s, log in zip(fit, self._set.logs, strict=True)]
        return ids.index(noted.stream) if noted is not None and noted.stream in ids else None

    def bears(self, problem: StrandlineError) -> bool:
        """Returns whether a step's problem lies in the replica that is read; if so, leaves that alone for a while."""
        if self.log is None or self.current is None or not isinstance(problem, MISSING):
            return False
        if not problem.lies_in(self.log.storage.url):
            return False
        self._alone.add(self.current)
        self._lose(self.current, problem)
        return True

    def none_readable(self) -> StrandlineError:
        """Returns the error of a reader that finds no replica."""
        return self._set.none_readable()

    def register(self, name: str, marks: Sequence[Marks], number: int, writes: str = "", label: str = "") -> None:
        """Registers the operator as a consumer at every replica that can be reached; raises `StorageError` if none can.

        A replica that has dropped what the operator needs keeps all that it has.
        """

        def keep(log: Log) -> None:
            starts = log.state.starts[: log.spec.partitions]
            needed = needs_of_replica(log, marks, number) if marks else starts
            kept = [max(first, start) for first, start in zip(needed, starts, strict=True)]
            consumer_registry.register(log, name, kept, writes=writes, label=label)

        reached, problems = self._set.at_each(keep)
        if not reached:
            refused = [problem for problem in problems if isinstance(problem, StorageError)]
            raise refused[-1] if refused else self._set.none_readable()

    def unregister(self, name: str) -> None:
        """Removes the registration at all replicas that can be reached; a user may remove the others."""
        self._set.at_each(lambda log: consumer_registry.unregister(log, name))


def _require_same(log: Log, marks: Sequence[Marks]) -> None:
    """Raises unless what the operator has taken in is here, too, and nothing in its place, and what comes next is kept.

    Of another replica than it has read last, also unless that keeps what a replay needs.
    """
    here = [in_logs(m, [log], p) for p, m in enumerate(marks)]
    require_same_input(log, 0, here)
    for p, m in enumerate(here):
        first, bound = m.inputs[0].first, m.stands.bound
        log.require_kept(p, first)
        if bound is not None and bound != END_OF_TIME and offset_at(log, p, bound) < first:
            raise StreamMismatchError(
                f"partition {p} has other results before {bound} than the replica that was read before",
                stream=log.storage.url,
                todo=BEGIN_ANEW,
            )


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
