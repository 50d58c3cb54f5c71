"""`verify` tries a recovery out, and names a stream that could not recover."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from unittest import mock

import pytest
from typer.testing import CliRunner

from strandline.checkpoint import saving
from strandline.checkpoint.policy import Policy, cec, instant, none, partial
from strandline.cli.app import app
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.upkeep.retention import truncate
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.recovery.checkpoint_audit import audit
from strandline.running.tick import Tick
from tests.simulation.machines import KeptStates
from tests.support.operator_streams import PLANS, Streams, Tuples
from tests.unit.test_policy_changes import unwritten

every_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)


def written(tmp_path: Path, plan: AggregateDefinition, *policies: Policy) -> Streams:
    """An operator between two streams on the disk, a few batches under each policy."""
    kept, tuples = KeptStates(), Tuples(Random(5))
    storages = (LocalStorage(tmp_path / "in", "os"), LocalStorage(tmp_path / "out", "os"))
    case = Streams(plan, lambda _: kept, 2, storages)  # type: ignore[arg-type,return-value]
    for policy in policies:
        for _ in range(3):
            case.append(tuples.batch(60, 2))
            case.drain(policy)
    return case


@every_plan
@pytest.mark.parametrize("policy", [cec(), cec(extent="1x"), instant("1 hour"), none()], ids=str)
def test_a_good_stream_is_rebuilt_and_replayed(tmp_path: Path, plan: AggregateDefinition, policy: Policy) -> None:
    case = written(tmp_path, plan, cec(), policy)
    found = audit(Log.open(case.output_storage))
    standings = case.output.state.standings
    assert found.problems == ()
    assert found.replayed == sum(s.replay for s in standings)
    wanted = {"eventual": sum(s.open for s in standings), "instant": sum(s.saved for s in standings), "none": 0}
    assert found.open_windows == wanted[policy.mode]


def test_of_a_policy_that_does_not_replay_the_checkpoint_alone_is_rebuilt(tmp_path: Path) -> None:
    case = written(tmp_path, PLANS["session"], cec(), partial("1 hour"))
    found = audit(Log.open(case.output_storage))
    assert (found.problems, found.replayed) == ((), 0)
    assert found.open_windows == sum(s.saved for s in case.output.state.standings) > 0


@every_plan
def test_a_checkpoint_that_was_never_written_is_named(tmp_path: Path, plan: AggregateDefinition) -> None:
    case = written(tmp_path, plan, instant("1 ms"))
    with mock.patch.object(saving, "_since_the_last_whole", unwritten):
        case.append(Tuples(Random(6)).batch(0, 2), {0: [_row(case)], 1: []})
        case.drain(instant("1 hour"))
    result = CliRunner().invoke(app, ["verify", str(tmp_path / "out"), "--json"])
    assert result.exit_code == 1
    problems = json.loads(result.stdout)["problems"]
    assert [p["part"] for p in problems] == ["operator"] * len(problems) != []
    assert "hold footprints of" in problems[0]["what"]
    assert "recovery of partition" in CliRunner().invoke(app, ["verify", str(tmp_path / "out")]).stdout


def _row(case: Streams) -> dict[str, object]:
    return {"k": 2, "s": "two", "v": 1, "x": 1.0, "t": case.input.state.time_max}


@pytest.mark.parametrize("field", ["oldest", "extent"])
def test_a_standing_that_speaks_of_other_footprints_is_named(tmp_path: Path, field: str) -> None:
    case = written(tmp_path, PLANS["tumbling count"], cec(extent=1000))
    publish = Tick.publish

    def lying(tick: Tick, writer: Writer) -> object:
        standing = tick.done[0].standing
        wrong = replace(standing, **{field: getattr(standing, field) + (1 if field == "oldest" else -1)})
        tick.done[0] = replace(tick.done[0], standing=wrong)
        return publish(tick, writer)

    with mock.patch.object(Tick, "publish", lying):
        case.append({0: [_row(case)], 1: []})
        case.drain(cec(extent=1000))
    assert audit(Log.open(case.output_storage)).problems


def test_an_input_that_lost_what_a_replay_needs_is_named(tmp_path: Path) -> None:
    case = written(tmp_path, PLANS["sliding time"], instant("1 hour"))
    assert case.output.state.standings[0].replay > 0
    truncate(case.input, before_offset=case.output.state.standings[0].input)
    (problem, *_) = audit(Log.open(case.output_storage)).problems
    assert "was dropped" in problem.what


def test_without_the_input_the_footprints_alone_are_looked_at(tmp_path: Path) -> None:
    case = written(tmp_path, PLANS["session"], cec())
    (tmp_path / "in").rename(tmp_path / "elsewhere")
    found = audit(Log.open(case.output_storage))
    assert found.problems == ()
    assert found.replayed is None
