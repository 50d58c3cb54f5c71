"""Limits of what enters the partitions of a stream. Other tuples are set aside, in the side log, with their reason.

Most batches have none. So a batch is written as if it had none, with a look at what was written (the footers, or the
rows on their way): the smallest and the largest time, the room that keys take. Only a batch that has some is written
again, split by reason; and so are the next ones at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from strandline.log.stream.block import Block
from strandline.log.stream.reason import AHEAD, KEY, LATE, TIME
from strandline.log.stream.spec import StreamSpec
from strandline.operators.open_windows.record import LENGTH_MAX
from strandline.units import END_OF_TIME, TIME_MAX

REASONS = (LATE, AHEAD, TIME, KEY)
"""In the order in which they follow each other in the side log."""
_MEMORY = 64
_YEAR_1_US, _YEAR_10000_US = -62_135_596_800_000_000, 253_402_300_800_000_000
_UTC_PLUS_14_US = 14 * 3_600_000_000


@dataclass(frozen=True)
class EntryLimits:
    """The limits of what enters the partitions in one batch."""

    max_ahead: int | None
    """A tuple is ahead if its time is later than the clock by more than this; None: no tuple is ahead."""
    time_min: int
    time_max: int
    """Between these are the times with which one can compute."""
    key_bytes_max: int
    """Of the key columns of variable length, together."""
    boundaries: tuple[int | None, ...] = ()
    """Per partition, the time before which a tuple is late: of the state behind which the batch is published."""
    now_us: int = 0
    """The clock, which is read once for all of the batch."""

    @classmethod
    def of(cls, spec: StreamSpec, max_ahead: int | None) -> EntryLimits:
        """Returns the limits that all batches of a stream have in common: without boundaries and time of a batch."""
        if max_ahead is not None and spec.time_kind != "timestamp":
            # A time without a zone may be of any: it is not ahead while it is not ahead of the earliest of them.
            max_ahead += _UTC_PLUS_14_US
        low, high = (_YEAR_1_US, _YEAR_10000_US - 1) if spec.time_is_timestamp else (-TIME_MAX, TIME_MAX)
        # As operators write keys out: a length before what has one, eight bytes or less for the others.
        written = sum(5 if name in long_keys(spec) else 21 for name in spec.key)
        return cls(max_ahead, low, high, LENGTH_MAX - written)

    @property
    def latest(self) -> int | None:
        """The time after which a tuple is ahead."""
        return None if self.max_ahead is None else min(self.now_us + self.max_ahead, END_OF_TIME)

    def by_time(self, partition: int, earliest: int, latest: int) -> set[str]:
        """Returns the reasons for which some tuples between these times must not enter a partition."""
        boundary = self.boundaries[partition]
        found = set()
        if boundary is not None and earliest < boundary:
            found.add(LATE)
        if self.latest is not None and latest > self.latest:
            found.add(AHEAD)
        if earliest < self.time_min or latest > self.time_max:
            found.add(TIME)
        return found

    def in_rows(self, rows: pa.RecordBatch, spec: StreamSpec, partition: int) -> set[str]:
        """Returns the reasons for these rows, their keys included."""
        extremes = pc.min_max(rows.column(spec.time).cast(pa.int64())).as_py()
        found = set() if extremes["min"] is None else self.by_time(partition, extremes["min"], extremes["max"])
        return found | ({KEY} if _has_long_key(rows, long_keys(spec), self.key_bytes_max) else set())

    def in_file(self, path: Path, metadata: pq.FileMetaData, spec: StreamSpec, partition: int) -> set[str]:
        """Returns the reasons for a file of Spark, from its footer; reads keys only where long ones have room."""
        names = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
        keys = long_keys(spec)
        found: set[str] = set()
        for g in range(metadata.num_row_groups):
            group = metadata.row_group(g)
            times = group.column(names[spec.time]).statistics
            if times is not None and times.has_min_max:
                found |= self.by_time(partition, times.min_raw, times.max_raw)
            room = sum(group.column(names[name]).total_uncompressed_size for name in keys)
            if room > self.key_bytes_max and KEY not in found:
                with pq.ParquetFile(path, metadata=metadata) as file:
                    batches = file.iter_batches(row_groups=[g], columns=keys, use_threads=False)
                    found |= {KEY} if any(_has_long_key(rows, keys, self.key_bytes_max) for rows in batches) else set()
        return found


class Expected:
    """For which reasons the next batch is split from the start: those met lately."""

    def __init__(self) -> None:
        self._batches_left: dict[str, int] = {}

    @property
    def reasons(self) -> tuple[str, ...]:
        """In the order of REASONS."""
        return tuple(r for r in REASONS if self._batches_left.get(r, 0) > 0)

    def next_batch(self) -> None:
        """Forgets, little by little."""
        self._batches_left = {r: left - 1 for r, left in self._batches_left.items() if left > 1}

    def learn(self, found: Iterable[str]) -> bool:
        """Returns whether there is an unexpected reason among those found; from now on it is expected."""
        unexpected = set(found) - set(self.reasons)
        self._batches_left |= dict.fromkeys(unexpected, _MEMORY)
        return bool(unexpected)

    def met(self, side_log: Iterable[Block]) -> None:
        """Remembers the reasons of blocks that were written for as long as if they had just been learnt."""
        self._batches_left |= dict.fromkeys((block.reason for block in side_log), _MEMORY)


def long_keys(spec: StreamSpec) -> list[str]:
    """Returns the key columns whose values may have any length."""
    return [n for n in spec.key if pa.types.is_string(t := spec.arrow.field(n).type) or pa.types.is_binary(t)]


def _has_long_key(rows: pa.RecordBatch, keys: Sequence[str], bytes_max: int) -> bool:
    if not keys or sum(rows.column(name).nbytes for name in keys) <= bytes_max:
        return False
    lengths = [pc.fill_null(pc.binary_length(rows.column(name)).cast(pa.int64()), 0) for name in keys]
    total = lengths[0]
    for more in lengths[1:]:
        total = pc.add(total, more)
    return bool((pc.max(total).as_py() or 0) > bytes_max)
