"""The same witness of an operator over one stream, which takes in results as they stand, and guesses by their time."""

from __future__ import annotations

from strandline.log.operator_state.standing import Standing
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState
from strandline.running.fork import Forked
from strandline.units import END_OF_TIME
from tests.simulation.availability_witness import AvailabilityWitness
from tests.simulation.failing_inputs import Place
from tests.simulation.simulated_operators import Placed


class OneStreamWitness(AvailabilityWitness):
    """The stable lineage stands at an offset; a fork begins with all results before it."""

    def begin(self) -> None:
        """Another process goes on."""
        super().begin()
        self._begun: list[tuple[int, int]] = [(0, 0)] * self._world.partitions
        """Of each fork the offset at which it began, and how many results it held then."""

    def _held(self, p: int, forked: Forked, base: LogState, now: Standing) -> list[Place] | None:
        own, stood, bound = self.forks[p], now.input, forked.standing.bound
        since = None if forked.is_anew else forked.began.bound
        there = self._source.there(p, since, bound, self._world.unreachable)
        more = [one for one in there if one.offset >= stood or self._source.is_guess(p, one)]
        if forked.is_anew:
            before = [one for one in self._all(p) if one.offset < stood]
            self._begun[p] = (stood, len(before))
            return before + more
        return None if own is None else own + more

    def _silent(self, p: int, own: list[Place], began: int | None) -> list[Place]:
        _, many = self._begun[p]
        return own[:many] + super()._silent(p, own[many:], began)

    def _count(self, p: int, own: list[Place]) -> int:
        first, many = self._begun[p]
        return first + len(own) - many

    def _placed(self, p: int, taken: list[Place]) -> Placed:
        first, many = self._begun[p]
        found = super()._placed(p, taken)
        at = [one.offset if m < many else first + m - many for m, one in enumerate(taken)]
        return [(number, {**row, "_offset": m}) for (number, row), m in zip(found, at, strict=True)]

    def _all(self, p: int) -> list[Place]:
        there = super()._all(p)
        return sorted((one for one in there if not self._source.is_guess(p, one)), key=lambda one: one.offset)

    def waiting(self, p: int, until: int | None) -> list[Place]:
        standings = self._world.output.state.standings
        first = standings[p].input if standings else 0
        there = self._source.there(p, None, until, frozenset())
        return [one for one in there if one.offset >= first or self._source.is_guess(p, one)]

    def check_end(self, log: Log) -> None:
        """All results come at their offsets."""
        self._begun = [(0, END_OF_TIME)] * self._world.partitions
        super().check_end(log)
