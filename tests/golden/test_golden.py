"""Streams that were written by format version 1 are read, and written, as ever: their bytes are checked in."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.log import consumers, manifest
from strandline.log.columns import block_schema
from strandline.log.index import ROOT_KEY, Snapshot, load_snapshot
from strandline.log.local_storage import LocalStorage
from strandline.log.log import Log
from strandline.log.manifest import Writer
from strandline.log.spec import StreamSpec
from tests.golden import make, plain_reader

FILES = sorted(str(path.relative_to(make.FOLDER)) for path in make.FOLDER.rglob("*") if path.is_file())
COMMITS = [file for file in FILES if file.startswith("commits/")]
PARQUET = [file for file in FILES if file.endswith(".parquet")]
EXPECTED: dict[str, Any] = json.loads(make.EXPECTED.read_text())


def golden(file: str) -> bytes:
    return (make.FOLDER / file).read_bytes()


@pytest.fixture
def stream(tmp_path: Path) -> Log:
    """On a copy: should the index be found wanting, reading it would mend it."""
    shutil.copytree(make.FOLDER, tmp_path / "stream")
    return Log.open(LocalStorage(tmp_path / "stream"))


def test_the_golden_stream_has_every_kind_of_file_and_commit() -> None:
    assert {manifest.decode(golden(c), c).kind for c in COMMITS} == {
        "append",
        "compact",
        "truncate",
        "collect",
        "consumer",
    }
    folders = {file.rpartition("/")[0] for file in FILES}
    assert folders == {"", "blocks/p00000", "blocks/p00001", "commits", "consumers", "late", "snapshots"}


# ---------------------------------------------------------------------- reading


def test_every_tuple_is_read_as_it_was_written(stream: Log) -> None:
    assert make.content(stream) == EXPECTED


def test_the_state_is_what_it_was(stream: Log) -> None:
    state = stream.state
    assert (state.starts, state.ends) == ((0, 1, 0), (6, 3, 2))
    assert state.writer == Writer("golden-query", "golden-run", 5)
    assert state.source == {"offset": 50}
    assert state.boundary == state.time_max - 10_000_000 if state.time_max is not None else False
    assert [(c.name, c.needs) for c in consumers.consumers(stream)] == [("billing", (6, 1))]


def test_the_index_says_what_the_manifests_say(stream: Log, tmp_path: Path) -> None:
    snapshot = load_snapshot(stream.storage, stream.spec.id)
    assert snapshot is not None
    assert 0 < snapshot.state.seq < stream.state.seq
    assert snapshot.children
    by_index = [list(stream.blocks(p)) for p in range(3)]
    (tmp_path / "stream" / ROOT_KEY).unlink()
    assert [list(Log.open(stream.storage).blocks(p)) for p in range(3)] == by_index


def test_a_stream_can_be_read_without_strandline() -> None:
    done = subprocess.run(
        [sys.executable, plain_reader.__file__, make.FOLDER], check=True, capture_output=True, text=True
    )
    assert json.loads(done.stdout) == EXPECTED


# ---------------------------------------------------------------------- writing


@pytest.mark.parametrize("commit", COMMITS)
def test_a_manifest_is_encoded_to_the_same_bytes(commit: str) -> None:
    assert manifest.encode(manifest.decode(golden(commit), commit)) == golden(commit)


def test_stream_json_is_encoded_to_the_same_bytes() -> None:
    assert StreamSpec.from_json(golden("stream.json"), "golden").to_json() == golden("stream.json")
    assert make.SPEC.to_json() == golden("stream.json")


def test_the_snapshot_is_encoded_to_the_same_bytes() -> None:
    assert Snapshot.decode(golden(ROOT_KEY), "golden").encode() == golden(ROOT_KEY)


def test_the_same_story_gives_the_same_files() -> None:
    """All JSON is the same, byte by byte, but for what pyarrow, whose version is in each Parquet file, has a say in."""
    made = make.make()
    storage = made.storage
    assert make.content(made) == EXPECTED
    told = {masked(listed.key): listed.key for listed in storage.list("")}
    assert sorted(told) == sorted(masked(file) for file in FILES)
    for file in FILES:
        if file.endswith(".json"):
            assert masked(storage.read(told[masked(file)]).decode()) == masked(golden(file).decode()), file


def masked(text: str) -> str:
    """Without sizes and checksums."""
    text = re.sub(r'"(bytes|size_bytes)":\d+', r'"\1":0', text)
    return re.sub(r"(xxh3:|-)[0-9a-f]{16}\b", r"\1", text)


@pytest.mark.parametrize("file", PARQUET)
def test_a_parquet_file_has_the_same_schema_settings_and_tuples(file: str) -> None:
    storage = make.make().storage
    ours = {masked(listed.key): listed.key for listed in storage.list("")}[masked(file)]
    old, new = pq.ParquetFile(pa.BufferReader(golden(file))), pq.ParquetFile(pa.BufferReader(storage.read(ours)))
    assert new.schema.equals(old.schema)
    assert new.metadata.num_row_groups == old.metadata.num_row_groups
    assert facts(new.metadata) == facts(old.metadata)
    assert old.read(use_threads=False).column_names == new.read(use_threads=False).column_names
    if not file.startswith("snapshots/"):
        assert new.read() == old.read()
        assert old.schema_arrow.names == block_schema(make.SPEC.arrow).names


def facts(footer: pq.FileMetaData) -> list[tuple[object, ...]]:
    columns = [footer.row_group(g).column(c) for g in range(footer.num_row_groups) for c in range(footer.num_columns)]
    return [
        (c.path_in_schema, c.physical_type, c.compression, c.encodings, c.num_values, c.is_stats_set) for c in columns
    ]
