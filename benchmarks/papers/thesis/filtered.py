"""The thesis's workload of chapter 3 without Spark: tuples of some size, which a filter looks at and passes on.

Source, filter and receiver stand between logs of one partition, in any storage. The filter is the library's stateless
operator: it decodes a block, looks at an integer field of each tuple, encodes and publishes what is left, which is all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import strandline as sl
from benchmarks.averages import COLUMNS
from strandline.clock import SYSTEM_CLOCK
from strandline.inputs.stream_definition import output_spec
from strandline.log.operator_state.upstream import Origin, upstream_of
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.storage.storage import Durability, Storage
from strandline.log.stream import block as blocks_
from strandline.log.stream.append_commit import Append
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.stream.spec import StreamSpec
from strandline.operators.expressions.shape import AS_IS
from strandline.operators.stateless.definition import StatelessDefinition
from strandline.running import step as steps
from strandline.running.element import Element
from strandline.running.state.state_cache import StateCache
from strandline.running.step import Done, Logs, Step
from strandline.running.tick import run_batch

BLOCK = 184
"""Tuples of a block: what Borealis wrote at once, whatever their size (3.3.2)."""
SIZES_BYTES = (256, 1024, 4096)
_FIXED_BYTES = 28
"""Three numbers of a tuple, and the length of its text."""
_POOL = 2 * BLOCK
_SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in {**COLUMNS, "payload": "string"}.items()
    ],
}
_POLICY = sl.cec()
_SPEC = StreamSpec(id="items", schema=_SCHEMA, key=("item_id",), time="item_time", partitions=1, lateness=0)


@cache
def _definition() -> StatelessDefinition:
    """Returns the filter. It is made late: Arrow starts threads for it, and processes are forked before that."""
    shape = AS_IS.where(pc.field("item_id") >= 0, _SPEC.arrow)
    columns = (*COLUMNS.items(), ("payload", "string"))
    return StatelessDefinition(columns, (("item_id", "long"),), ("item_time", "long"), shape=shape)


class Tuples:
    """Tuples of one size, as many as are asked for, from a pool that is made before anything is measured."""

    def __init__(self, tuple_bytes: int, seed: int = 1) -> None:
        self.tuple_bytes = tuple_bytes
        rng, width = np.random.default_rng(seed), tuple_bytes - _FIXED_BYTES
        letters = rng.integers(97, 123, size=_POOL * width, dtype=np.uint8)
        ends = np.arange(_POOL + 1, dtype=np.int32) * width
        self._payload = pa.StringArray.from_buffers(_POOL, pa.py_buffer(ends), pa.py_buffer(letters))
        self._ids = pa.array(rng.integers(0, 100_000, _POOL))
        self._prices = pa.array(rng.random(_POOL))

    def columns(self, first: int, many: int) -> list[pa.Array]:
        """Returns the columns of these tuples; the time of a tuple is its number."""
        places = pa.array(np.arange(first, first + many) % _POOL)
        times = pa.array(np.arange(first, first + many))
        return [self._ids.take(places), self._prices.take(places), times, self._payload.take(places)]

    def table(self, first: int, many: int) -> pa.Table:
        """Returns the tuples as a table of the stream's schema."""
        return pa.Table.from_arrays(self.columns(first, many), schema=_SPEC.arrow)


def created(storage: Storage) -> Log:
    """Returns the log of the source, in an empty storage."""
    return Log.create(storage, _SPEC)


def publish(log: Log, tuples: Tuples, many: int, durability: Durability = "fsync") -> None:
    """Appends tuples as one block and one commit."""
    first, spec = log.state.ends[0], log.spec
    data = blocks_.encode_parts([(Kind.RESULT, tuples.columns(first, many))], spec, first)
    file = spec.file(0, first, "items")
    log.storage.create(file, data)
    log.append(Append([blocks_.describe(data, spec, 0, first, file)], durability=durability))


def passed_on(tuples: Tuples, first: int, many: int) -> int:
    """Does a filter's work without a log: encodes, decodes, filters, encodes, decodes; returns the tuples received.

    The blocks would go over a network from the source to the filter and from there to the receiver.
    """
    sent = blocks_.encode_parts([(Kind.RESULT, tuples.columns(first, many))], _SPEC, first)
    taken = _definition().own_shaping.over(blocks_.decode(sent, _SPEC, first, _SPEC.arrow.names))
    columns = [taken.column(name).combine_chunks() for name in _SPEC.arrow.names]
    again = blocks_.encode_parts([(Kind.RESULT, columns)], _SPEC, first)
    return int(blocks_.decode(again, _SPEC, first).num_rows)


class Filter:
    """The filter between its input's log and a log of its own."""

    def __init__(
        self,
        items: Log,
        storage: Storage,
        cache: Path,
        durability: Durability = "fsync",
    ) -> None:
        upstream = upstream_of([Origin(items.spec.id, items.storage.url)])
        spec = replace(output_spec(_definition(), items.spec), id=f"{items.spec.id}-filtered", upstream=upstream)
        self.log = Log.create(storage, spec)
        self._items = items
        self._cache = StateCache(cache)
        self._element = Element(_definition(), _POLICY, durability=durability)

    def step(self, tuples_max: int = BLOCK) -> int:
        """Takes in the next commits of the input, about `tuples_max` tuples, publishes them; returns their number."""
        self._items.refresh()
        writer = Writer("bench", "bench", self.log.state.seq + 1)
        element = replace(self._element, tuples_max=tuples_max)
        done = run_batch(element, (self._items,), self.log, self._run, writer, SYSTEM_CLOCK)
        return done[0].results if done else 0

    def _run(self, todo: Sequence[Step]) -> list[Done]:
        logs = Logs(self.log, (self._items,))
        return [steps.run(step, self._element, logs, self._cache, SYSTEM_CLOCK) for step in todo]


class Receiver:
    """The receiver at the end: reads what is new, in order."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.received = 0

    def take(self) -> int:
        """Reads the tuples published since; returns how many. Raises if one is missing or there twice."""
        before = self.received
        for table in self._log.read(0, before):
            times = table.column("item_time").to_numpy()
            if not np.array_equal(times, np.arange(self.received, self.received + len(times))):
                raise AssertionError(f"tuples are missing or there twice after {self.received:,}")
            self.received += len(times)
        return self.received - before


@dataclass(frozen=True)
class Used:
    """Seconds on the clock and of the processor."""

    seconds: float
    """Without the time in which this thread could have worked and another program had its core."""
    cpu_s: float


class Stopwatch:
    """Takes the time of a piece of work of this thread."""

    def __init__(self) -> None:
        self._began, self._cpu_s, self._waited_s = time.perf_counter(), time.thread_time(), _waited_s()

    def read(self) -> Used:
        """Returns what was used since."""
        waited_s = _waited_s() - self._waited_s
        return Used(time.perf_counter() - self._began - waited_s, time.thread_time() - self._cpu_s)


def _waited_s() -> float:
    """Returns how long this thread has waited for a core; Linux says so, elsewhere it is 0."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def mb_per_s(tuples: int, tuple_bytes: int, seconds: float) -> float:
    """Returns a throughput."""
    return round(tuples * tuple_bytes / seconds / 1e6, 2)


class WithoutNames(LocalStorage):
    """Storage that syncs data but not the folders that name it: the thesis's asynchronous updates of metadata."""

    def _sync_folder_of(self, path: str) -> None:
        """Leaves the names to the operating system."""

    def settle(self, prefix: str) -> None:
        """Leaves the names to the operating system."""
