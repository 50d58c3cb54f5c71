"""One seed, one run: an operator with a bound over another one, whose inputs fail, and others of its own that do.

Both are as in `availability_world`, each with a bound, a policy, machines and deaths of its own; what must hold of one
must hold of both. Beside that the second may be unable to reach the first one's output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pyarrow as pa

from strandline.log.spec import StreamSpec
from strandline.operators.aggregate import aggregates as agg
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.aggregate.windows import time_window
from strandline.operators.operator import Definition
from strandline.recovery import stream_definition
from tests.operator_streams import PLANS, Row, bits, input_spec, struct
from tests.simulation.availability_world import Violation, World
from tests.simulation.operator_world import small_index, small_state
from tests.simulation.simulated_operators import Expected, Placed, SimulatedAggregate

__all__ = ["Violation", "run"]

FIRST = PLANS["tumbling time"]
TYPES = dict(FIRST.result_columns)
TIME = FIRST.result_time
_TOTALS = {"total": agg.sum("total"), "first": agg.first("first"), "n": agg.count("total")}
SECOND = AggregateDefinition.of(time_window(20), _TOTALS, TYPES, ["s"], TIME)
"""The same kernels as those of the first."""


@dataclass(frozen=True)
class SecondAggregate:
    """An aggregate over the results of another one, and over streams that look like them."""

    definition: AggregateDefinition

    @property
    def inputs(self) -> int:
        return len(self.definition.times)

    def spec_of_input(self, number: int, partitions: int) -> StreamSpec:
        return replace(input_spec(["s"], partitions), schema=struct([*TYPES.items()]), time=TIME)

    def again_over(self, inputs: Sequence[StreamSpec]) -> Definition:
        return self.definition

    def shaped(self, row: Row) -> Row:
        """A tuple of the other inputs."""
        time = row["t"]
        made = {"s": row["s"], TIME: time, "total": row["x"], "first": row["v"], "n": 1}
        return {name: made.get(name, time) for name in TYPES}

    def expected(self, tuples: Placed, boundary: int | None) -> Expected:
        operator = self.definition.fresh("set_aside")
        operator.begin()
        schema = self.spec_of_input(0, 1).arrow.append(pa.field("_offset", pa.int64()))
        rows = [row for _, row in tuples]
        found = list(operator.feed([pa.Table.from_pylist(rows, schema=schema)])) if rows else []
        if boundary is not None and (due := operator.advance(boundary)):
            found.append(due)
        own = stream_definition.output_spec(self.definition, input_spec(["s"])).arrow
        tables = [pa.Table.from_arrays(columns, schema=own) for columns in found]
        return Expected(bits(pa.concat_tables([own.empty_table(), *tables])), [])


def run(seed: int, folder: Path | None = None) -> World:
    """Runs the seed; with a folder, states are real files. Returns the world of the second operator in the end."""
    rng = Random(seed)
    with small_index(Random(seed)), small_state(Random(seed)):
        first = SimulatedAggregate(replace(FIRST, more_times=("t",) * rng.randint(1, 2)), is_compared_with_plain=False)
        upstream = World(rng, first, folder and folder / "first", "first")
        upstream.is_upstream = True
        second = SecondAggregate(replace(SECOND, more_times=(TIME,) * rng.randint(1, 2)))
        world = World(rng, second, folder and folder / "second", "second", upstream)
        with world.named():
            upstream.start_at_last()
            world.run()
            upstream.may_die = False
            upstream.start()
            upstream.check_end()
        return world
