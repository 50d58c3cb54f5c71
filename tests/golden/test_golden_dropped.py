"""A stream whose first commits were dropped is read, verified and written on as ever: its bytes are checked in."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.log.audit.stream_audit import verify
from strandline.log.index import cuts
from strandline.log.index.index import ROOT_KEY, Snapshot
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream import commit_kinds, commits
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import commit_key
from strandline.log.stream.milestone import mark_key
from tests.golden import make, make_dropped, plain_reader
from tests.golden.test_golden import masked

EXPECTED = json.loads(make_dropped.EXPECTED.read_text())
FILES = sorted(str(path.relative_to(make_dropped.FOLDER)) for path in make_dropped.FOLDER.rglob("*") if path.is_file())


@pytest.fixture
def stream(tmp_path: Path) -> Log:
    shutil.copytree(make_dropped.FOLDER, tmp_path / "stream")
    return Log.open(LocalStorage(tmp_path / "stream"))


def golden(file: str) -> bytes:
    return (make_dropped.FOLDER / file).read_bytes()


def test_commits_are_missing_and_no_tuple_is(stream: Log) -> None:
    assert not stream.storage.exists(commit_key(1))
    assert stream.kept > 1
    assert make.content(stream) == EXPECTED
    assert verify(stream).problems == ()


def test_the_milestone_is_enough_where_the_index_is_lost(stream: Log, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "stream" / "snapshots")
    anew = Log.open(stream.storage)
    assert anew.state == stream.state
    assert make.content(anew) == EXPECTED


def test_the_cuts_of_the_dropped_commits_are_read(stream: Log) -> None:
    (file,) = stream.commits.cut_files()
    found = cuts.read(stream.storage, file, stream.spec.id)
    assert [m.seq for m in found] == sorted(m.seq for m in found)
    assert found[-1].ends == file.ends


def test_a_stream_with_dropped_commits_can_be_read_without_strandline() -> None:
    command = [sys.executable, plain_reader.__file__, str(make_dropped.FOLDER)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == EXPECTED


def test_everything_is_encoded_to_the_same_bytes() -> None:
    kinds = set()
    for file in FILES:
        if file.startswith("commits/") and file != commit_key(0):
            m = commit_kinds.decode(golden(file), file)
            kinds.add(m.kind)
            assert commit_kinds.encode(m) == golden(file)
    assert "milestone" in kinds
    assert Snapshot.decode(golden(ROOT_KEY), ROOT_KEY).encode() == golden(ROOT_KEY)
    mark = commits.read_mark(golden(mark_key(1)), make.SPEC.id, "golden")
    assert commits.write_mark(mark, make.SPEC.id) == golden(mark_key(1)) == golden(commit_key(0))


def test_the_same_story_gives_the_same_files() -> None:
    storage = make_dropped.make_dropped().storage
    told = {masked(listed.key): listed.key for listed in storage.list("")}
    assert set(told) == {masked(file) for file in FILES}
    for file in FILES:
        if file.endswith(".json"):
            assert masked(storage.read(told[masked(file)]).decode()) == masked(golden(file).decode()), file
