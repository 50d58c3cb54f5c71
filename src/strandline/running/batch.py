"""The blocks and commits that a driver makes by itself: tuples that steps have set aside, the end of an outage."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa

from strandline.control_columns import KIND, OFFSET
from strandline.log.operator_state.outage import Outage
from strandline.log.storage.storage import Durability, create_once
from strandline.log.stream.append_commit import Append, AppendCommit
from strandline.log.stream.block import Block
from strandline.log.stream.block_sequence import BlockSequence, control_block
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState
from strandline.running.step import Done


def end_outage(output: Log, durability: Durability = "fsync") -> AppendCommit | None:
    """Publishes that the operator is STABLE and no tentative tuple counts; returns None if it is so already.

    The append speaks for the batch before it. Corrections follow later, when the inputs are there.
    """
    state = output.state
    if state.outage is None or state.outage.state == "STABLE":
        return None
    blocks, standings, name = [], list(state.standings), uuid.uuid4().hex
    for p, fork in enumerate(state.outage.forks):
        if fork.tuples:
            blocks.append(control_block(output, p, state.ends[p], [Kind.UNDO], f"{name}-undo-{p}"))
            standings[p] = standings[p].behind(1)
    batch = Append(
        blocks,
        writer=state.writer,
        source=state.source,
        standings=standings,
        boundaries=state.boundaries,
        revised=state.revised,
        outage=Outage("STABLE", output.clock.now_us()),
        durability=durability,
    )
    return output.append(batch, state)


_PADDED_ROWS = 1 << 14
"""The greatest number of set-aside tuples that get their missing columns at once."""


def set_aside(output: Log, base: LogState, done: Sequence[Done]) -> Iterator[Block]:
    """Writes the tuples that the steps set aside. All partitions share one side log, so this assigns offsets."""
    spec, create = output.spec, partial(create_once, output.storage)
    first, schema = base.ends[spec.late], pa.schema([f for f in spec.block if f.name not in (OFFSET, KIND)])
    for reason in sorted({reason for d in done for reason in d.aside}):
        tables = [table for d in done for table in d.aside.get(reason, ())]
        parts = ((Kind.RESULT, columns) for table in tables for columns in _padded(table, schema))
        unique = next(d.standing.attempt for d in done if reason in d.aside)
        for block in BlockSequence(spec, spec.late, first, unique, create, reason=reason).write(parts):
            yield block
            first = block.end


def _padded(table: pa.Table, schema: pa.Schema) -> Iterator[list[pa.Array]]:
    """Yields the columns of the schema, some tuples at a time; columns that the table does not have are null."""
    known = set(table.column_names)
    for batch in table.to_batches(max_chunksize=_PADDED_ROWS):
        yield [batch.column(f.name).cast(f.type) if f.name in known else pa.nulls(len(batch), f.type) for f in schema]
