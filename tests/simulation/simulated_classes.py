"""Users' classes in the simulation: one that learns and raises now and then, one that waits for time to pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from random import Random

import pyarrow as pa

from strandline.inputs import stream_definition
from strandline.log.stream.spec import StreamSpec
from strandline.operators.partition_wide.definition import PartitionWideDefinition
from tests.simulation.simulated_operators import Expected, Placed
from tests.support.operator_streams import bits, input_spec, rows_table
from tests.support.user_operators import Running, Sorted, definition, is_poison

POISON = 20


@dataclass(frozen=True)
class SimulatedClass:
    """A class over one stream, or over the union of several. Its specification is an object of it, fed in one go."""

    waits: bool
    inputs: int
    rows_max: int

    @property
    def definition(self) -> PartitionWideDefinition:
        return _definition(self)

    def spec_of_input(self, number: int, partitions: int) -> StreamSpec:
        return input_spec(["k"], partitions)

    def again_over(self, inputs: Sequence[StreamSpec]) -> PartitionWideDefinition:
        return self.definition

    @cached_property
    def _schema(self) -> pa.Schema:
        return stream_definition.output_spec(self.definition, self.spec_of_input(0, 1)).arrow

    def expected(self, tuples: Placed, boundary: int | None) -> Expected:
        schema = self._schema
        live = Sorted() if self.waits else Running()
        rows = [row for _, row in tuples]
        kept = [row for row in rows if self.waits or not is_poison(row, POISON)]
        found = [live.process(rows_table(kept))] if kept else []
        if kept and isinstance(live, Sorted) and boundary is not None:
            found.append(live.advance(boundary))
        results = pa.concat_tables([schema.empty_table(), *(t.cast(schema) for t in found if t is not None)])
        aside = [{"_input": row["_offset"]} for row in rows if not self.waits and is_poison(row, POISON)]
        return Expected(bits(results), aside)


@cache
def _definition(of: SimulatedClass) -> PartitionWideDefinition:
    made = definition(Sorted() if of.waits else Running(poison=POISON), of.inputs)
    return replace(made, rows_max=of.rows_max)


def some_class(rng: Random) -> SimulatedClass:
    """One of the classes, over one stream or several."""
    return SimulatedClass(rng.random() < 0.4, rng.choice([1, 1, 2, 3]), rng.choice([3, 17, 1 << 17]))
