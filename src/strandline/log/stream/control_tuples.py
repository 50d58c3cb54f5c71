"""Blocks of nothing but control tuples without a state: undo, and reconciliation done. A driver writes them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from strandline.log.storage.storage import create_once
from strandline.log.stream.block import Block
from strandline.log.stream.block_sequence import BlockSequence
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.units import END_OF_TIME


def control_block(log: Log, partition: int, first: int, kinds: Sequence[Kind], unique: str) -> Block:
    """Writes a block with one tuple of each kind from offset `first` on, and does not publish it.

    Their time is the stable boundary, 0 if there is none: a tuple must have one. All else is null.
    """
    known = log.state.boundaries[partition]
    time = pa.array([0 if known is None or known == END_OF_TIME else known], pa.int64())
    columns = [time.cast(f.type) if f.name == log.spec.time else pa.nulls(1, f.type) for f in log.spec.arrow]
    sequence = BlockSequence(log.spec, partition, first, unique, partial(create_once, log.storage))
    (block,) = sequence.write((kind, columns) for kind in kinds)
    return block
