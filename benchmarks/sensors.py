"""The DPC paper's setting (5): streams of sensors that go by the clock on the wall, one of which may be cut off.

A tuple's time is that at which it came into being. Every `WRITE_S` what came meanwhile is published in each stream,
with a boundary behind it. A stream that is cut off goes on being made: when it is back, all that was missing is
published at once. Tuples are numbered over all streams, so that whoever finds one in a result knows when it was
published.

The operator over their union is the paper's join: a tuple meets the last one of its sensor, whatever stream that came
by. With 100 sensors that is a state of 100 tuples, and as many results as tuples. It is a keyed function, because
`join` has two sides; its results are like the streams, so that operators stand in a chain.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import strandline as sl
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.storage.storage import Durability
from strandline.log.stream import block as blocks_
from strandline.log.stream import quiet
from strandline.log.stream.append_commit import Append
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.spec import StreamSpec
from strandline.operators.keyed.definition import KeyedDefinition
from strandline.operators.one_table import GivenInput

WRITE_S = 0.2
COLUMNS = {"sensor": "long", "time": "timestamp", "number": "long", "value": "double"}
SENSORS = 100
Numbers = npt.NDArray[np.int64]


@sl.keyed(state="number long, value double", output="number long, value double, met long")
def meets(state: Any, row: Any, out: Any) -> int:
    """Every tuple with the last one of its sensor."""
    out.number = row.number
    out.met = -1 if state.is_new else state.number
    out.value = row.value if state.is_new else (row.value + state.value) / 2
    state.number = row.number
    state.value = row.value
    return sl.EMIT


def join_of(inputs: int) -> KeyedDefinition:
    """The paper's join over the union of so many streams."""
    return KeyedDefinition.of(meets, GivenInput(COLUMNS, ("sensor",), "time", 0), ("time",) * (inputs - 1))


class Sensors:
    """Several streams, written by whoever calls `write`."""

    def __init__(
        self,
        folder: Path,
        streams: int,
        tuples_per_s: int,
        *,
        sensors: int = SENSORS,
        partitions: int = 1,
        pieces: bool = False,
        durability: Durability = "os",
        write_s: float = WRITE_S,
        seed: int = 5,
    ) -> None:
        """`pieces`: what was held back is published in as many blocks as it would have been without that.

        `write_s` is how far the moments of `write` lie apart.
        """
        self.paths = [folder / f"sensors{number}" for number in range(streams)]
        self._pieces = pieces
        self._durability = durability
        self.logs = [self._created(path, partitions) for path in self.paths]
        self._per_write = round(tuples_per_s * write_s / streams)
        self._sensors = sensors
        self._rng = np.random.default_rng(seed)
        self._waiting: list[list[pa.Table]] = [[] for _ in self.logs]
        """Of each stream what has come into being and is not published."""
        self._numbers = 0
        self._published: list[tuple[Numbers, int, bool]] = []
        self._until_us: int | None = None

    def _created(self, path: Path, partitions: int) -> Log:
        fields = [{"name": n, "type": kind, "nullable": True, "metadata": {}} for n, kind in COLUMNS.items()]
        spec = StreamSpec(
            id=f"{path.name}-{uuid.uuid4().hex}",  # the next one at this path is another, as in life
            schema={"type": "struct", "fields": fields},
            key=("sensor",),
            time="time",
            partitions=partitions,
            lateness=0,
        )
        return Log.create(LocalStorage(path, durability=self._durability), spec)

    def write(self, until_us: int, cut_off: Sequence[int] = ()) -> None:
        """Tuples with times up to `until_us` come into being, and are published where a stream is not cut off."""
        since_us, self._until_us = self._until_us, until_us
        if since_us is None:
            return
        for number, waiting in enumerate(self._waiting):
            waiting.append(self._made(since_us, until_us, number))
            if number not in cut_off:
                self._publish(number, until_us)

    def add(self, number: int, tuples: int, until_us: int) -> None:
        """So many more tuples of one stream between its boundary and `until_us`, published at once."""
        boundary = self.logs[number].state.boundary
        self._waiting[number].append(self._made(boundary or 0, until_us, number, tuples))
        self._publish(number, until_us)

    def finish(self) -> None:
        """Nothing will follow."""
        for log in self.logs:
            quiet.finish(log, "bench", self._durability)

    def published_us(self) -> Numbers:
        """By the number of a tuple, when it was published."""
        found = np.zeros(self._numbers, np.int64)
        for numbers, published_us, _ in self._published:
            found[numbers] = published_us
        return found

    def is_new(self) -> npt.NDArray[np.bool_]:
        """By the number of a tuple, whether it was published as soon as it came into being."""
        found = np.zeros(self._numbers, np.bool_)
        for numbers, _, is_new in self._published:
            found[numbers] = is_new
        return found

    def _made(self, since_us: int, until_us: int, stream: int, tuples: int | None = None) -> pa.Table:
        count = self._per_write if tuples is None else tuples
        numbers = np.arange(self._numbers, self._numbers + count)
        self._numbers += count
        # Times of streams differ by a microsecond or more, so that nothing hangs on which of them is which.
        times = since_us + np.linspace(0, until_us - since_us - 1, count, dtype=np.int64)
        return pa.table(
            {
                "sensor": numbers % self._sensors,
                "time": pa.array(times, pa.timestamp("us", tz="UTC")),
                "number": numbers,
                "value": self._rng.random(count),
            }
        )

    def _publish(self, number: int, boundary_us: int) -> None:
        """One commit of all that waits."""
        log, made = self.logs[number], self._waiting[number]
        spec, ends, blocks = log.spec, list(log.state.ends), []
        for table in made if self._pieces else [pa.concat_tables(made)]:
            partition = table.column("sensor").to_numpy() % spec.partitions
            for p in range(spec.partitions):
                mine = table.filter(pa.array(partition == p)).combine_chunks()
                if not len(mine):
                    continue
                data = blocks_.encode_parts([(Kind.RESULT, mine.columns)], spec, ends[p])
                file = spec.file(p, ends[p], f"batch{log.state.seq + 1}")
                log.storage.create(file, data)
                blocks.append(blocks_.describe(data, spec, p, ends[p], file))
                ends[p] += len(mine)
        done = log.append(
            Append(blocks, boundaries=log.state.boundaries_until(boundary_us), durability=self._durability)
        )
        is_new = len(made) == 1
        self._published += [(table.column("number").to_numpy(), done.published_us, is_new) for table in made]
        made.clear()


def sleep_until(moment_s: float) -> None:
    """Returns when `time.time()` says so."""
    time.sleep(max(0.0, moment_s - time.time()))
