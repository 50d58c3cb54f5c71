"""Streams of unions, joins and barriers that exist are read and go on: by the rules that they were made with."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strandline.inputs.stream_definition import continued, definition_of, output_spec
from strandline.log.audit.stream_audit import verify
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.spec import SEVERAL_FORMAT
from strandline.recovery.checkpoint_audit import audit
from strandline.recovery.window_report import current_windows, saved_windows
from tests.golden import make_several as made
from tests.support.operator_streams import set_aside

Streams = tuple[list[Log], Log]


@pytest.fixture(params=["union", "join", "theta", "barrier"])
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def streams(name: str, tmp_path: Path) -> Streams:
    shutil.copytree(made.FOLDER / name, tmp_path / "golden")
    left, right, output = (Log.open(LocalStorage(tmp_path / "golden" / n)) for n in ("left", "right", "output"))
    return [left, right], output


def expected(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((made.FOLDER / name / "expected.json").read_text())
    return found


def test_it_is_what_a_program_of_today_would_make(name: str, streams: Streams) -> None:
    inputs, output = streams
    definition = continued(made.definitions()[name], output.storage)
    assert output.spec.format == SEVERAL_FORMAT == 4
    output.spec.require_same(replace(output.spec, operator=output_spec(definition, inputs[0].spec).operator), "here")
    known = definition_of(output.spec, "here", [log.spec for log in inputs])
    assert known.to_json() == definition.to_json()


def test_it_is_read_verified_and_its_windows_are_shown(name: str, streams: Streams) -> None:
    inputs, output = streams
    for log in (*inputs, output):
        assert not verify(log).problems
    before = made.content(output)
    assert before["results"] == expected(name)["results"][: len(before["results"])] != []
    (standing,) = output.state.standings
    assert standing.marks is not None
    assert standing.open > 0
    assert audit(output).problems == ()
    assert saved_windows(output).num_rows > 0
    assert current_windows(output, inputs).num_rows == standing.open


def test_it_goes_on_and_its_results_are_what_they_would_have_been(name: str, streams: Streams, tmp_path: Path) -> None:
    inputs, output = streams
    made.append(inputs, made.HALF, made.WHOLE)
    made.finish(inputs)
    made.work(continued(made.definitions()[name], output.storage), inputs, output, tmp_path / "cache")
    found, wanted = made.content(output), expected(name)
    assert found["results"] == wanted["results"]
    # Today tuples are set aside input by input.
    assert sorted(map(repr, found["aside"])) == sorted(map(repr, wanted["aside"]))
    assert output.state.finished
    assert not verify(output).problems


def test_the_join_has_groups_of_footprints_and_the_barrier_has_set_aside() -> None:
    join, barrier = (Log.open(LocalStorage(made.FOLDER / name / "output")) for name in ("join", "barrier"))
    rows = [row for table in join.read(0, columns=["_side"]) for row in table.to_pylist()]
    assert {row["_side"] for row in rows if row["_kind"] != Kind.RESULT} == {0, 1}
    assert "left.v <= right.v" in json.dumps(join.spec.operator)
    assert set_aside(barrier)["barrier"]
