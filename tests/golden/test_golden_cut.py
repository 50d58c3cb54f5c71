"""A stream with several blocks of one partition in one commit is read, and written, as ever."""

import json
import shutil
from pathlib import Path

import pytest

from strandline.log.audit.stream_audit import verify
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream import commit_kinds
from strandline.log.stream.log import Log
from tests.golden import make, plain_reader
from tests.golden.test_golden import masked

EXPECTED = json.loads(make.CUT_EXPECTED.read_text())
FILES = sorted(str(path.relative_to(make.CUT)) for path in make.CUT.rglob("*") if path.is_file())
COMMITS = [file for file in FILES if file.startswith("commits/")]


def test_every_tuple_is_read_as_it_was_written(tmp_path: Path) -> None:
    shutil.copytree(make.CUT, tmp_path / "stream")
    log = Log.open(LocalStorage(tmp_path / "stream"))
    assert make.content(log) == EXPECTED
    assert verify(log).problems == ()
    assert [(b.first, b.end) for b in log.blocks(0)] == [(0, 6), (6, 7), (7, 8)]


def test_it_can_be_read_without_strandline() -> None:
    assert plain_reader.read_stream(make.CUT) == EXPECTED


@pytest.mark.parametrize("commit", COMMITS)
def test_a_manifest_is_encoded_to_the_same_bytes(commit: str) -> None:
    data = (make.CUT / commit).read_bytes()
    assert commit_kinds.encode(commit_kinds.decode(data, commit)) == data


def test_only_commits_with_several_blocks_of_a_partition_have_format_2() -> None:
    commits = [json.loads((make.CUT / commit).read_text()) for commit in COMMITS]
    assert [(c["kind"], c["format"]) for c in commits] == [
        ("append", 1),
        ("append", 2),
        ("append", 2),
        ("truncate", 1),
        ("compact", 1),
        ("compact", 1),
        ("compact", 1),
        ("append", 2),
    ]


def test_the_same_story_gives_the_same_files() -> None:
    storage = make.make_cut().storage
    told = {masked(listed.key): listed.key for listed in storage.list("")}
    assert sorted(told) == sorted(masked(file) for file in FILES)
    for file in FILES:
        if file.endswith(".json"):
            assert masked(storage.read(told[masked(file)]).decode()) == masked((make.CUT / file).read_text()), file
