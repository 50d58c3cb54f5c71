"""What barriers and joins set aside: long keys once and for good, and never more than goes through a driver."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from strandline.checkpoint.policy import Policy, cec, instant
from strandline.errors import InputError
from strandline.operators import aside_tables
from strandline.operators.barrier.definition import BarrierDefinition, BarrierInput
from strandline.operators.join.definition import JoinDefinition, JoinInput
from strandline.operators.join.join_windows import JoinWindows
from strandline.operators.kernels import arrow_words, key_codec
from strandline.operators.operator import Definition
from strandline.running import step
from strandline.running.state.state_cache import StateCache
from tests.support.operator_streams import COLUMNS, Row, set_aside
from tests.support.union_streams import UnionStreams

LONG = "k" * 99


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of a little less than 100 bytes are too long."""
    for module in (arrow_words, key_codec):
        monkeypatch.setattr(module, "LENGTH_MAX", 100)


def streams(tmp_path: Path, on_error: Any, machine: list[int]) -> UnionStreams:
    own = tuple((c, kind) for c, kind in COLUMNS.items() if c != "s")
    definition = BarrierDefinition(
        (("s", "string"),), tuple(BarrierInput(name, "t", own) for name in ("left", "right"))
    )
    return UnionStreams(definition, 2, lambda p: StateCache(tmp_path / f"m{machine[0]}-{p}"), 1, on_error)


def rows(first: int, *keys: str) -> list[Row]:
    return [{"k": 1, "s": s, "v": first + i, "x": 0.5, "t": first + i} for i, s in enumerate(keys)]


@pytest.mark.parametrize("policy", [cec(replay=1_000), cec(replay=1), instant("1 ms")], ids=str)
def test_tuples_with_long_keys_are_set_aside_once_and_never_wait(tmp_path: Path, policy: Policy) -> None:
    machine = [0]
    case = streams(tmp_path, "set_aside", machine)
    for at in range(0, 60, 10):
        case.append(0, {0: rows(at, "a", LONG, "b")})
        case.append(1, {0: rows(at, "b", "a", LONG)})
        case.drain(policy)
        machine[0] += 1  # nothing is left on the machine: the state comes from the log
    case.finish()
    case.drain(policy)
    assert len(case.results(0)) == 12
    aside = set_aside(case.output)
    assert list(aside) == ["key"]
    assert sorted(row["left_v"] for row in aside["key"] if row["_at_left"] is not None) == list(range(1, 60, 10))
    assert sorted(row["right_v"] for row in aside["key"] if row["_at_right"] is not None) == list(range(2, 60, 10))
    assert {row["s"] for row in aside["key"]} == {LONG}
    assert case.output.state.standings[0].open == 0


def test_without_leave_to_set_aside_a_long_key_stops_it_and_says_where(tmp_path: Path) -> None:
    case = streams(tmp_path, "stop", [0])
    case.append(0, {0: rows(0, "a", LONG, LONG)})
    case.append(1, {0: rows(0, "a")})
    case.finish()
    with pytest.raises(InputError, match=r"the barrier cannot take a tuple: a key .* 1 more like it") as raised:
        case.drain()
    assert "input left, place 2" in str(raised.value)
    assert list(case.output.blocks(0)) == []


def test_more_than_goes_through_the_driver_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside_tables, "BYTES_MAX", 2_000)
    case = streams(tmp_path, "set_aside", [0])
    for number in (0, 1):
        case.append(number, {0: rows(0, *[LONG] * 40)})
    case.finish()
    with pytest.raises(InputError, match="sets aside more than"):
        case.drain(tuples_max=10_000)
    assert list(case.output.blocks(0)) == []


def joined(how: Any) -> Definition:
    one = JoinInput(dict(COLUMNS), ("s",), "t")
    return JoinDefinition.of(one, one, JoinWindows("band", -1_000, 1_000, how=how), group=4)


def met() -> Definition:
    own = tuple((c, kind) for c, kind in COLUMNS.items() if c != "s")
    return BarrierDefinition(
        (("s", "string"),), tuple(BarrierInput(name, "t", own) for name in ("left", "right")), at_most=2
    )


@pytest.mark.parametrize("policy", [cec(replay=1_000_000), instant("1 h")], ids=str)
@pytest.mark.parametrize(
    "make", [partial(joined, "inner"), partial(joined, "left"), met], ids=["inner", "left", "barrier"]
)
def test_what_steps_could_set_aside_a_recovery_can_pass_over_in_one_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[], Definition], policy: Policy
) -> None:
    """Its pieces are larger than those of a step: of what it only drops it may meet any amount."""
    monkeypatch.setattr(aside_tables, "BYTES_MAX", 20_000)
    monkeypatch.setattr(step, "ROWS_MIN", 20)
    machine = [0]
    case = UnionStreams(make(), 2, lambda p: StateCache(tmp_path / f"m{machine[0]}-{p}"), 1, "set_aside")
    case.append(0, {0: rows(0, "z")})  # waits for all time, so that all is replayed
    for at in range(0, 400, 20):
        for number in (0, 1):
            case.append(number, {0: rows(at, *["a"] * (5 if number else 3), *[LONG] * 15)})
    case.drain(policy)
    machine[0] += 1  # nothing is left on the machine: the state comes from the log
    case.append(0, {0: rows(400, "a", LONG)})
    case.append(1, {0: rows(400, "a", LONG)})
    case.finish()
    case.drain(policy)
    aside = set_aside(case.output)
    assert len(aside["key"]) == 2 * (20 * 15 + 1)
    assert len(aside.get("barrier", [])) == (2 * 20 - 2 if "at_most" in str(case.definition.to_json()) else 0)


def test_a_backlog_of_one_key_is_set_aside_without_the_columns_of_other_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropping the oldest is what a barrier with at_most is for: columns that have no values weigh nothing."""
    own = tuple((c, kind) for c, kind in COLUMNS.items() if c != "s")
    inputs = tuple(BarrierInput(f"i{n}", "t", own) for n in range(6))
    definition = BarrierDefinition((("s", "string"),), inputs, at_most=6)
    case = UnionStreams(definition, 6, lambda p: StateCache(tmp_path / f"state{p}"), 1, "set_aside")
    monkeypatch.setattr(aside_tables, "BYTES_MAX", 100 * 500)
    case.append(0, {0: rows(0, *["a"] * 500)})
    for number in range(1, 6):
        case.append(number, {0: rows(600, "a")})
    case.finish()
    case.drain(tuples_max=10_000)
    assert len(case.results(0)) == 1
    found = set_aside(case.output)["barrier"]
    assert [row["i0_v"] for row in found] == list(range(498))
    assert [row["_at_i0"] for row in found] == list(range(498))
    assert {(row["s"], row["i1_v"], row["i5_x"], row["_at_i5"]) for row in found} == {("a", None, None, None)}


def test_too_much_of_one_time_says_where_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside_tables, "BYTES_MAX", 1_000)
    case = UnionStreams(met(), 2, lambda p: StateCache(tmp_path / f"state{p}"), 1, "set_aside")
    case.append(0, {0: [{"k": 1, "s": "a", "v": i, "x": 0.5, "t": 7} for i in range(100)]})
    case.finish()
    with pytest.raises(InputError, match="sets aside more than") as raised:
        case.drain(tuples_max=10_000)
    assert raised.value.where == "barrier, input left, place 0"
    assert "at_most" in raised.value.todo
