"""A stream of items that is written without Spark, in as many batches as a measurement wants."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from strandline.clock import SYSTEM_CLOCK, Clock
from strandline.log.storage.storage import Storage
from strandline.log.stream.append_commit import Append
from strandline.log.stream.block import Block, describe, encode_parts
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.spec import StreamSpec
from strandline.schema_text import struct_json

PARTITIONS = 2
TYPES = {"item_id": "long", "item_price": "double", "item_time": "long"}


def new_stream(storage: Storage, clock: Clock = SYSTEM_CLOCK) -> Log:
    """Creates a stream of items without tuples."""
    spec = StreamSpec("aging", struct_json(TYPES.items()), ("item_id",), "item_time", PARTITIONS, lateness=None)
    return Log.create(storage, spec, clock)


def append_batch(log: Log, number: int, tuples: int) -> None:
    """Appends a batch of so many tuples a partition; `number` says how many such batches came before."""
    log.append(Append([_block(log, p, number, number * tuples, tuples) for p in range(PARTITIONS)]))


def _block(log: Log, partition: int, number: int, first: int, tuples: int) -> Block:
    offsets = np.arange(first, first + tuples)
    columns = [
        pa.array(offsets * 2_654_435_761 % 100_003),
        pa.array((offsets * 40_503 % 9_973) / 7.0),
        pa.array(offsets * 10 + partition),
    ]
    data = encode_parts([(Kind.RESULT, columns)], log.spec, first)
    file = log.spec.file(partition, first, f"{number:012d}")
    block = describe(data, log.spec, partition, first, file)
    log.storage.create(file, data)
    return block
