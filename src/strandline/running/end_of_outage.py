"""The end of an outage for an operator that goes on without a bound: its tentative tuples become void."""

from __future__ import annotations

import uuid

from strandline.log.operator_state.outage import Outage
from strandline.log.storage.storage import Durability
from strandline.log.stream.append_commit import Append, AppendCommit
from strandline.log.stream.control_tuples import control_block
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log


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
