"""What a barrier sets aside: long keys once and for good, and never more than goes through a driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from strandline.checkpoint.policy import Policy, cec, instant
from strandline.errors import InputError
from strandline.operators import arrow_words, aside_tables, key_codec
from strandline.operators.barrier.definition import BarrierDefinition, BarrierInput
from strandline.processing.state_cache import StateCache
from tests.operator_streams import COLUMNS, Row, set_aside
from tests.union_streams import UnionStreams

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
    with pytest.raises(InputError, match=r"no barrier can take: a key .* 1 more like it") as raised:
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
