"""Somebody sets the clock of the machine, by an hour, forward or back: bounds and patience go by time that passes."""

from pathlib import Path

import pytest

from strandline.clock import SYSTEM_CLOCK, ManualClock
from strandline.errors import StreamNotFoundError
from strandline.inputs.replicas.replica_set import ReplicaSet
from strandline.log.stream.kinds import Kind
from strandline.spark.read.stream import once_there
from tests.support.available_case import Case
from tests.support.written_replicas import Written

HOUR_S = 3600.0
JUMPS = pytest.mark.parametrize("jump_s", [-HOUR_S, HOUR_S], ids=["back", "forward"])


def silent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    """Both inputs were there; now the south is silent, and a tuple of the north waits since half of the bound."""
    case = Case(folder, monkeypatch)
    for number in (0, 1):
        case.write(number, 0, 25)
    case.tick()
    case.write(0, 25, 45)
    case.tick()
    case.tick(0.5)
    assert case.reports[-1]["state"] == "STABLE"
    return case


@JUMPS
def test_a_bound_runs_out_when_its_time_has_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    case = silent(tmp_path, monkeypatch)
    case.clock.jump(jump_s)
    assert case.tick(0.3)["state"] == "STABLE", "0.8 s of 1 s"
    assert case.told() == ["stable"] * 2
    report = case.tick(0.3)
    assert (report["state"], report["missing"]) == ("UP_FAILURE", ["south"])
    assert report["since_us"] == case.clock.now_us(), "what is shown is the clock on the wall"
    assert case.told() == ["stable"] * 2 + ["tentative"] * 2
    case.clock.jump(-2 * jump_s)
    case.write(1, 25, 45)
    assert case.tick()["state"] == "STABLE"


@JUMPS
def test_guesses_go_on_after_a_jump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float) -> None:
    case = silent(tmp_path, monkeypatch)
    assert case.tick(0.6)["tentative"] == 2
    case.clock.jump(jump_s)
    case.write(0, 45, 65)
    assert case.tick()["tentative"] == 4


@JUMPS
def test_a_driver_that_goes_on_after_a_jump_makes_its_guesses_anew_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    case = silent(tmp_path, monkeypatch)
    assert case.tick(0.6)["tentative"] == 2
    case.clock.jump(jump_s)
    case.job = case.started(case.job._promise)
    case.write(0, 45, 65)
    assert case.tick()["tentative"] == 4


@JUMPS
def test_a_replica_is_behind_when_the_patience_has_passed(jump_s: float) -> None:
    clock, one, other = ManualClock(1_000_000_000), Written("one"), Written("other")
    for each in (one, other):
        each.append([(Kind.RESULT, 10)], boundary=10)
    found = ReplicaSet([one.open, other.open], clock=clock, patience_us=1_000_000)
    found.look()
    one.append([(Kind.RESULT, 20)], boundary=20)
    clock.advance(0.1)

    def behind() -> list[bool]:
        return [sight is not None and sight.is_behind for sight in found.look()]

    assert behind() == [False, False]
    clock.jump(jump_s)
    clock.advance(0.5)
    assert behind() == [False, False]
    clock.advance(0.5)
    assert behind() == [False, True]


@JUMPS
def test_who_waits_for_a_stream_waits_as_long_as_was_said(jump_s: float) -> None:
    clock, looks = ManualClock(1_000_000_000), []

    def nothing_there() -> None:
        looks.append(clock.steady_us())
        if len(looks) == 2:
            clock.jump(jump_s)
        raise StreamNotFoundError("there is no stream here")

    with pytest.raises(StreamNotFoundError):
        once_there(nothing_there, 5_000_000, clock)
    assert looks[-1] - looks[0] == 5_000_000


def test_the_steady_clock_of_the_machine_runs() -> None:
    before_us = SYSTEM_CLOCK.steady_us()
    SYSTEM_CLOCK.sleep(0.01)
    assert 10_000 <= SYSTEM_CLOCK.steady_us() - before_us < 60_000_000
