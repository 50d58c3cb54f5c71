"""The picture of an outage: what the manifests tell, in a terminal of 80 columns and as an image."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from typer.testing import CliRunner

from examples.demo.outage_sketch import LEGEND, sketch
from examples.demo.outage_story import (
    InputCommit,
    OutageStory,
    OutputCommit,
    Told,
    longest_waits,
    outage_story,
    told,
)
from examples.demo.outage_svg import svg
from strandline.cli.app import app
from strandline.log.operator_state.outage import Outage
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.testing import MemoryStorage
from tests.support.items import append_items, item_spec
from tests.support.written_outage import STABLE, Output, fork

SVG = "{http://www.w3.org/2000/svg}"
_S = 1_000_000


def failed() -> tuple[Log, Output]:
    """An input with three commits, and an operator that guesses in the fifth second and is corrected in the eighth."""
    output = Output()
    input_ = Log.create(MemoryStorage(output.clock), item_spec(1), output.clock)
    append_items(input_, {0: [(0, 1, 1)]})
    output.append([(Kind.RESULT, 1 * _S)], STABLE, 1 * _S)
    output.clock.advance(2)
    append_items(input_, {0: [(0, 2, 2), (0, 3, 3)]})
    output.append([(Kind.RESULT, 2 * _S), (Kind.G_OPEN, 9 * _S)], STABLE, 2 * _S)
    output.clock.advance(3)
    guess = [(Kind.TENTATIVE, 3 * _S), (Kind.TENTATIVE, 4 * _S)]
    output.append(guess, Outage("UP_FAILURE", 6, (1,), forks=fork(0, 2, 2)), 2 * _S)
    output.clock.advance(2)
    corrected = [(Kind.UNDO, 0), (Kind.RESULT, 3 * _S)]
    output.append(corrected, Outage("STABILIZATION", 7, (), (1,), 4 * _S, fork(6, 0, 2)), 3 * _S)
    output.clock.advance(1)
    append_items(input_, {0: [(0, 4, 4)]})
    output.append([(Kind.RESULT, 4 * _S), (Kind.REC_DONE, 0)], STABLE, 4 * _S)
    output.clock.advance(2)
    return input_, output


def test_the_story_is_what_the_manifests_say() -> None:
    input_, output = failed()
    story = outage_story({"a": input_}, output.log, 2 * _S, output.clock.now_us())
    assert story.seconds == pytest.approx(8, abs=0.01)
    assert [(round(a.seconds), a.tuples) for a in story.inputs["a"]] == [(0, 2), (6, 1)]
    assert [(m.state, m.stable, m.tentative, m.undo, m.rec_done) for m in story.moments] == [
        ("STABLE", 1, 0, 0, 0),
        ("UP_FAILURE", 0, 2, 0, 0),
        ("STABILIZATION", 1, 0, 1, 0),
        ("STABLE", 1, 0, 0, 1),
    ]
    assert [(round(first), round(end), state) for first, end, state in story.states] == [
        (0, 3, "STABLE"),
        (3, 5, "UP_FAILURE"),
        (5, 6, "STABILIZATION"),
        (6, 8, "STABLE"),
    ]


def test_results_are_told_with_when_they_came_and_how_long_that_took() -> None:
    _, output = failed()
    results = told(output.log, 2 * _S)
    assert [(round(one.seconds), one.time_s, one.is_tentative) for one in results] == [
        (0, 0.0, False),
        (3, 1.0, True),
        (3, 2.0, True),
        (5, 1.0, False),
        (6, 2.0, False),
    ]
    waited_s, stable_s = longest_waits(results)
    assert (round(waited_s), round(stable_s)) == (2, 4)
    assert longest_waits([]) == (0.0, 0.0)


def test_the_sketch_says_it_all_without_colour_in_80_columns() -> None:
    input_, output = failed()
    lines = [line.plain for line in sketch(outage_story({"north-west": input_}, output.log, 1, output.clock.now_us()))]
    assert max(map(len, lines)) <= 80
    assert LEGEND in lines[-1]
    named = {line.split()[0]: line[17:] for line in lines if line[3:].strip() and line[3] != " "}
    assert list(named)[:5] == ["north-west", "state", "stable", "tentative", "undo"]
    assert [mark for i, mark in enumerate(named["state"]) if i == 0 or named["state"][i - 1] != mark] == list("·x~·")
    assert named["undo"].split() == ["U", "R"]
    at = named["state"].index
    assert named["tentative"].index("█") == at("x"), "a guess is where the failure begins"
    assert named["undo"].index("U") == at("~")
    assert lines[-2].split() == ["0", "s", "5", "s"]


@pytest.mark.parametrize("seconds", [0.0, 0.4, 30.0, 4_000.0, 1e6])
def test_a_story_of_any_length_is_drawn(seconds: float) -> None:
    moments = (OutputCommit(0.0, "STABLE", 1), OutputCommit(seconds, "STABILIZATION", 1, 1, 1, 1))
    story = OutageStory(seconds, {"a": (InputCommit(seconds, 1),), "b": ()}, moments)
    assert max(len(line.plain) for line in sketch(story)) <= 80
    ET.fromstring(svg(story, [], ""))


def test_nothing_at_all_can_be_drawn() -> None:
    assert sketch(OutageStory(0.0, {}, ()))
    ET.fromstring(svg(OutageStory(0.0, {}, ()), [], ""))


def test_the_image_has_a_mark_for_each_result_and_names_are_escaped() -> None:
    input_, output = failed()
    story = outage_story({"a<b": input_}, output.log, 2 * _S, output.clock.now_us())
    results = [*told(output.log, 2 * _S), Told(7.0, 6.0, False)]
    root = ET.fromstring(svg(story, results, "x & y"))
    circles = root.findall(f"{SVG}circle")
    assert len(circles) == len(results) + 2, "and the legend's"
    assert sum(circle.get("fill") == "none" for circle in circles) == 2 + 1
    texts = [text.text for text in root.findall(f"{SVG}text")]
    assert "a<b" in texts
    assert "x & y" in texts


def test_an_unknown_demo_is_refused_with_those_there_are() -> None:
    result = CliRunner().invoke(app, ["demo", "recovry"])
    assert result.exit_code == 1
    assert "choose one of recovery, availability" in result.output


@pytest.mark.parametrize(("silence", "problem"), [("soon", "is not a duration"), ("5", "has no unit")])
def test_a_silence_that_is_none_is_refused_before_anything_is_deleted(
    silence: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "streams/demo-availability").mkdir(parents=True)
    result = CliRunner().invoke(app, ["demo", "availability", "--silence", silence])
    assert result.exit_code == 1
    assert problem in result.output
    assert (tmp_path / "streams/demo-availability").exists()
