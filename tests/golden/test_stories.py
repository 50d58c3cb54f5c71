"""Streams of commits without blocks are read, and written, as ever: commits and snapshots are checked in.

`python -m tests.golden.test_stories NAME` makes those of a new story; what is there is never written again.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from strandline.clock import ManualClock
from strandline.log.index.index import ROOT_KEY, Snapshot
from strandline.log.stream import commit_kinds, log_state, manifest, quiet, schema_change
from strandline.log.stream.append_commit import Append
from strandline.log.stream.column_types import fields_of
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.stream.spec import StreamSpec
from strandline.testing import MemoryStorage
from strandline.units import END_OF_TIME
from tests.support.items import item_spec

HERE = Path(__file__).parent
NEW = (
    {"name": "note", "type": "string"},
    {"name": "tags", "type": {"type": "array", "elementType": "long", "containsNull": True}},
)


def new_log(name: str) -> Log:
    clock = ManualClock(1_767_268_800_000_000)
    return Log.create(MemoryStorage(clock), item_spec(name=f"golden-{name}", lateness=10), clock)


def finished(log: Log) -> None:
    """Heartbeats before and after the first batch, and the end."""
    quiet.pass_time(log, 100, "golden-run")
    log.append(Append(writer=Writer("golden-query", "golden-run", 0), source={"offset": 0}))
    quiet.pass_time(log, 120, "another-run")
    quiet.finish(log, "another-run")


def added(log: Log) -> None:
    """An append, two columns, an append, a third column."""
    spec = log.spec
    log.append(Append(writer=Writer("golden-query", "golden-run", 0), source={"offset": 0}))
    schema_change.add_columns(log, more(spec, *NEW))
    log.append(Append(writer=Writer("golden-query", "another-run", 1), source={"offset": 1}))
    schema_change.add_columns(log, more(spec, *NEW, {"name": "price", "type": "decimal(10,2)"}))


def more(spec: StreamSpec, *columns: object) -> StreamSpec:
    return replace(spec, schema={"type": "struct", "fields": [*fields_of(spec.schema), *columns]})


def linked(log: Log) -> None:
    """Commits that name the checksum of the one before."""
    with mock.patch.object(log_state, "link_to", lambda m: m.checksum):
        for batch in range(4):
            log.append(Append(writer=Writer("golden-query", "golden-run", batch), source={"offset": batch}))
        log.fold()


STORIES: dict[str, Callable[[Log], None]] = {"finished": finished, "added": added, "linked": linked}


def told(name: str) -> Log:
    log = new_log(name)
    STORIES[name](log)
    log.fold()
    return log


def files(name: str) -> list[str]:
    return sorted(str(path.relative_to(HERE / name)) for path in (HERE / name).rglob("*.json"))


FILES = [(name, file) for name in STORIES for file in files(name)]


@pytest.mark.parametrize("name", STORIES)
def test_the_golden_files_are_there(name: str) -> None:
    assert [*(manifest.commit_key(seq) for seq in range(4)), ROOT_KEY, "stream.json"] == files(name)


@pytest.mark.parametrize(("name", "file"), FILES)
def test_the_same_story_gives_the_same_bytes(name: str, file: str) -> None:
    assert told(name).storage.read(file) == (HERE / name / file).read_bytes()


@pytest.mark.parametrize(("name", "file"), [(name, file) for name, file in FILES if file.startswith("commits/")])
def test_a_manifest_is_encoded_to_the_same_bytes(name: str, file: str) -> None:
    data = (HERE / name / file).read_bytes()
    assert commit_kinds.encode(commit_kinds.decode(data, file)) == data


def opened(name: str) -> tuple[Log, Log]:
    """The stream by its snapshot, and by its commits alone."""
    logs = []
    for kept in (files(name), [file for file in files(name) if file != ROOT_KEY]):
        storage = MemoryStorage(ManualClock(0))
        for file in kept:
            storage.put(file, (HERE / name / file).read_bytes())
        logs.append(Log.open(storage))
    return logs[0], logs[1]


@pytest.mark.parametrize("name", STORIES)
def test_a_snapshot_is_encoded_to_the_same_bytes_and_says_what_the_commits_say(name: str) -> None:
    data = (HERE / name / ROOT_KEY).read_bytes()
    snapshot = Snapshot.decode(data, "golden")
    assert snapshot.encode() == data
    by_snapshot, by_commits = opened(name)
    assert snapshot.state == by_snapshot.state == by_commits.state


def test_the_end_is_read() -> None:
    for log in opened("finished"):
        assert (log.state.finished, log.state.boundary, log.state.seq) == (True, END_OF_TIME, 3)
        assert log.state.writer == Writer("golden-query", "another-run", 0)


def test_the_columns_that_came_later_are_read() -> None:
    for log in opened("added"):
        assert log.spec.added_columns == ("note", "tags", "price")
        assert str(log.spec.arrow.field("tags").type) == "list<element: int64>"


if __name__ == "__main__":
    (story,) = sys.argv[1:]
    if (HERE / story).exists():
        sys.exit(f"{HERE / story} is frozen")
    made = told(story).storage
    for listed in made.list(""):
        if listed.key.endswith(".json"):
            (HERE / story / listed.key).parent.mkdir(parents=True, exist_ok=True)
            (HERE / story / listed.key).write_bytes(made.read(listed.key))
