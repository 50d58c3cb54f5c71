"""Streams of every format version there was are read, and written, as ever: their bytes are checked in."""

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

from strandline.log.index.index import ROOT_KEY, Snapshot, load_snapshot
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream import commit_kinds
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.stream.spec import StreamSpec
from strandline.log.upkeep import consumer_registry
from tests.golden import make, plain_reader

EXPECTED: dict[str, Any] = json.loads(make.EXPECTED.read_text())


def files(version: int, begin: str = "", end: str = "") -> list[str]:
    folder = make.folder_of(version)
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return [file for file in found if file.startswith(begin) and file.endswith(end)]


COMMITS = [(v, file) for v in make.VERSIONS for file in files(v, "commits/")]
PARQUET = [(v, file) for v in make.VERSIONS for file in files(v, end=".parquet")]
every_version = pytest.mark.parametrize("version", make.VERSIONS)


def golden(version: int, file: str) -> bytes:
    return (make.folder_of(version) / file).read_bytes()


@pytest.fixture(params=make.VERSIONS)
def stream(tmp_path: Path, request: pytest.FixtureRequest) -> Log:
    """On a copy: should the index be found wanting, reading it would mend it."""
    shutil.copytree(make.folder_of(request.param), tmp_path / "stream")
    return Log.open(LocalStorage(tmp_path / "stream"))


@every_version
def test_the_golden_stream_has_every_kind_of_file_and_commit(version: int) -> None:
    assert {commit_kinds.decode(golden(version, c), c).kind for c in files(version, "commits/")} == {
        "append",
        "compact",
        "truncate",
        "collect",
        "consumer",
    }
    folders = {file.rpartition("/")[0] for file in files(version)}
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
    assert [(c.name, c.needs) for c in consumer_registry.consumers(stream)] == [("billing", (6, 1))]


def test_the_index_says_what_the_manifests_say(stream: Log, tmp_path: Path) -> None:
    snapshot = load_snapshot(stream.storage, stream.spec.id)
    assert snapshot is not None
    assert 0 < snapshot.state.seq < stream.state.seq
    assert snapshot.children
    by_index = [list(stream.blocks(p)) for p in range(3)]
    (tmp_path / "stream" / ROOT_KEY).unlink()
    assert [list(Log.open(stream.storage).blocks(p)) for p in range(3)] == by_index


@every_version
def test_a_stream_can_be_read_without_strandline(version: int) -> None:
    done = subprocess.run(
        [sys.executable, plain_reader.__file__, make.folder_of(version)], check=True, capture_output=True, text=True
    )
    assert json.loads(done.stdout) == EXPECTED


# ---------------------------------------------------------------------- writing


@pytest.mark.parametrize(("version", "commit"), COMMITS)
def test_a_manifest_is_encoded_to_the_same_bytes(version: int, commit: str) -> None:
    data = golden(version, commit)
    assert commit_kinds.encode(commit_kinds.decode(data, commit)) == data


@every_version
def test_stream_json_is_encoded_to_the_same_bytes(version: int) -> None:
    data = golden(version, "stream.json")
    assert StreamSpec.from_json(data, "golden").to_json() == data
    assert make.spec_of(version).to_json() == data


@every_version
def test_the_snapshot_is_encoded_to_the_same_bytes(version: int) -> None:
    data = golden(version, ROOT_KEY)
    assert Snapshot.decode(data, "golden").encode() == data


@every_version
def test_the_same_story_gives_the_same_files(version: int) -> None:
    """All JSON is the same, byte by byte, but for what pyarrow, whose version is in each Parquet file, has a say in."""
    made = make.make(version)
    storage = made.storage
    assert make.content(made) == EXPECTED
    told = {masked(listed.key): listed.key for listed in storage.list("")}
    assert sorted(told) == sorted(masked(file) for file in files(version))
    for file in files(version, end=".json"):
        assert masked(storage.read(told[masked(file)]).decode()) == masked(golden(version, file).decode()), file


def masked(text: str) -> str:
    """Without sizes and checksums."""
    text = re.sub(r'"(bytes|size_bytes)":\d+', r'"\1":0', text)
    return re.sub(r"(xxh3:|-)[0-9a-f]{16}\b", r"\1", text)


@pytest.mark.parametrize(("version", "file"), PARQUET)
def test_a_parquet_file_has_the_same_schema_settings_and_tuples(version: int, file: str) -> None:
    storage = make.make(version).storage
    ours = {masked(listed.key): listed.key for listed in storage.list("")}[masked(file)]
    old, new = (pq.ParquetFile(pa.BufferReader(data)) for data in (golden(version, file), storage.read(ours)))
    assert new.schema.equals(old.schema)
    assert new.metadata.num_row_groups == old.metadata.num_row_groups
    assert facts(new.metadata) == facts(old.metadata)
    assert old.read(use_threads=False).column_names == new.read(use_threads=False).column_names
    if not file.startswith("snapshots/"):
        assert new.read() == old.read()
        assert old.schema_arrow.names == make.spec_of(version).stored.names


def facts(footer: pq.FileMetaData) -> list[tuple[object, ...]]:
    columns = [footer.row_group(g).column(c) for g in range(footer.num_row_groups) for c in range(footer.num_columns)]
    return [
        (c.path_in_schema, c.physical_type, c.compression, c.encodings, c.num_values, c.is_stats_set) for c in columns
    ]
