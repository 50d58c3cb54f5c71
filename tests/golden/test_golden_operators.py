"""Streams of operators that exist go on: by the rules, and with the state, that they were made with."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from strandline.inputs.stream_definition import continued, definition_of
from strandline.log.audit.stream_audit import verify
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.aggregate.windows import session_window
from strandline.recovery.checkpoint_audit import audit
from tests.golden import make_operators as made
from tests.support.operator_streams import output_spec

NOW = {**made.WINDOWS, "sessions": session_window(made.GAP)}
"""The windows as a program of today says them."""


@pytest.fixture(params=NOW)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def logs(name: str, tmp_path: Path) -> tuple[Log, Log]:
    shutil.copytree(made.FOLDER / name, tmp_path / "golden")
    input_, output = (Log.open(LocalStorage(tmp_path / "golden" / stream)) for stream in ("input", "output"))
    return input_, output


def test_it_goes_on_and_its_results_are_what_they_would_have_been(
    name: str, logs: tuple[Log, Log], tmp_path: Path
) -> None:
    input_, output = logs
    asked = AggregateDefinition.of(NOW[name], made.AGGREGATES[name], made.COLUMNS, ["k"], "t")
    plan = continued(asked, output.storage)
    output.spec.require_same(replace(output.spec, operator=output_spec(plan).operator), "here")
    made.append(input_, 41, 60)
    made.append(input_, 60, 90)
    made.work(plan, input_, output, tmp_path / "cache")
    assert made.results(output) == json.loads((made.FOLDER / name / "expected.json").read_text())
    assert not verify(output).problems


def test_its_windows_are_read_by_its_own_rules(name: str, logs: tuple[Log, Log]) -> None:
    input_, output = logs
    assert definition_of(output.spec, "here", [input_.spec]) == made.plan(name)
    found = audit(output)
    assert (found.open_windows, found.problems) == (sum(s.open for s in output.state.standings), ())
