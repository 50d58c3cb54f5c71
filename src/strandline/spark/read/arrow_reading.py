"""A stream without Spark: its results as Arrow tables, batches and data frames, and the raw tuples of a partition."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import pyarrow as pa

from strandline.errors import OptionError
from strandline.log.reading.bounds import Bound, Bounds
from strandline.log.reading.results import ROWS_PER_BATCH, Results, result_blocks
from strandline.log.stream.log import END, Log
from strandline.spark.session.time_zone import current_zone

if TYPE_CHECKING:
    import pandas


class Part(TypedDict, total=False):
    """The part of a stream to read: the arguments of `ArrowReading.to_arrow`."""

    since: Bound | None
    until: Bound | None
    columns: Sequence[str] | None
    late: bool
    positions: bool


class ArrowReading:
    """The methods of a `Stream` that need no session. Each sees what is published when it is called."""

    def _fresh(self) -> Log:
        """Returns the log with all that is published."""
        raise NotImplementedError

    def to_arrow(
        self,
        *,
        since: Bound | None = None,
        until: Bound | None = None,
        columns: Sequence[str] | None = None,
        late: bool = False,
        positions: bool = False,
    ) -> pa.Table:
        """Reads the results published so far as one Arrow table, partition by partition in the order of their offsets.

        Arguments are those of `read`; `columns` names the ones to read. A time without a zone is on the clock of the
        active session's zone, without a session on this machine's. Every block's checksum is verified.
        """
        return self._results(since, until, columns, late=late, positions=positions).table()

    def to_pandas(self, **part: Unpack[Part]) -> pandas.DataFrame:
        """Reads them as a pandas DataFrame; the arguments are those of `to_arrow`."""
        _installed("pandas", "to_pandas()")
        # Times stay microseconds, which hold all of the years 1 to 9999.
        return self.to_arrow(**part).to_pandas(timestamp_as_object=False, coerce_temporal_nanoseconds=False)

    def to_polars(self, **part: Unpack[Part]) -> Any:
        """Reads them as a polars DataFrame; needs the package polars."""
        return _installed("polars", "to_polars()").from_arrow(self.to_arrow(**part))

    def to_batches(self, *, rows: int = ROWS_PER_BATCH, **part: Unpack[Part]) -> pa.RecordBatchReader:
        """Reads more than memory holds: returns batches of at most `rows`, in the same order.

        One block is in memory at a time. What is published after the call is not in it; `TruncatedError` if some of it
        is dropped before its turn comes.
        """
        return self._results(**part).reader(rows)

    def _results(
        self,
        since: Bound | None = None,
        until: Bound | None = None,
        columns: Sequence[str] | None = None,
        *,
        late: bool = False,
        positions: bool = False,
    ) -> Results:
        log = self._fresh()
        bounds = Bounds.of(log, since, until, current_zone, late=late)
        return Results(log, bounds, columns, late=late, positions=positions)

    def log(self, partition: int, *, first: int | None = None) -> Iterator[dict[str, Any]]:
        """Yields the raw tuples of a partition, oldest first, control tuples and control columns included."""
        for table in self.tables(partition, first=first, control=True):
            for batch in table.to_batches(max_chunksize=1_000):
                yield from batch.to_pylist()

    def tables(
        self, partition: int, *, first: int | None = None, end: int = END, control: bool = False
    ) -> Iterator[pa.Table]:
        """Yields the results of a partition as Arrow tables, a block each, in the order of offsets, checksums verified.

        With `control`, whatever is there: `_offset` and `_kind` beside the columns, footprints beside the results.
        """
        log = self._fresh()
        if partition not in range(log.spec.partitions):
            raise OptionError(
                f"there is no partition {partition}", where=f"{log.storage.url}, 0 to {log.spec.partitions - 1}"
            )
        if control:
            return log.read(partition, first, end)
        columns = log.spec.columns
        return (t.select(columns) for _, t in result_blocks(log, partition, columns, first=first, end=end))


def _installed(package: str, method: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as missing:
        raise OptionError(
            f"{method} needs the package {package}, which is not installed", todo=f"pip install {package}"
        ) from missing
