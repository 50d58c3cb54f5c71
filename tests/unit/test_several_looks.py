"""What people see of operators over several inputs: inspect, verify, tail and refusals, from stream.json alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.errors import FormatVersionError, StreamMismatchError
from strandline.inputs.stream_definition import output_spec
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream import quiet
from strandline.log.stream.log import Log
from strandline.log.stream.spec import SEVERAL_FORMAT
from strandline.operators.barrier.definition import BarrierDefinition, BarrierInput
from strandline.operators.join.definition import JoinDefinition, JoinInput
from strandline.operators.join.join_windows import JoinWindows
from strandline.operators.operator import Definition
from strandline.running.state.state_cache import StateCache
from tests.support.operator_streams import COLUMNS, Tuples, input_spec
from tests.support.union_streams import UnionStory, UnionStreams

SIDE = JoinInput(dict(COLUMNS), ("k",), "t")
OWN = tuple((name, kind) for name, kind in COLUMNS.items() if name != "k")


def join(windows: JoinWindows, where: Callable[..., Any] | None = None) -> JoinDefinition:
    return JoinDefinition.of(SIDE, SIDE, windows, where)


OPERATORS: dict[str, Definition] = {
    "left join, right 0 to 10 after left": join(JoinWindows("band", 0, 10, how="left"), lambda left, right: left.v < 9),
    "join of the last 3 of left and the last 0 of right": join(JoinWindows("key", sizes=(3, 0))),
    "barrier of in0 and in1": BarrierDefinition(
        (("k", "long"),), (BarrierInput("in0", "t", OWN), BarrierInput("in1", "t", OWN))
    ),
}


@pytest.fixture
def worked(request: pytest.FixtureRequest, tmp_path: Path) -> UnionStreams:
    """Streams in a folder in which an operator has worked for a while."""
    streams = UnionStreams(
        OPERATORS[request.param], 2, lambda p: StateCache(tmp_path / f"state{p}"), 2, "set_aside", tmp_path
    )
    story = UnionStory(Random(5), streams)
    for _ in range(40):
        story.grow()
    streams.drain(tuples_max=100)
    return streams


@pytest.mark.parametrize("worked", OPERATORS, indirect=True)
def test_inspect_verify_and_tail_know_the_operator_from_its_stream(
    worked: UnionStreams, request: pytest.FixtureRequest
) -> None:
    path, said = worked.output.storage.url, request.node.callspec.params["worked"]
    kept = sum(s.open for s in worked.output.state.standings)
    assert kept > 0
    shown = CliRunner().invoke(app, ["inspect", path], env={"COLUMNS": "80"}, catch_exceptions=False)
    assert said in " ".join(shown.output.split())
    assert max(map(len, shown.output.splitlines())) <= 80
    checked = CliRunner().invoke(app, ["verify", path], env={"COLUMNS": "80"}, catch_exceptions=False)
    assert checked.exit_code == 0, checked.output
    assert CliRunner().invoke(app, ["tail", path], catch_exceptions=False).exit_code == 0


def test_another_join_over_an_old_stream_is_refused_in_words() -> None:
    wide, narrow = (output_spec(join(JoinWindows("band", 0, high, how="left")), input_spec(["k"])) for high in (10, 5))
    with pytest.raises(StreamMismatchError, match=r"left join, right 0 to 10 after left; in this program: left join"):
        wide.require_same(replace(narrow, id=wide.id), "here")


def test_sides_that_were_swapped_are_told_by_their_columns() -> None:
    other = JoinInput({"k": "long", "t": "long", "paid": "double"}, ("k",), "t")
    windows = JoinWindows("band", -3, 3)
    ours, theirs = (
        output_spec(JoinDefinition.of(*sides, windows), input_spec(["k"])) for sides in ((SIDE, other), (other, SIDE))
    )
    with pytest.raises(StreamMismatchError, match=r"right \(t long, paid double\), this program left \(t long, paid"):
        ours.require_same(replace(theirs, id=ours.id), "here")


def test_versions_before_do_not_take_a_stream_over_several_inputs_for_one_over_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    streams = UnionStreams(
        OPERATORS["barrier of in0 and in1"], 2, lambda p: StateCache(tmp_path / str(p)), folder=tmp_path
    )
    assert streams.output.spec.format == SEVERAL_FORMAT
    monkeypatch.setattr("strandline.log.stream.spec._READABLE", (1, 2, 3))
    with pytest.raises(FormatVersionError):
        Log.open(LocalStorage(Path(streams.output.storage.url)))


@pytest.mark.parametrize("name", OPERATORS)
def test_a_column_that_was_added_to_an_input_does_not_make_it_another_operator(name: str) -> None:
    definition = OPERATORS[name]
    stored = output_spec(definition, input_spec(["k"])).operator
    if isinstance(definition, JoinDefinition):
        more: Definition = replace(
            definition, columns=((*definition.columns[0], ("new", "long")), definition.columns[1])
        )
        less: Definition = replace(definition, columns=(definition.columns[0][1:], definition.columns[1]))
    else:
        assert isinstance(definition, BarrierDefinition)
        first, second = definition.inputs
        more = replace(definition, inputs=(replace(first, columns=(*first.columns, ("new", "long"))), second))
        less = replace(definition, inputs=(replace(first, columns=first.columns[1:]), second))
    assert more.continuing(stored) == definition
    assert less.continuing(stored) == less, "its stream has a column that is gone"
    assert more.continuing(None) == more


def test_inspect_says_which_input_holds_up_the_others(tmp_path: Path) -> None:
    definition = OPERATORS["barrier of in0 and in1"]
    streams = UnionStreams(definition, 2, lambda p: StateCache(tmp_path / f"state{p}"), 2, folder=tmp_path)
    path = streams.output.storage.url

    def looked() -> tuple[str, dict[str, Any]]:
        text = CliRunner().invoke(app, ["inspect", path], env={"COLUMNS": "80"}, catch_exceptions=False).output
        assert max(map(len, text.splitlines())) <= 80
        told = CliRunner().invoke(app, ["inspect", path, "--json"], catch_exceptions=False)
        return " ".join(text.replace("│", " ").split()), json.loads(told.output)["operator"]

    assert looked()[1]["waits_for"] is None  # nobody waits for anybody
    tuples = [Tuples(Random(n)) for n in range(2)]
    streams.append(0, tuples[0].batch(60, 2))
    streams.drain()
    text, told = looked()
    at = streams.inputs[0].state.boundary
    assert told["waits_for"] == f"waits for input1: it has no boundary yet, input0 is at {at} (60 tuples wait)"
    assert told["waits_for"] in text
    assert [(i["boundary"], i["waiting"]) for i in told["inputs"]] == [(at, 60), (None, 0)]

    streams.append(1, tuples[1].batch(10, 2))
    assert looked()[1]["waits_for"] is None, "it is the operator's turn"
    streams.drain()
    text, told = looked()
    behind, ahead = (log.state.boundary for log in reversed(streams.inputs))
    assert behind is not None
    assert ahead is not None
    assert f"waits for input1: its boundary is {behind}, input0 is at {ahead}" in told["waits_for"]
    assert told["inputs"][1]["behind"] == ahead - behind > 0
    assert told["inputs"][0]["waiting"] > 0 == told["inputs"][0]["behind"]
    assert f"input1 {behind} {ahead - behind}" in text

    quiet.finish(streams.inputs[1], "run")
    streams.drain()
    text, told = looked()
    assert told["waits_for"] is None or told["waits_for"].startswith("waits for input0")
    assert "input1 finished" in text

    shutil.rmtree(tmp_path / "input1")
    text, told = looked()
    assert "no stream" in told["inputs"][1]["problem"]
    assert told["waits_for"] is None
