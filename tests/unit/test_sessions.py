"""Which tuples are in one session: those at most a gap apart, unless the stream was made when that was otherwise."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from strandline.errors import StreamMismatchError
from strandline.inputs.stream_definition import continued, definition_of
from strandline.log.stream.log import Log
from strandline.operators.aggregate import aggregates as agg
from strandline.operators.aggregate.windows import Window, session_window
from strandline.running.state.state_cache import StateCache
from strandline.testing import MemoryStorage
from tests.support.operator_streams import LATENESS, Row, Streams, output_spec, plan, uninterrupted

GAP = 5
OLD = Window("session", GAP, GAP)


def row(time: int, key: int = 1) -> Row:
    return {"k": key, "s": "a", "v": time, "x": 0.5, "t": time}


def counting(window: Window):  # type: ignore[no-untyped-def]
    return plan(window, ["k"], n=agg.count_all(), last=agg.last("v"))


def sessions(window: Window, times: list[int]) -> list[tuple[int, int, int]]:
    """Start, end and number of tuples of each."""
    found = uninterrupted(counting(window), [row(t) for t in times], 1_000).to_pylist()
    return [(r["window_start"], r["window_end"], r["n"]) for r in found]


def test_tuples_exactly_a_gap_apart_are_one_session() -> None:
    assert sessions(session_window(GAP), [0, 5, 10, 16]) == [(0, 15, 3), (16, 21, 1)]
    assert sessions(session_window(GAP), [10, 0, 5]) == [(0, 15, 3)], "a tuple joins those a gap before and after it"


def test_under_the_rule_of_old_they_are_two() -> None:
    assert sessions(OLD, [0, 5, 9, 15]) == [(0, 5, 1), (5, 14, 2), (15, 20, 1)]


def test_a_session_waits_for_a_tuple_that_comes_exactly_a_gap_after_its_last_one(tmp_path: Path) -> None:
    s = Streams(counting(session_window(GAP)), lambda p: StateCache(tmp_path / str(p)))
    s.append([row(0), row(GAP + LATENESS, key=2)])  # the boundary is at 5, where the session ends
    s.drain()
    assert s.results().num_rows == 0
    s.append([row(GAP)])
    s.append([row(40, key=2)])
    s.drain()
    assert [(r["k"], r["window_end"], r["n"]) for r in s.results().to_pylist()] == [(1, 10, 2), (2, 18, 1)]


def test_results_are_the_same_wherever_the_input_is_cut_and_whatever_is_lost(tmp_path: Path) -> None:
    p = counting(session_window(GAP))
    for seed in range(20):
        rng = Random(seed)
        times = sorted(rng.randrange(0, 60, 5) + rng.choice([0, 0, 1]) for _ in range(30))
        rows = [row(t, rng.randrange(2)) for t in times] + [row(1_000)]
        storages = (MemoryStorage(), MemoryStorage())
        s = Streams(p, lambda _: StateCache(tmp_path / str(rng.random())), storages=storages)  # noqa: B023
        for first in range(0, len(rows), 4):
            s.append(rows[first : first + 4])
            s.drain()
        assert s.results() == uninterrupted(p, rows, 1_000 - LATENESS), seed


def test_a_new_stream_says_by_which_rule_and_an_older_program_is_refused() -> None:
    new, old = counting(session_window(GAP)), counting(OLD)
    assert new.to_json()["window"] == {"kind": "session", "gap": GAP, "includes_gap": True}
    assert old.to_json()["window"] == {"kind": "session", "gap": GAP}, "as older versions wrote and write it"
    storage = MemoryStorage()
    log = Log.create(storage, output_spec(new))
    assert definition_of(log.spec, "here").window == session_window(GAP)
    with pytest.raises(StreamMismatchError, match="another operator"):
        Log.create(storage, output_spec(old))


def test_a_program_goes_on_with_a_stream_of_old_under_the_rule_of_old() -> None:
    storage = MemoryStorage()
    assert continued(counting(session_window(GAP)), storage).window.includes_gap, "there is no stream yet"
    Log.create(storage, output_spec(counting(OLD)))
    mine = continued(counting(session_window(GAP)), storage)
    assert mine.window == OLD
    assert Log.create(storage, output_spec(mine)).spec.operator is not None
    other = continued(counting(session_window(GAP + 1)), storage)
    with pytest.raises(StreamMismatchError):
        Log.create(storage, output_spec(other))
