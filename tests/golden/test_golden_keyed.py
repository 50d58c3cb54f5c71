"""Streams of keyed functions that exist are read and go on: with the state, and the version, that they have."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import StreamMismatchError
from strandline.inputs.stream_definition import definition_of, output_spec
from strandline.log.audit.stream_audit import verify
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.spec import SEVERAL_FORMAT, SHAPED_FORMAT
from strandline.recovery.checkpoint_audit import audit
from strandline.recovery.window_report import saved_windows
from tests.golden import make_keyed as made

Streams = tuple[list[Log], Log]


@pytest.fixture(params=made.INPUTS)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def streams(name: str, tmp_path: Path) -> Streams:
    shutil.copytree(made.FOLDER / name, tmp_path / "golden")
    inputs = [Log.open(LocalStorage(tmp_path / "golden" / n)) for n in made.INPUTS[name]]
    return inputs, Log.open(LocalStorage(tmp_path / "golden" / "output"))


def expected(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((made.FOLDER / name / "expected.json").read_text())
    return found


def test_it_is_what_a_program_of_today_would_make(name: str, streams: Streams) -> None:
    inputs, output = streams
    definition = made.definition(name, 2)
    assert output.spec.format == (SHAPED_FORMAT if name == "one" else SEVERAL_FORMAT)
    asked = replace(output.spec, operator=output_spec(definition, inputs[0].spec).operator)
    output.spec.require_same(asked, "here")
    with pytest.raises(StreamMismatchError, match="gone on with version 2"):
        output.spec.require_same(replace(asked, operator={**(asked.operator or {}), "version": 1}), "here")
    known = definition_of(output.spec, "here", [log.spec for log in inputs])
    assert known.to_json() == definition.to_json()


def test_it_is_read_verified_and_its_keys_are_shown(name: str, streams: Streams) -> None:
    inputs, output = streams
    for log in (*inputs, output):
        assert not verify(log).problems
    before = made.content(output)
    assert before["results"] == expected(name)["results"][: len(before["results"])] != []
    (standing,) = output.state.standings
    assert standing.open > 0
    found = audit(output)
    assert (found.open_windows, found.problems) == (standing.open, ())
    keys = saved_windows(output).to_pylist()
    assert {row["_version"] for row in keys} == {2}
    assert {type(row["_state_last"]) for row in keys} <= {str, type(None)}


def test_it_has_nulls_texts_closings_expiries_and_two_versions() -> None:
    for name in made.INPUTS:
        log = Log.open(LocalStorage(made.FOLDER / name / "output"))
        tables = [table for table in log.read(0, columns=["k", "n", "last", "total", "_version", "_state_last"])]
        rows = [row for table in tables for row in table.to_pylist()]
        results = [row for row in rows if row["_kind"] == Kind.RESULT]
        assert {row["_kind"] for row in rows} == {Kind.RESULT, Kind.G_OPEN, Kind.G_CHECK, Kind.CLOSED}
        assert any(row["n"] < 0 for row in results)
        assert {None, "closed"} <= {row["last"] for row in results}
        assert None in {row["k"] for row in results}
        footprints = [row for row in rows if row["_version"] is not None]
        assert {row["_version"] for row in footprints} == {1, 2}
        assert None in {row["_state_last"] for row in footprints}
        assert made.content(log)["aside"]


@pytest.mark.long
def test_it_goes_on_and_its_results_are_what_they_would_have_been(name: str, streams: Streams, tmp_path: Path) -> None:
    inputs, output = streams
    made.append(inputs, made.HALF, made.WHOLE)
    made.finish(inputs)
    made.work(made.definition(name, 2), inputs, output, tmp_path / "cache")
    assert made.content(output) == expected(name)
    assert output.state.finished
    assert not verify(output).problems
