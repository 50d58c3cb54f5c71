"""A stream with heartbeats and an end is read, and written, as ever: its commits and its snapshot are checked in.

`python -m tests.golden.test_finished` makes them; what is there is never written again.
"""

import sys
from pathlib import Path

import pytest

from strandline.clock import ManualClock
from strandline.log import manifest, quiet
from strandline.log.index import ROOT_KEY, Snapshot
from strandline.log.log import Log
from strandline.log.manifest import Writer
from strandline.testing import MemoryStorage
from strandline.testing.items import item_spec
from strandline.units import END_OF_TIME

FOLDER = Path(__file__).parent / "finished"
FILES = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.json"))


def make() -> Log:
    """Heartbeats before and after the first batch, and the end."""
    clock = ManualClock(1_767_268_800_000_000)
    log = Log.create(MemoryStorage(clock), item_spec(name="golden-finished", lateness=10), clock)
    quiet.pass_time(log, 100, "golden-run")
    log.append([], writer=Writer("golden-query", "golden-run", 0), source={"offset": 0})
    quiet.pass_time(log, 120, "another-run")
    quiet.finish(log, "another-run")
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


def test_the_end_is_read_from_the_manifests_and_from_the_snapshot() -> None:
    storage = MemoryStorage(ManualClock(0))
    for file in FILES:
        storage.put(file, (FOLDER / file).read_bytes())
    snapshot = Snapshot.decode(storage.read(ROOT_KEY), "golden")
    assert snapshot.encode() == storage.read(ROOT_KEY)
    storage.delete(ROOT_KEY)
    for state in (snapshot.state, Log.open(storage).state):
        assert (state.finished, state.boundary, state.seq) == (True, END_OF_TIME, 3)
        assert state.writer == Writer("golden-query", "another-run", 0)


if __name__ == "__main__":
    if FOLDER.exists():
        sys.exit(f"{FOLDER} is frozen")
    made = make().storage
    for listed in made.list(""):
        if listed.key.endswith(".json"):
            (FOLDER / listed.key).parent.mkdir(parents=True, exist_ok=True)
            (FOLDER / listed.key).write_bytes(made.read(listed.key))
