"""The inputs of an operator over another one: the output of that, and others that fail by themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

from strandline.control_columns import KIND
from strandline.log.operator_state.guesses import guessed_until, guesses_of, undone_until
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.spec import StreamSpec
from tests.simulation.failing_inputs import FailingInputs, Place
from tests.simulation.machines import Folder
from tests.simulation.simulated_operators import Placed, SimulatedOperator
from tests.support.operator_streams import Row

if TYPE_CHECKING:
    from tests.simulation.availability_world import World


class ChainedInputs:
    """As `FailingInputs`; the first input has results, guesses and undos, for it is an operator itself."""

    def __init__(
        self, rng: Random, operator: SimulatedOperator, upstream: World, create: Callable[[StreamSpec], Log]
    ) -> None:
        self.root = upstream.source.root
        self._rng = rng
        self._upstream = upstream
        self._time = operator.definition.times[0]
        self._first = Log.open(Folder(upstream.faulty.other_process(), upstream.name), upstream.clock)
        name = f"beside-{upstream.name}"
        self._others = FailingInputs(rng, operator, upstream.partitions, create, None, self.root, name)
        self._rows: list[list[Row]] = [[] for _ in range(upstream.partitions)]
        """Of the first input, per partition all tuples of all kinds, by offset."""
        self._cut_off_until = 0
        self.network = self._others.network
        self.many = operator.inputs
        lags = upstream.operator.definition.result_boundary(1_000, 0) != 1_000
        self.are_alike = upstream.source.are_alike and not lags
        """Whether none of them is always behind the others."""
        self.guesses = 0
        """Tentative tuples that were ever there."""

    @property
    def logs(self) -> tuple[Log, ...]:
        """As somebody has them to whom nothing happens."""
        return (self._first, *self._others.logs)

    def tick(self, number: int, *, may_fail: bool) -> None:
        """Time goes on for the operator upstream, and for the other inputs."""
        root, others = self.root, self._others
        self._fail_or_heal(number, may_fail)
        others.now = root.now = max(others.now, root.now)
        self._upstream.live_on(may_fail=may_fail, feeds=True)
        others.tick(number, may_fail=may_fail)
        self._look()

    def begin(self, ticks: int) -> None:
        """The streams beside operators have been there for so long when these begin."""
        self._upstream.source.begin(ticks)
        self._others.now = self.root.now = max(self._others.now, self.root.now)
        self._others.begin(ticks)

    def pass_time(self) -> None:
        """Only the operator upstream goes on."""
        self._upstream.live_on(may_fail=False, feeds=False)
        self._look()

    def _fail_or_heal(self, number: int, may_fail: bool) -> None:
        name, rng = self._upstream.name, self._rng
        if name in self.network.cut_off:
            if number >= self._cut_off_until or not may_fail:
                self.network.cut_off.discard(name)
        elif may_fail and rng.random() < 0.02:
            self.network.cut_off.add(name)
            self._cut_off_until = number + rng.choice([1, 3, 8, 20])

    def _look(self) -> None:
        log = self._first
        log.refresh()
        for p, own in enumerate(self._rows):
            for table in log.read(p, len(own), columns=list(log.spec.columns)):
                rows = table.to_pylist()
                own.extend(rows)
                self.guesses += sum(row[KIND] == Kind.TENTATIVE for row in rows)

    def finish(self) -> None:
        """Nothing will follow."""
        self._upstream.source.finish()
        self._others.finish()

    @property
    def unreachable(self) -> frozenset[int]:
        """The inputs that cannot be read."""
        is_cut_off = self._upstream.name in self.network.cut_off
        return self._others.unreachable | ({0} if is_cut_off else frozenset())

    def guessed(self, number: int) -> tuple[int | None, tuple[int, ...]]:
        """The boundary of an input's guesses, and where its last undo is."""
        return (None, ()) if number else (guessed_until(self._first.state), undone_until(self._first.state))

    def is_guess(self, partition: int, place: Place) -> bool:
        """Whether a tuple is tentative."""
        return not place.input and self._rows[partition][place.offset][KIND] == Kind.TENTATIVE

    def there(self, partition: int, since: int | None, until: int | None, without: frozenset[int]) -> list[Place]:
        """The tuples that can be read and count with a time in [since, until), in the serialised order."""
        found = self._others.there(partition, since, until, without)
        if until is None or 0 in without:
            return found
        guesses = guesses_of(self._first, partition)
        for offset, row in enumerate(self._rows[partition]):
            time = row[self._time]
            is_guess = row[KIND] == Kind.TENTATIVE and guesses is not None and guesses.first <= offset
            counts = is_guess and (guesses is None or guesses.since is None or time >= guesses.since)
            if (row[KIND] == Kind.RESULT or counts) and time < until and (since is None or time >= since):
                found.append(Place(time, 0, offset))
        return sorted(found)

    def placed(self, partition: int, places: Sequence[Place]) -> Placed:
        """These tuples as an operator takes them in."""
        return [(at.input, {**self._row(partition, at), "_offset": m}) for m, at in enumerate(places)]

    def _row(self, partition: int, place: Place) -> Row:
        return self._others.row(partition, place) if place.input else self._rows[partition][place.offset]
