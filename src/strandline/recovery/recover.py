"""Recovery of one partition from the logs alone: load the eventual checkpoint, replay the input since."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from strandline.clock import stopwatch_s
from strandline.errors import CorruptManifestError
from strandline.failpoint import failpoint
from strandline.log.block import Kind
from strandline.log.columns import KIND
from strandline.log.log import Log
from strandline.log.standing import Standing
from strandline.operators import kernel
from strandline.operators.operator import Operator
from strandline.operators.plan import Plan
from strandline.operators.record import INPUT
from strandline.operators.tuples import held_bytes, input_batch
from strandline.recovery import eventual_checkpoint


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a recovery did and what it cost."""

    open_windows: int
    extent: int
    replayed: int
    load_s: float
    replay_s: float


def recover(
    output: Log, input_: Log, plan: Plan, partition: int, standing: Standing, end: int, boundary: int | None
) -> tuple[Operator, Recovery]:
    """The operator as it stood: the output ended at `end` then, its windows were closed up to `boundary`."""
    began_s = stopwatch_s()
    operator = Operator(plan, eventual_checkpoint.load(output, plan, partition, standing, end))
    failpoint("during-recovery")
    loaded_s = stopwatch_s()
    loaded = standing.oldest if standing.mode != "none" else standing.input
    operator.state.arrays.header[INPUT] = loaded
    for table in results_of(input_, plan, partition, loaded, standing.input):
        if standing.mode == "instant":  # windows that opened since have no footprint: the step itself is repeated
            for _ in operator.feed(table, emit=False):
                pass
        else:
            _replay(operator, table)
    if standing.mode == "instant" and boundary is not None and plan.window.has_times:
        operator.close_until(boundary)
    if standing.mode != "none" and operator.state.open_windows != standing.open:
        raise CorruptManifestError(
            f"after replay {operator.state.open_windows} windows are open, the manifest says {standing.open}",
            where=f"{output.storage.url}, partition {partition}",
            todo="run `strandline verify` on the stream and on its input",
        )
    operator.state.arrays.header[INPUT] = standing.input
    done = Recovery(
        operator.state.open_windows,
        standing.extent if standing.mode != "none" else 0,
        standing.input - loaded,
        loaded_s - began_s,
        stopwatch_s() - loaded_s,
    )
    return operator, done


def results_of(log: Log, plan: Plan, partition: int, first: int, end: int) -> Iterator[pa.Table]:
    """The input tuples [first, end), control tuples of the input's own operator left out."""
    if first >= end:
        return
    for table in log.read(partition, first, end, plan.input_columns):
        yield only_results(table)


def only_results(table: pa.Table) -> pa.Table:
    """The table without control tuples."""
    kinds = table.column(KIND)
    highest = pc.max(kinds).as_py()
    return table if not highest else table.filter(pc.equal(kinds, int(Kind.RESULT)))


def _replay(operator: Operator, table: pa.Table) -> None:
    if not table.num_rows:
        return
    plan, state = operator.plan, operator.state
    batch = input_batch(plan, table, held_bytes(state.arrays))
    _, code = plan.replay(plan.window.has_times, plan.is_session, state.arrays, batch, plan.window.size, state.trace)
    if code != kernel.DONE:
        raise CorruptManifestError(
            "an integer sum overflowed in replay, which it did not when it was computed first",
            where=f"input offsets {batch.offsets[0]} to {batch.offsets[-1]}",
            todo="run `strandline verify` on the input",
        )
    if len(plan.bytes_words):
        state.grown = True  # a replay leaves no trace of the windows it touched: look at all of them
        state.keep_bytes(plan.bytes_words, batch)
