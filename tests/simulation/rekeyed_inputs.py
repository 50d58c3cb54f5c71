"""An operator that gives the results of another one another key: its inputs are the partitions of that one's output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.control_columns import KIND
from strandline.log.operator_state.guesses import guessed_until, guesses_of, undone_until
from strandline.log.stream.column_types import fields_of, type_name
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.partition_view import PartitionView, partition_views
from strandline.log.stream.spec import StreamSpec
from strandline.operators.stateless.rekey_definition import RekeyDefinition
from strandline.testing.spark_placement import partition_of
from tests.simulation.failing_inputs import FailingInputs, Place
from tests.simulation.machines import Folder
from tests.simulation.simulated_operators import Expected, Placed
from tests.support.operator_streams import COLUMNS, Row, bits

if TYPE_CHECKING:
    from tests.simulation.availability_world import World

MINE = "_mine"
"""Of a tuple as a partition takes it in: whether its key belongs there."""


def like(log: Log, whole: Log) -> Log:
    """A handle of another process on the same: on the same partition, if it is a view of one."""
    return PartitionView(whole, log.number, log.readers) if isinstance(log, PartitionView) else whole


@dataclass(frozen=True)
class SimulatedRekey:
    """Another key for the results of an operator that look like tuples."""

    first: StreamSpec
    """Those results, with their partitions."""
    key: tuple[str, ...]
    partitions: int

    @property
    def inputs(self) -> int:
        return self.first.partitions

    def spec_of_input(self, number: int, partitions: int) -> StreamSpec:
        return self.first

    @cached_property
    def definition(self) -> RekeyDefinition:
        return self.again_over([self.first])

    def again_over(self, inputs: Sequence[StreamSpec]) -> RekeyDefinition:
        kinds = {f["name"]: f["type"] for f in fields_of(self.first.schema)}
        return RekeyDefinition(
            output=tuple((name, kind) for name, kind in kinds.items() if name in (*COLUMNS, self.first.time)),
            key=tuple((name, type_name(kinds[name])) for name in self.key),
            time=(self.first.time, "long"),
            more_times=(self.first.time,) * (self.inputs - 1),
            partitions=self.partitions,
        )

    def expected(self, tuples: Placed, boundary: int | None) -> Expected:
        schema = self.definition.output_schema
        found = [{name: row[name] for name in schema.names} for _, row in tuples if row[MINE]]
        return Expected(bits(pa.Table.from_pylist(found, schema=schema)), [], [])


def some_rekey(rng: Random, first: StreamSpec, partitions: int) -> SimulatedRekey:
    """Any key but that of the results."""
    return SimulatedRekey(first, rng.choice([key for key in (("k",), ("s",)) if key != first.key]), partitions)


class RekeyedInputs:
    """As `ChainedInputs`, of an operator whose inputs are all partitions of another one's results."""

    def __init__(self, rng: Random, operator: SimulatedRekey, upstream: World) -> None:
        self._operator = operator
        self._upstream = upstream
        self._rng = rng
        self._time = operator.first.time
        self._first = Log.open(Folder(upstream.faulty.other_process(), upstream.name), upstream.clock)
        self.logs = partition_views(self._first, operator.partitions)
        """As somebody has them to whom nothing happens."""
        self._rows: list[list[Row]] = [[] for _ in self.logs]
        """Per partition of the results all tuples of all kinds, by offset."""
        self._cut_off_until = 0
        self.network = upstream.source.network
        self.many = operator.inputs
        self.are_alike = upstream.source.are_alike
        """Whether none of them is always behind the others."""
        self.guesses = 0
        """Tentative tuples that were ever there."""

    @property
    def root(self) -> FailingInputs:
        """The inputs of the first operator."""
        return self._upstream.source.root

    def tick(self, number: int, *, may_fail: bool) -> None:
        """Time goes on for the operator upstream."""
        name, rng = self._upstream.name, self._rng
        if name in self.network.cut_off:
            if number >= self._cut_off_until or not may_fail:
                self.network.cut_off.discard(name)
        elif may_fail and rng.random() < 0.02:
            self.network.cut_off.add(name)
            self._cut_off_until = number + rng.choice([1, 3, 8, 20])
        self._upstream.live_on(may_fail=may_fail, feeds=True)
        self._look()

    def begin(self, ticks: int) -> None:
        """The streams before the operator upstream have been there for so long."""
        self._upstream.source.begin(ticks)

    def pass_time(self) -> None:
        """Nothing is made, and the operator upstream goes on."""
        self._upstream.live_on(may_fail=False, feeds=False)
        self._look()

    def _look(self) -> None:
        self._first.refresh()
        for p, own in enumerate(self._rows):
            for table in self._first.read(p, len(own), columns=list(self._first.spec.columns)):
                rows = table.to_pylist()
                own.extend(rows)
                self.guesses += sum(row[KIND] == Kind.TENTATIVE for row in rows)

    def finish(self) -> None:
        """Nothing will follow."""
        self._upstream.source.finish()

    @property
    def unreachable(self) -> frozenset[int]:
        """The inputs that cannot be read: all, or none."""
        return frozenset(range(self.many)) if self._upstream.name in self.network.cut_off else frozenset()

    def guessed(self, number: int) -> tuple[int | None, tuple[int, ...]]:
        """The boundary of an input's guesses, and where its last undo is."""
        state = self.logs[number].state
        return guessed_until(state), undone_until(state)

    def is_guess(self, partition: int, place: Place) -> bool:
        """Whether a tuple is tentative."""
        return bool(self._rows[place.input][place.offset][KIND] == Kind.TENTATIVE)

    def there(self, partition: int, since: int | None, until: int | None, without: frozenset[int]) -> list[Place]:
        """The tuples of all partitions that can be read and count with a time in [since, until), in their order."""
        found = []
        for number in range(self.many) if until is not None else ():
            guesses = guesses_of(self._first, number)
            for offset, row in enumerate(self._rows[number] if number not in without else ()):
                time = row[self._time]
                is_guess = row[KIND] == Kind.TENTATIVE and guesses is not None and guesses.first <= offset
                counts = is_guess and (guesses is None or guesses.since is None or time >= guesses.since)
                is_in_time = until is not None and time < until and (since is None or time >= since)
                if (row[KIND] == Kind.RESULT or counts) and is_in_time:
                    found.append(Place(time, number, offset))
        return sorted(found)

    def placed(self, partition: int, places: Sequence[Place]) -> Placed:
        """These tuples as a partition takes them in."""
        kinds, many = [kind for _, kind in self._operator.definition.key], self._operator.partitions
        found = []
        for m, at in enumerate(places):
            row = self._rows[at.input][at.offset]
            is_mine = partition_of([row[name] for name in self._operator.key], kinds, many) == partition
            found.append((at.input, {**row, "_offset": m, MINE: is_mine}))
        return found
