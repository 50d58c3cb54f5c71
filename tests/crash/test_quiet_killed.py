"""The driver dies by SIGKILL around commits without tuples: the end of a stream, and heartbeats."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from tests.crash.conftest import BATCHES, ROWS, content, run


@pytest.mark.long
@pytest.mark.drawn("crash: other moments")
@pytest.mark.parametrize("failpoint", ["before-manifest", "after-manifest"])
def test_a_stream_is_finished_once_whenever_its_writer_dies(
    failpoint: str, folder: Path, expected: list[pa.Table], tmp_path: Path
) -> None:
    stream = tmp_path / "items"
    run(folder, stream, "--final", failpoint=f"{failpoint}@{BATCHES + 1}", dies=True)
    assert Log.open(LocalStorage(stream)).state.finished == (failpoint == "after-manifest")
    run(folder, stream, "--final")
    assert Log.open(LocalStorage(stream)).state.finished
    assert Log.open(LocalStorage(stream)).state.seq == BATCHES
    assert content(stream) == expected


@pytest.mark.long
@pytest.mark.drawn("crash: other moments")
def test_a_kill_after_a_heartbeat_neither_loses_nor_doubles_a_batch(
    folder: Path, expected: list[pa.Table], tmp_path: Path
) -> None:
    stream, files = tmp_path / "items", tmp_path / "files"
    files.mkdir()
    for batch in range(3):
        shutil.copy2(folder / f"{batch}.parquet", files)
    run(files, stream, "--heartbeat", "100 ms", failpoint="after-manifest@5", dies=True)
    log = Log.open(LocalStorage(stream))
    assert log.state.writer is not None
    assert (log.state.seq, log.state.writer.batch) == (4, 2), "two heartbeats after three batches"
    for batch in range(3, BATCHES):
        shutil.copy2(folder / f"{batch}.parquet", files)
    run(files, stream)
    found = content(stream)
    assert [t.num_rows for t in found[:2]] == list(log.state.ends[:2]), "the clock was past what came after"
    assert sum(t.num_rows for t in found) == BATCHES * ROWS
    assert _values(found) == _values(expected)


def _values(tables: list[pa.Table]) -> list[tuple[object, ...]]:
    names = ["item_time", "item_id", "item_price"]
    return sorted(tuple(row[n] for n in names) for t in tables for row in t.select(names).to_pylist())
