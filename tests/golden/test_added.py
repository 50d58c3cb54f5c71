"""A stream to which columns were added is read, and written, as ever: its commits and its snapshot are checked in.

`python -m tests.golden.test_added` makes them; what is there is never written again.
"""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from strandline.clock import ManualClock
from strandline.log import manifest, schema_change
from strandline.log.columns import fields_of
from strandline.log.index import ROOT_KEY, Snapshot
from strandline.log.log import Log
from strandline.log.manifest import Writer
from strandline.log.spec import StreamSpec
from strandline.testing import MemoryStorage
from strandline.testing.items import item_spec

FOLDER = Path(__file__).parent / "added"
FILES = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.json"))
NEW = (
    {"name": "note", "type": "string"},
    {"name": "tags", "type": {"type": "array", "elementType": "long", "containsNull": True}},
)


def more(spec: StreamSpec, *columns: object) -> StreamSpec:
    return replace(spec, schema={"type": "struct", "fields": [*fields_of(spec.schema), *columns]})


def make() -> Log:
    """An append, two columns, an append, a third column."""
    clock = ManualClock(1_767_268_800_000_000)
    spec = item_spec(name="golden-added", lateness=10)
    log = Log.create(MemoryStorage(clock), spec, clock)
    log.append([], writer=Writer("golden-query", "golden-run", 0), source={"offset": 0})
    schema_change.add_columns(log, more(spec, *NEW))
    log.append([], writer=Writer("golden-query", "another-run", 1), source={"offset": 1})
    schema_change.add_columns(log, more(spec, *NEW, {"name": "price", "type": "decimal(10,2)"}))
    log.fold()
    return log


def test_the_golden_files_are_there() -> None:
    assert [*(manifest.commit_key(seq) for seq in range(4)), ROOT_KEY, "stream.json"] == FILES


@pytest.mark.parametrize("file", FILES)
def test_the_same_story_gives_the_same_bytes(file: str) -> None:
    assert make().storage.read(file) == (FOLDER / file).read_bytes()


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith("commits/")])
def test_a_manifest_is_encoded_to_the_same_bytes(file: str) -> None:
    data = (FOLDER / file).read_bytes()
    assert manifest.encode(manifest.decode(data, file)) == data


def test_the_columns_are_read_from_the_manifests_and_from_the_snapshot() -> None:
    storage = MemoryStorage(ManualClock(0))
    for file in FILES:
        storage.put(file, (FOLDER / file).read_bytes())
    snapshot = Snapshot.decode(storage.read(ROOT_KEY), "golden")
    assert snapshot.encode() == storage.read(ROOT_KEY)
    with_root = Log.open(storage)
    storage.delete(ROOT_KEY)
    for log in (with_root, Log.open(storage)):
        assert log.state.added == snapshot.state.added
        assert log.spec.added_columns == ("note", "tags", "price")
        assert str(log.spec.arrow.field("tags").type) == "list<element: int64>"


if __name__ == "__main__":
    if FOLDER.exists():
        sys.exit(f"{FOLDER} is frozen")
    made = make().storage
    for listed in made.list(""):
        if listed.key.endswith(".json"):
            (FOLDER / listed.key).parent.mkdir(parents=True, exist_ok=True)
            (FOLDER / listed.key).write_bytes(made.read(listed.key))
