"""The eventual checkpoint: the newest footprint of every open window, read back from the operator's own output."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import CorruptManifestError, KeyMissingError
from strandline.log.block import Block
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
        whole_at = standing.oldest if standing.is_whole else None
        operator.load(_newest_first(log, definition, partition, end - standing.extent, end, whole_at))
    expected = 0 if standing.lets_go else standing.saved if standing.is_whole else standing.open
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
        table = part_of(log, block, (first, end), columns)
        footprints = table.filter(is_footprint(table))
        if whole_at is None:
            yield Saved(table.filter(is_closed(table)), footprints)
        else:
            yield Saved(table.slice(0, 0), footprints.filter(pc.equal(footprints.column(TAKEN_IN), whole_at)))


def part_of(log: Log, block: Block, offsets: tuple[int, int], columns: list[str]) -> pa.Table:
    """Those of a block's tuples that lie between two offsets, wherever they are by now."""
    first, end = max(offsets[0], block.first), min(offsets[1], block.end)
    try:
        return log.read_block(block, columns).slice(first - block.first, end - first)
    except KeyMissingError:  # compacted and collected meanwhile: the same offsets lie elsewhere
        return pa.concat_tables(log.read(block.partition, first, end, columns))
