"""Compares a block with what its manifest says: bytes, pages, columns, offsets, kinds, times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.control_columns import KIND, OFFSET
from strandline.log.audit.problem import Problem
from strandline.log.stream.block import Block, checksum, decode
from strandline.log.stream.kinds import Kind
from strandline.log.stream.spec import StreamSpec
from strandline.wording import plural

_RESTORE = "restore this file from a copy; everything else of the stream stays readable"
_DEFECT = "the bytes are those that were published, so this is a defect of the writer; please report it"
_KINDS = {int(kind): kind.name.lower() for kind in Kind}


@dataclass(frozen=True, slots=True)
class BlockAudit:
    """The checks of one block."""

    block: Block
    spec: StreamSpec
    is_sorted: bool
    """True if its results must be in the order of time."""

    def problem(self, what: str, todo: str = _RESTORE) -> Problem:
        """Returns a problem of this block."""
        b = self.block
        return Problem("block", what, file=b.file, partition=b.partition, first=b.first, end=b.end, todo=todo)

    def missing(self) -> Problem:
        """Returns the problem that the file is not there."""
        return self.problem("the file of this block is missing")

    def problems(self, data: bytes) -> list[Problem]:
        """Returns everything that is wrong with these bytes as the bytes of this block."""
        b = self.block
        if len(data) != b.size_bytes:
            return [self.problem(f"the file has {plural(len(data), 'byte')}, the manifest says {b.size_bytes:,}")]
        if checksum(data) != b.checksum:
            return [self.problem(f"the bytes have {checksum(data)}, the manifest says {b.checksum}")]
        try:
            table = decode(data, self.spec, b.first, check_pages=True)
        except (pa.ArrowException, OSError, KeyError, ValueError) as problem:
            return [self.problem(f"the block cannot be decoded with the stream's schema: {problem}", _DEFECT)]
        return [self.problem(what, _DEFECT) for what in self._contradictions(table)]

    def _contradictions(self, table: pa.Table) -> Iterator[str]:
        """Yields where the tuples are not as the manifest says."""
        b = self.block
        if not self.spec.is_stamped and not b.file.rpartition("/")[2].startswith(f"{b.first:020d}-"):
            yield f"its name does not begin with its first offset, {b.first:020d}, from which tuples are counted"
        kinds = {row["values"]: row["counts"] for row in pc.value_counts(table.column(KIND)).to_pylist()}
        rows = {_KINDS.get(kind, str(kind)): count for kind, count in kinds.items()}
        if rows != dict(b.rows):
            yield f"it holds {rows}, the manifest says {dict(b.rows)}"
        offsets = table.column(OFFSET).to_numpy()
        if len(offsets) != b.tuples or not np.array_equal(offsets, np.arange(b.first, b.end)):
            yield f"its offsets are not {b.first} to {b.end - 1}, one after the other: {_first_gap(offsets, b.first)}"
        yield from self._time_contradictions(table)

    def _time_contradictions(self, table: pa.Table) -> Iterator[str]:
        b = self.block
        column = table.column(self.spec.time)
        if column.null_count:
            yield f"{plural(column.null_count, 'tuple')} without a time ({self.spec.time} is null)"
            table = table.filter(pc.is_valid(column))
            column = table.column(self.spec.time)
        if not len(column):
            return
        times = column.cast(pa.int64()).to_numpy()
        of_results = times[table.column(KIND).to_numpy() == Kind.RESULT]
        counted = of_results if len(of_results) else times
        if counted.min() < b.time_min or counted.max() > b.time_max:
            yield (
                f"its times run from {counted.min()} to {counted.max()}, "
                f"the manifest says {b.time_min} to {b.time_max}: a search by time can miss tuples"
            )
        if self.is_sorted:
            back = np.flatnonzero(of_results[1:] < of_results[:-1])
            if len(back):
                yield f"its tuples are not in the order of {self.spec.time}: {len(back)} times it goes back"


def _first_gap(offsets: np.ndarray[tuple[int], np.dtype[np.int64]], first: int) -> str:
    wrong = np.flatnonzero(offsets != np.arange(first, first + len(offsets)))
    if not len(wrong):
        return f"there are {len(offsets)}"
    at = int(wrong[0])
    return f"where {first + at} should be stands {offsets[at]}"
