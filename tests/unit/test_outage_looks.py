"""What people see of an operator with a bound, and of one that waits for its results: inspect, describe, progress."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import strandline as sl
from strandline.cli.app import app
from strandline.inputs.stream_definition import output_spec
from strandline.log.operator_state.outage import Outage
from strandline.log.operator_state.upstream import Origin, upstream_of
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.append_commit import Append
from strandline.log.stream.log import Log
from strandline.running import fork as forks
from strandline.running.element import Element
from strandline.spark.operator.operator_inputs import OperatorInputs
from strandline.spark.operator.operator_job import OperatorJob
from strandline.spark.session.place import Place
from tests.support.available_case import CONTEXT, HOUSEKEEPING, Case
from tests.support.inputs_over import inputs_over


def inspected(path: str) -> str:
    found = CliRunner().invoke(app, ["inspect", path])
    assert found.exit_code == 0, found.output
    return " ".join(found.output.split())


def fail(case: Case) -> None:
    """The south stays away for longer than the bound."""
    for number in range(2):
        case.write(number, 0, 15)
    case.tick()
    case.write(0, 15, 35)
    case.tick()
    case.tick(1.0)


def linked(case: Case) -> None:
    """Says in its stream what its inputs are, as Spark's driver would have."""
    log = Log.open(case.place.storage())
    origins = [Origin(i.spec.id, str(f)) for i, f in zip(case.inputs, case.folders, strict=True)]
    spec = replace(log.spec, upstream=upstream_of(origins))
    case.place.storage().put("stream.json", spec.to_json())


def test_inspect_shows_the_state_since_when_who_is_missing_and_what_is_tentative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(tmp_path, monkeypatch)
    linked(case)
    fail(case)
    told = inspected(case.place.url)
    assert "UP_FAILURE since 1970-01-01 00:00:02" in told
    assert "missing: south" in told
    assert "2 tentative results" in told
    assert "blocked" not in told
    case.write(1, 15, 35)
    case.tick()
    told = inspected(case.place.url)
    assert "STABLE since" in told
    assert "missing" not in told
    assert "tentative" not in told


def test_inspect_says_that_a_join_is_blocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(tmp_path, monkeypatch, lambda a, b: a.join(b, within=3))
    linked(case)
    Log.open(case.place.storage()).append(Append(outage=Outage("UP_FAILURE", 5, missing=(1,))))
    told = inspected(case.place.url)
    assert "without south an inner join has only what it kept to match: it is blocked until south" in told


def test_inspect_and_progress_say_why_a_fork_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise RuntimeError("no such luck")

    case = Case(tmp_path, monkeypatch)
    linked(case)
    monkeypatch.setattr(forks, "_take_in", failing)
    fail(case)
    assert case.reports[-1]["problems"] == {0: "RuntimeError: no such luck"}
    told = inspected(case.place.url)
    assert "no guesses in partition 0 until more is certain: RuntimeError: no such luck" in told


@pytest.mark.parametrize("policy", [sl.none(), sl.partial("10 s"), sl.cec()], ids=str)
def test_an_operator_that_loses_tuples_says_that_it_takes_in_stable_ones_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: sl.Policy
) -> None:
    case = Case(tmp_path, monkeypatch)
    place, log = Place(case.place.url), Log.open(case.place.storage())
    second = sl.stream(case.place.url).window(sl.time_window(20)).aggregate(most=sl.max("n"))
    output = Log.create(LocalStorage(tmp_path / "second"), output_spec(second.definition, log.spec, None))
    inputs, where = OperatorInputs([place], inputs_over([log])), (Place(str(tmp_path / "second")), output)
    job = OperatorJob(CONTEXT, Element(second.definition, policy), inputs, where, HOUSEKEEPING)
    assert "stable_only" not in job.lags, "nothing is known of a bound"
    fail(case)
    log.refresh()
    why = f"waits for the stable tuples of results: under sl.{policy!r} a failure loses tuples"
    assert job.lags.get("stable_only", "").startswith(why) is not policy.replays
    assert job.lags["waits_for"].startswith("waits for results")
    case.write(1, 15, 35)
    case.tick()
    log.refresh()
    assert ("stable_only" in job.lags) is not policy.replays, "whether there are tentative tuples now or not"


def test_an_operator_over_one_input_says_that_this_has_only_tentative_tuples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(tmp_path, monkeypatch)
    fail(case)
    first = sl.stream(case.place.url)
    second = first.window(sl.time_window(20)).aggregate(most=sl.max("n"))
    log = first._input_place.open()
    upstream = upstream_of([Origin(log.spec.id, case.place.url)])
    spec = replace(output_spec(second.definition, log.spec, None), upstream=upstream)
    Log.create(LocalStorage(tmp_path / "second"), spec)
    text = "waits for results: its boundary is 15 and 2 tuples behind it are only tentative"
    assert OperatorInputs([Place(case.place.url)], inputs_over([log])).lags([]) == {"waits_for": text}
    assert text in inspected(str(tmp_path / "second"))
    case.write(1, 15, 35)
    case.tick()
    log.refresh()
    assert OperatorInputs([Place(case.place.url)], inputs_over([log])).lags([]) == {}
    assert "waits for" not in inspected(str(tmp_path / "second"))
