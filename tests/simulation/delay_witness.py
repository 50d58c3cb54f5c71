"""Whoever has a watch: every tuple of an input that is not missing is in some result within the bound and a step.

That is property 4 of docs/how-availability-works.md, for `process` and `delay`, of results and of what inputs guess.
The three exceptions that it names are excused for two ticks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.log.operator_state.outage import Outage
from tests.simulation.availability_witness import AvailabilityWitness
from tests.simulation.operator_world import require

if TYPE_CHECKING:
    from tests.simulation.availability_world import World


class DelayWitness:
    """When a process has seen which boundaries, and so which tuples must be in a result by now."""

    def __init__(self, world: World, witness: AvailabilityWitness) -> None:
        self._world = world
        self._source = world.source
        self._forks = witness
        self._excused = 0
        """Until this tick tuples may be late: a driver or a fork is new."""

    def begin(self, inputs: int) -> None:
        """Another process goes on."""
        self._seen: list[list[tuple[int, int]]] = [[] for _ in range(inputs)]
        """Of each input the boundaries that this process has seen, and in which tick."""
        self._guessed: list[list[tuple[int, int]]] = [[] for _ in range(inputs)]
        """The same of its guesses, since its last undo."""
        self._undone: list[tuple[int, ...]] = [() for _ in range(inputs)]
        self.excuse()

    def excuse(self) -> None:
        """What is due now may be late."""
        self._excused = self._world.ticks + 2

    def see(self, before: Outage) -> None:
        """A tick has been published."""
        now = self._world.outage
        if (before.forks and not now.forks) or any(fork.bound is None for fork in now.forks):
            self.excuse()

    def check(self) -> None:
        """What must be in a result now is (4)."""
        self._look()
        world = self._world
        if not world.promises or world.ticks <= self._excused or not (world.is_fast or world.outage.forks):
            return
        for number in range(len(world.inputs)):
            if not self._is_missing(number) and number not in self._world.unreachable:
                for p in range(world.partitions):
                    self._check_in_time(number, p)

    def _look(self) -> None:
        for number, log in enumerate(self._world.inputs):
            if number in self._world.unreachable:
                continue
            _note(self._seen[number], log.state.boundary, self._world.ticks)
            guessed, undone = self._source.guessed(number)
            if guessed is None or undone != self._undone[number]:
                self._guessed[number], self._undone[number] = [], undone
            _note(self._guessed[number], guessed, self._world.ticks)

    def _is_missing(self, number: int) -> bool:
        """Whether tuples of others have waited for an input, as far as it is to be read or guessed."""
        if self._source.guessed(number)[0] is None and not self._guessed[number]:
            return number in self._world.outage.missing
        reach = max(boundary for boundary, _ in (*self._seen[number], *self._guessed[number], (-1, 0)))
        numbers = (i for i in range(len(self._seen)) if i != number)
        others = [own for i in numbers for own in (self._seen[i], self._guessed[i])]
        ticks, bound = self._world.ticks, self._world.bound
        return any(boundary > reach and ticks - at >= bound for own in others for boundary, at in own)

    def _check_in_time(self, number: int, p: int) -> None:
        fork = self._forks.forks[p]
        if self._world.outage.forks and fork is None:
            return
        held = set(fork or ())
        ticks, bound = self._world.ticks, self._world.bound
        for seen, is_guessed in ((self._seen[number], False), (self._guessed[number], True)):
            due = max((boundary for boundary, at in seen if ticks - at > bound), default=None)
            for one in self._forks.waiting(p, due):
                is_due = one.input == number and self._source.is_guess(p, one) == is_guessed
                require(not is_due or one in held, one, "is late, in partition", p, self._world.outage)


def _note(seen: list[tuple[int, int]], boundary: int | None, tick: int) -> None:
    """Notes a boundary that is new."""
    if boundary is not None and (not seen or boundary > seen[-1][0]):
        seen.append((boundary, tick))
