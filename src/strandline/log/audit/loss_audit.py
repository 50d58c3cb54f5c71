"""Checks that all losses of an operator are still on record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strandline.log.audit.problem import Problem
from strandline.log.operator_state import loss_record
from strandline.log.operator_state.standing import Standing
from strandline.log.storage.storage import Storage


def forgotten(storage: Storage, standings: Sequence[Standing]) -> Iterator[Problem]:
    """Yields partitions whose record of losses cannot be read, or has others than the standing counts."""
    for partition, standing in enumerate(standings):
        losses = standing.losses
        if losses is None:
            continue
        found = loss_record.on_record(storage, losses)
        if found.count or found.unreadable:
            what = found.why or f"{len(found.losses):,} of {losses.count:,} losses are on record"
            todo = "restore the folder losses/ from a copy of the stream; results and recovery do not depend on it"
            yield Problem("operator", what, found.unreadable or losses.record, partition, todo=todo)
