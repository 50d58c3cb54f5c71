"""Where replayed tuples go: the terminal, a pipe, a Parquet file or a file of JSON lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.cli.terminal import out
from strandline.cli.tuple_lines import RowPrinter, write_json_lines
from strandline.control_columns import OFFSET, PARTITION
from strandline.errors import OptionError, StorageError
from strandline.log.stream.spec import StreamSpec

_ROWS_PER_GROUP = 1 << 18


class Output:
    """Counts tuples and passes them on to a function; `path` is the file, if it is one."""

    def __init__(self, write: Callable[[pa.Table], None], path: Path | None = None) -> None:
        self._write = write
        self.path = path
        self.tuples = 0

    def write(self, table: pa.Table) -> None:
        """Passes some tuples on."""
        self.tuples += len(table)
        self._write(table)


class _RowGroups:
    """Collects tuples for a Parquet file until they make a row group."""

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self._writer = writer
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0

    def write(self, table: pa.Table) -> None:
        self._waiting.append(table)
        self._waiting_rows += len(table)
        if self._waiting_rows >= _ROWS_PER_GROUP:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=_ROWS_PER_GROUP)
            self._waiting, self._waiting_rows = [], 0


@contextmanager
def open_output(target: str, spec: StreamSpec, columns: Sequence[str], *, as_json: bool) -> Iterator[Output]:
    """Opens the output that `--output` names. If the replay is interrupted, the file has all that was written."""
    path = Path(target)
    if target == "-":
        yield Output(partial(write_json_lines, sys.stdout) if as_json else RowPrinter(out()).print)
        return
    try:
        if path.suffix == ".parquet":
            with pq.ParquetWriter(path, _schema(spec, columns), compression="zstd") as writer:
                groups = _RowGroups(writer)
                try:
                    yield Output(groups.write, path)
                finally:
                    groups.flush()
        elif path.suffix in (".ndjson", ".jsonl"):
            with path.open("w", encoding="utf-8") as file:
                yield Output(partial(write_json_lines, file), path)
        else:
            raise OptionError(
                f"--output={target!r} ends with neither .parquet nor .ndjson",
                todo="name the file accordingly, or use - for standard output",
            )
    except OSError as error:
        raise StorageError(
            f"cannot write the output: {error.strerror or error}", where=target, todo="choose another file"
        ) from error


def _schema(spec: StreamSpec, columns: Sequence[str]) -> pa.Schema:
    known = {f.name: f for f in spec.arrow}
    known |= {PARTITION: pa.field(PARTITION, pa.int32()), OFFSET: pa.field(OFFSET, pa.int64())}
    return pa.schema([known[name] for name in columns])
