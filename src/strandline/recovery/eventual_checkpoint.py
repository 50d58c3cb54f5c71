"""The eventual checkpoint: the newest footprint of every open window, read back from the operator's own output."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import CorruptManifestError, KeyMissingError
from strandline.log.kinds import is_closed, is_footprint
from strandline.log.log import Log
from strandline.log.standing import Standing
from strandline.operators.operator import TAKEN_IN, Definition, OnError, Operator, Saved
from strandline.wording import plural


def load(
    log: Log, definition: Definition, partition: int, standing: Standing, end: int, on_error: OnError = "stop"
) -> Operator:
    """The operator with the windows open at this standing, each as its newest footprint has it.

    Windows that are got back by a replay need not be among them. The output ended at `end` then. Raises
    CorruptManifestError if the footprints are not those that the standing says.
    """
    operator = definition.fresh(on_error)
    if not standing.lets_go and standing.extent:
        whole_at = standing.oldest if standing.mode == "instant" else None
        operator.load(_newest_first(log, definition, partition, end - standing.extent, end, whole_at))
    expected = {"eventual": standing.open, "instant": standing.saved, "none": 0}[standing.mode]
    # What can be replayed has no footprint, and a footprint says nothing of its end: only after the replay is it all.
    is_known_later = definition.replays_windows and standing.mode == "eventual"
    if operator.open_windows != expected and not is_known_later:
        raise CorruptManifestError(
            f"the last {plural(standing.extent, 'tuple')} hold footprints of "
            f"{plural(operator.open_windows, 'open window')}, the manifest says {expected}",
            where=f"{log.storage.url}, partition {partition}, offsets {end - standing.extent} to {end - 1}",
            todo="run `strandline verify` on the stream",
        )
    return operator


def _newest_first(
    log: Log, definition: Definition, partition: int, first: int, end: int, whole_at: int | None
) -> Iterator[Saved]:
    log.require_kept(partition, first)
    columns = list(definition.loads)
    for block in reversed(list(log.blocks(partition, first, end))):
        begin, until = max(first, block.first), min(end, block.end)
        try:
            table = log.read_block(block, columns).slice(begin - block.first, until - begin)
        except KeyMissingError:  # compacted and collected meanwhile: the same offsets lie elsewhere
            table = pa.concat_tables(log.read(partition, begin, until, columns))
        footprints = table.filter(is_footprint(table))
        if whole_at is None:
            yield Saved(table.filter(is_closed(table)), footprints)
        else:
            yield Saved(table.slice(0, 0), footprints.filter(pc.equal(footprints.column(TAKEN_IN), whole_at)))
