"""The eventual checkpoint: the newest footprint of every open window, read back from the operator's own output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.control_columns import OFFSET
from strandline.errors import CorruptBlockError, CorruptManifestError, KeyMissingError
from strandline.log.operator_state.standing import Standing
from strandline.log.stream.block import Block
from strandline.log.stream.kinds import is_closed, is_footprint
from strandline.log.stream.log import Log
from strandline.operators.operator import TAKEN_IN, Definition, OnError, Operator, Saved
from strandline.operators.unsound_footprint import UnsoundFootprintError, require_sound, require_values
from strandline.wording import plural


def load(
    log: Log, definition: Definition, partition: int, standing: Standing, end: int, on_error: OnError = "stop"
) -> Operator:
    """Returns the operator with the windows open at this standing, each as in its newest footprint.

    Windows that are got back by a replay need not be among them. The output ended at `end` then. Raises
    CorruptManifestError if the footprints are not those that the standing says, CorruptBlockError if one of them holds
    what no operator can have saved.
    """
    operator = definition.fresh(on_error)
    if not standing.lets_go and standing.extent:
        whole_at = standing.oldest if standing.is_whole else None
        load_into(operator, log, partition, _newest_first(log, definition, partition, standing, end, whole_at))
    expected = 0 if standing.lets_go else standing.saved if standing.is_whole else standing.open
    # What can be replayed has no footprint, and a footprint says nothing of its end: only after the replay is it all.
    is_known_later = definition.replays_windows and standing.mode == "eventual"
    if operator.open_windows != expected and not is_known_later:
        raise CorruptManifestError(
            f"the last {plural(standing.extent, 'tuple')} hold footprints of "
            f"{plural(operator.open_windows, 'open window')}, the manifest says {expected}",
            where=f"{log.storage.url}, partition {partition}, offsets {end - standing.extent} to {end - 1}",
            stream=log.storage.url,
            todo="run `strandline verify` on the stream",
        )
    return operator


def load_into(operator: Operator, log: Log, partition: int, newest_first: Iterable[Saved]) -> None:
    """Loads footprints; raises CorruptBlockError, with the place of the first that no operator can have saved."""
    try:
        operator.load(newest_first)
    except UnsoundFootprintError as problem:
        raise _unsound(log, partition, problem) from None


def require_taken_in(footprints: pa.Table, standing: Standing) -> None:
    """Raises UnsoundFootprintError if a footprint holds input tuples behind those that were taken in."""
    if footprints.num_rows:
        require_values(footprints, [TAKEN_IN])
        taken_in, at = (footprints.column(name).to_numpy() for name in (TAKEN_IN, OFFSET))
        require_sound((taken_in >= 0) & (taken_in <= standing.input), "it holds input that was not taken in yet", at)


def _unsound(log: Log, partition: int, problem: UnsoundFootprintError) -> CorruptBlockError:
    offset = problem.offset
    files = [block.file for block in log.blocks(partition, offset, offset + 1)]
    found = CorruptBlockError(
        f"a footprint holds what no operator can have saved: {problem.what}",
        where=f"{'/'.join([log.storage.url, *files[:1]])}, partition {partition}, offset {offset}",
        stream=log.storage.url,
        todo="restore this file from a copy; if it is as it was published, do not trust the program that wrote it. "
        "A recovery begins with an older checkpoint, if the inputs hold what came since",
    )
    found.offsets = offset, offset + 1
    return found


def _newest_first(
    log: Log, definition: Definition, partition: int, standing: Standing, end: int, whole_at: int | None
) -> Iterator[Saved]:
    first = end - standing.extent
    log.require_kept(partition, first)
    columns = list(definition.loads)
    for block in reversed(list(log.blocks(partition, first, end))):
        table = part_of(log, block, (first, end), columns)
        footprints = table.filter(is_footprint(table))
        require_taken_in(footprints, standing)
        if whole_at is None:
            yield Saved(table.filter(is_closed(table)), footprints)
        else:
            yield Saved(table.slice(0, 0), footprints.filter(pc.equal(footprints.column(TAKEN_IN), whole_at)))


def part_of(log: Log, block: Block, offsets: tuple[int, int], columns: list[str]) -> pa.Table:
    """Returns the tuples of a block between two offsets, wherever they are by now."""
    first, end = max(offsets[0], block.first), min(offsets[1], block.end)
    try:
        table = log.read_block(block, columns).slice(first - block.first, end - first)
    except KeyMissingError:  # compacted and collected meanwhile: the same offsets lie elsewhere
        table = pa.concat_tables(log.read(block.partition, first, end, columns))
    if not np.array_equal(table.column(OFFSET).to_numpy(), np.arange(first, end)):
        raise _unsound(log, block.partition, UnsoundFootprintError("the tuples have other offsets", first))
    return table
