"""Streams with outages, frozen in every state of one: they are read, verified and gone on with as they were made."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from strandline.clock import ManualClock
from strandline.errors import FormatVersionError
from strandline.inputs.stream_definition import continued
from strandline.log.audit.stream_audit import verify
from strandline.log.index.index import ROOT_KEY, Snapshot
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream import commit_kinds, manifest
from strandline.log.stream.log import Log
from tests.golden import make_outages as made

EXPECTED: dict[str, Any] = json.loads((made.FOLDER / "expected.json").read_text())
COMMITS = [
    (name, path.name)
    for name in made.FROZEN
    for path in sorted((made.FOLDER / name / "output/commits").iterdir())
    if b'"kind":' in path.read_bytes()  # in place of the first one stands where the others went
]
SINCE = {"up_failure": 2, "stabilization": 3, "stable": 4}
"""The stage of the story that follows."""

each_state = pytest.mark.parametrize("name", made.FROZEN)


@pytest.fixture
def folder(name: str, tmp_path: Path) -> Path:
    """On a copy: whoever opens a stream may mend its index."""
    shutil.copytree(made.FOLDER / name, tmp_path / "golden")
    return tmp_path / "golden"


@pytest.fixture
def output(folder: Path) -> Log:
    return Log.open(LocalStorage(folder / "output"))


def test_every_state_every_kind_and_every_file_is_there() -> None:
    states = {name: EXPECTED[name]["outage"]["state"] for name in made.FROZEN}
    assert states == {"up_failure": "UP_FAILURE", "stabilization": "STABILIZATION", "stable": "STABLE"}
    for told in EXPECTED["stable"]["told"]:
        kinds = [row["_kind"] for row in told]
        assert set(kinds) == {"stable", "tentative", "undo", "rec_done"}
        assert kinds.count("undo") == 2, "one with the first corrections, one with the last"
    kept = [file for name, file in COMMITS if name == "stable"]
    assert kept[0] == "00000000000000000002.json", "the first commits are dropped"
    assert (made.FOLDER / "stabilization/output" / ROOT_KEY).exists()


@each_state
def test_it_is_read_and_verified(name: str, output: Log) -> None:
    assert made.content(output) == EXPECTED[name]
    assert not verify(output).problems
    assert output.state.format == manifest.FORMAT_5


@each_state
def test_its_results_are_those_of_the_end(name: str, output: Log) -> None:
    """None is taken back: what readers get grows, and that is all."""
    for found, end in zip(made.content(output)["results"], EXPECTED["end"]["results"], strict=True):
        assert found == end[: len(found)] != []


@each_state
def test_whoever_looks_for_results_by_the_kind_finds_them_without_strandline(name: str, folder: Path) -> None:
    for p in range(made.PARTITIONS):
        files = sorted((folder / f"output/blocks/p{p:05d}").glob("*.parquet"))
        rows = [row for file in files for row in pq.read_table(file, filters=[("_kind", "=", 0)]).to_pylist()]
        rows.sort(key=lambda row: row["_offset"])
        assert [{n: row[n] for n in made.COLUMN_NAMES} for row in rows] == EXPECTED[name]["results"][p]


@each_state
def test_it_goes_on_with_another_driver_on_another_machine(name: str, folder: Path, tmp_path: Path) -> None:
    streams = made.Outages(folder, ManualClock(made.CLOCK_US + 3_600_000_000))
    assert continued(made.UNION, streams.output.storage) == made.UNION
    streams.live(made.STORY[SINCE[name] :])
    streams.finish()
    found = made.content(streams.output)
    assert found["results"] == EXPECTED["end"]["results"]
    assert found["counted"] == EXPECTED["end"]["counted"]
    assert found["outage"]["state"] == "STABLE"
    for p in range(made.PARTITIONS):
        assert not any(row["_tentative"] for row in found["tentative"][p])
        assert len(found["tentative"][p]) == found["counted"][p]
    assert not verify(streams.output).problems


# ---------------------------------------------------------------------- the bytes, and who may read them


@pytest.mark.parametrize(("name", "file"), COMMITS)
def test_a_manifest_is_encoded_to_the_same_bytes(name: str, file: str) -> None:
    data = (made.FOLDER / name / "output/commits" / file).read_bytes()
    decoded = commit_kinds.decode(data, file)
    assert commit_kinds.encode(decoded) == data
    assert data.startswith(b'{"format":5,' if decoded.kind == "append" else b'{"format":')


def test_a_root_is_encoded_to_the_same_bytes_and_says_what_the_commits_say(tmp_path: Path) -> None:
    folder = made.FOLDER / "stabilization" / "output"
    data = (folder / ROOT_KEY).read_bytes()
    snapshot = Snapshot.decode(data, "golden")
    assert snapshot.encode() == data
    assert data.startswith(b'{"format":5,')
    shutil.copytree(folder, tmp_path / "output")
    shutil.rmtree(tmp_path / "output" / "snapshots")
    assert Log.open(LocalStorage(tmp_path / "output")).state == snapshot.state


def test_a_milestone_that_tells_of_an_outage_says_so_by_its_format() -> None:
    (file,) = (made.FOLDER / "stable/output/milestones").glob("*-golden-*.json")
    data = file.read_bytes()
    assert data.startswith(b'{"format":5,')
    assert manifest.unseal(data, "golden")["state"]["outage"] == EXPECTED["stabilization"]["outage"]


@each_state
@pytest.mark.parametrize("has_index", [True, False])
def test_a_library_that_knows_no_outages_stops(
    name: str, has_index: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_index:
        shutil.rmtree(folder / "output" / "snapshots", ignore_errors=True)
    monkeypatch.setattr(manifest, "_READABLE", (1, 2, 3, 4))
    with pytest.raises(FormatVersionError, match="format version 5, this Strandline reads versions up to 4") as refused:
        Log.open(LocalStorage(folder / "output"))
    assert refused.value.todo == "upgrade Strandline"
    for input_ in ("left", "right"):
        Log.open(LocalStorage(folder / input_))  # these have no bound
