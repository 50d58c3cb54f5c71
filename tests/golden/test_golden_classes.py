"""A stream of a user's class that exists is read and goes on, with the state that it has."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from strandline.inputs.stream_definition import definition_of, output_spec
from strandline.log.audit.stream_audit import verify
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.log.stream.spec import SHAPED_FORMAT
from strandline.recovery.checkpoint_audit import audit
from strandline.recovery.window_report import saved_windows
from tests.golden import make_classes as made

EXPECTED = json.loads((made.FOLDER / "expected.json").read_text())
TYPES = {
    "table": '{"numpy": "<f4", "shape": [2, 3], "order": "C"}',
    "columns": '{"numpy": "<f8", "shape": [2, 3], "order": "F"}',
    "small": '{"number": "<f4"}',
    "seen": '{"arrow": "array"}',
    "values": '{"arrow": "chunked"}',
    "n": '"integer"',
    "total": '"double"',
    "is_odd": '"boolean"',
    "last": '"string"',
    "raw": '"bytes"',
}


@pytest.fixture
def streams(tmp_path: Path) -> tuple[list[Log], Log]:
    shutil.copytree(made.FOLDER, tmp_path / "golden")
    return [Log.open(LocalStorage(tmp_path / "golden" / "left"))], Log.open(
        LocalStorage(tmp_path / "golden" / "output")
    )


def test_it_is_what_a_program_of_today_would_make(streams: tuple[list[Log], Log]) -> None:
    (input_,), output = streams
    assert output.spec.format == SHAPED_FORMAT
    output.spec.require_same(
        replace(output.spec, operator=output_spec(made.definition(), input_.spec).operator), "here"
    )
    assert definition_of(output.spec, "here", [input_.spec]).to_json() == made.definition().to_json()


def test_it_is_read_verified_and_its_state_is_shown(streams: tuple[list[Log], Log]) -> None:
    (input_,), output = streams
    for log in (input_, output):
        assert not verify(log).problems
    before = made.content(output)
    assert before["results"] == EXPECTED["results"][: len(before["results"])] != []
    assert before["aside"] == EXPECTED["aside"][: len(before["aside"])] != []
    found = audit(output)
    assert (found.open_windows, found.problems) == (1, ())
    assert {row["_name"]: row["_type"] for row in saved_windows(output).to_pylist()} == TYPES


def test_it_goes_on_and_its_results_are_what_they_would_have_been(
    streams: tuple[list[Log], Log], tmp_path: Path
) -> None:
    inputs, output = streams
    assert output.state.standings[0].replay > 0  # the last step has saved nothing
    made.append(inputs, made.HALF, made.WHOLE)
    made.finish(inputs)
    made.work(inputs, output, tmp_path / "cache")
    assert made.content(output) == EXPECTED
    assert output.state.finished
    assert not verify(output).problems
