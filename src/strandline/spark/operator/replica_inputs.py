"""Inputs of an operator of which some are several replicas: of each, the one that is read until the next look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from strandline.errors import StrandlineError
from strandline.inputs.input_marks import in_logs
from strandline.inputs.replicas.replica_input import ReplicaInput
from strandline.inputs.replicas.replica_set import MISSING
from strandline.log.operator_state.input_mark import Marks
from strandline.log.operator_state.standing import Standing
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState
from strandline.running.element import Element
from strandline.spark.operator.operator_inputs import OperatorInputs
from strandline.spark.session.place import Place


@dataclass(frozen=True, slots=True)
class ReplicaMember:
    """One input, and where its replicas are, in the order in which it knows them."""

    input: ReplicaInput
    places: tuple[Place, ...]

    def chosen(self, standings: Sequence[Standing], number: int) -> tuple[Place, Log] | None:
        """The replica to read now for the input with this number; None if there is none that has what was taken in."""
        log = self.input.choose(marks_in(standings), number)
        current = self.input.current
        return None if log is None or current is None else (self.places[current], log)


def marks_in(standings: Sequence[Standing]) -> list[Marks]:
    """Where an operator over a serialised input stands, per partition; nothing if it has never worked."""
    return [s.marks for s in standings if s.marks is not None]


class ReplicaInputs(OperatorInputs):
    """Beside streams, replicas. While none of those can be read that has what was taken in, the operator waits, unless
    it has a bound: then they are missing."""

    def __init__(
        self,
        places: Sequence[Place],
        logs: Sequence[Log],
        members: Mapping[int, ReplicaMember],
        output: Log,
        *,
        bears_failures: bool = False,
    ) -> None:
        """`places` and `logs` are those that were chosen at first; `members` has the replicas, by numbers of inputs."""
        super().__init__(places, logs, bears_failures=bears_failures)
        self._members = dict(members)
        self._output = output
        self.absent = frozenset(number for number, member in members.items() if member.input.log is None)

    @property
    def are_there(self) -> bool:
        """Whether there is a replica to read of each input that has some, as of the last look."""
        return not self.absent

    def choose(self) -> None:
        """Decides which replicas are read from now on, and takes in what these have published."""
        places, logs, absent = list(self.places), list(self.logs), set()
        for number, member in self._members.items():
            if found := member.chosen(self._output.state.standings, number):
                places[number], logs[number] = found
            else:
                absent.add(number)
        self.places, self.logs, self.absent = tuple(places), tuple(logs), frozenset(absent)

    def refresh(self) -> None:
        """Takes in what was published since, and chooses."""
        self.choose()
        self._refresh(number for number in range(len(self.logs)) if number not in self._members)

    def have_grown(self) -> bool:
        """Whether there are tuples that were not there when all `are_seen`, and somebody to read them from."""
        return super().have_grown() and self.are_there

    def time_has_passed(self, element: Element, ours: LogState) -> bool:
        """Whether there is something to take in of which Spark knows nothing."""
        return self.are_there and super().time_has_passed(element, ours)

    def bears(self, problem: StrandlineError) -> bool:
        """Leaves the replica that the problem concerns alone for a while; returns whether it concerns one."""
        return any(member.input.bears(problem) for member in self._members.values())

    def waiting(self, standings: Sequence[Standing]) -> int:
        """How many tuples are not taken in, at most."""
        return super().waiting(self._here(standings))

    def lags(self, standings: Sequence[Standing]) -> dict[str, Any]:
        """How far each input has come; that a replica is waited for, if none can be read that has what was taken in."""
        found = super().lags(self._here(standings))
        return found if self.are_there else {**found, "waits_for": self._waits_for}

    @property
    def _waits_for(self) -> str:
        nobody = [self._members[number].input.nobody() for number in sorted(self.absent)]
        return "; ".join(f"{one.what}: {one.where}" for one in nobody)

    def _here(self, standings: Sequence[Standing]) -> list[Standing]:
        """The same in the replicas that are read now; as they are noted, if these cannot tell."""
        try:
            return [
                s if s.marks is None else replace(s, marks=in_logs(s.marks, self.logs, p, self.absent))
                for p, s in enumerate(standings)
            ]
        except MISSING:
            return list(standings)

    def _register(self, number: int, name: str, output: Log, writes: str, label: str) -> None:
        """With every replica that can be written."""
        if number not in self._members:
            super()._register(number, name, output, writes, label)
        elif output.state.finished:
            self._members[number].input.unregister(name)
        else:
            marks = marks_in(output.state.standings)
            self._members[number].input.register(name, marks, number, writes=writes, label=label)
