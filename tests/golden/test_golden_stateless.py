"""Streams of stateless operators that exist are read and go on: by the rules that they were made with."""

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
from strandline.log.stream.log import Log
from strandline.log.stream.spec import SEVERAL_FORMAT, SHAPED_FORMAT
from strandline.recovery.checkpoint_audit import audit
from tests.golden import make_stateless as made
from tests.golden.make_several import HALF, WHOLE, append, content, finish, work
from tests.support.operator_streams import set_aside

Streams = tuple[list[Log], Log]


@pytest.fixture(params=["filter", "union"])
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
    definition = continued(made.definitions()[name], output.storage)
    assert output.spec.format == {"filter": SHAPED_FORMAT, "union": SEVERAL_FORMAT}[name]
    today = output_spec(definition, inputs[0].spec)
    assert today.operator == output.spec.operator
    assert today.lateness == output.spec.lateness
    output.spec.require_same(replace(output.spec, operator=today.operator), "here")
    assert definition_of(output.spec, "here", [log.spec for log in inputs]) == definition


def test_it_is_read_and_verified_and_nothing_is_open(name: str, streams: Streams) -> None:
    inputs, output = streams
    for log in (*inputs, output):
        assert not verify(log).problems
    before = content(output)
    assert before["results"] == expected(name)["results"][: len(before["results"])] != []
    assert {kind for block in output.blocks(0) for kind in block.rows} == {"result"}
    (standing,) = output.state.standings
    assert (standing.open, standing.extent, standing.replay) == (0, 0, 0)
    assert audit(output).problems == ()


def test_it_goes_on_and_its_results_are_what_they_would_have_been(name: str, streams: Streams, tmp_path: Path) -> None:
    inputs, output = streams
    append(inputs, HALF, WHOLE)
    finish(inputs)
    work(continued(made.definitions()[name], output.storage), inputs, output, tmp_path / "cache")
    assert content(output) == expected(name)
    assert output.state.finished
    assert not verify(output).problems


def test_the_union_has_set_tuples_aside() -> None:
    assert set_aside(Log.open(LocalStorage(made.FOLDER / "union" / "output")))["value"]
