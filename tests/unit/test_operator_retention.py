"""Retention of an operator's stream counts results: footprints of open windows are no times, and offsets no clocks."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from unittest import mock

import pyarrow.compute as pc
import pytest

from strandline.checkpoint.policy import cec
from strandline.log.audit.stream_audit import verify
from strandline.log.index.seek import offsets_at
from strandline.log.stream import block as blocks_
from strandline.log.stream.log import Log
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.retention import apply_retention
from strandline.operators.aggregate import aggregates as agg
from strandline.operators.aggregate.windows import Window, count_window, session_window, time_window
from strandline.running.state.state_cache import StateCache
from tests.support.operator_streams import LATENESS, Row, Streams, plan

HORIZON = 1_000


def streams(window: Window, tmp_path: Any, partitions: int = 1) -> Streams:
    caches = [StateCache(tmp_path / str(p)) for p in range(partitions)]
    return Streams(plan(window, ["k"], total=agg.sum("v")), lambda p: caches[p], partitions)


def rows(times: list[int], key: int = 1) -> list[Row]:
    return [{"k": key, "s": "", "v": 1, "x": 0.0, "t": t} for t in times]


def ends(log: Log, partition: int = 0) -> list[int]:
    """The ends of the windows whose results are there."""
    tables = log.read(partition)
    return [e for t in tables for e in t.filter(pc.equal(t.column("_kind"), 0)).column("window_end").to_pylist()]


def wide(data: bytes, spec: Any, *args: Any) -> blocks_.Block:
    """A block as it was described before: with the times of footprints."""
    block = _describe(data, spec, *args)
    times = blocks_.decode(data, spec, block.first).column(spec.time).to_pylist()
    return replace(block, time_min=min(times), time_max=max(times))


_describe = blocks_.describe


@contextmanager
def as_before() -> Iterator[None]:
    """Inside, streams are written as those that exist: the times of footprints count."""
    everything = property(lambda block: True)
    with mock.patch.object(blocks_, "describe", wide), mock.patch.object(blocks_.Block, "has_results", everything):
        yield


WAYS = pytest.mark.parametrize("way", [nullcontext, as_before], ids=["as today", "as before"])


@WAYS
@pytest.mark.parametrize("window", [time_window(HORIZON), session_window(HORIZON)])
def test_windows_that_are_open_do_not_make_results_old(window: Window, way: Any, tmp_path: Any) -> None:
    s = streams(window, tmp_path, partitions=2)
    for i in range(5):
        now = i * (HORIZON + 10)
        s.append({0: rows([now], key=2), 1: rows([now], key=1)}, {0: rows([now + HORIZON + LATENESS + 2], key=2)})
    with way():
        s.drain()
    before = [ends(s.output, p) for p in range(2)]
    newest = max(e for found in before for e in found)
    apply_retention(s.output, keep=HORIZON // 2)
    for p in range(2):
        fresh = [e for e in before[p] if e >= newest - HORIZON // 2]
        assert ends(s.output, p)[-len(fresh) :] == fresh
    assert any(newest - HORIZON // 2 <= e for e in before[1])


def test_what_is_old_is_dropped_although_windows_stay_open(tmp_path: Any) -> None:
    """Each block holds a footprint of a window that ends much later than the results around it."""
    s = streams(session_window(HORIZON), tmp_path)
    for i in range(20):
        s.append([*rows([i * 1_500], key=i % 3), *rows([i * 1_500], key=9)])
    s.drain(cec(extent=0, replay=0))
    before = ends(s.output)
    apply_retention(s.output, keep=3_000)
    kept = ends(s.output)
    assert kept == [e for e in before if e >= kept[0]]
    assert before[-1] - 3_000 <= kept[0] + 1_500
    assert len(kept) < len(before) / 2


@WAYS
def test_a_slow_partition_of_count_windows_keeps_its_results(way: Any, tmp_path: Any) -> None:
    s = streams(count_window(2), tmp_path, partitions=2)
    s.append({0: rows([1, 2], key=2), 1: rows([1, 2], key=1)})
    for i in range(30):
        s.append({0: rows([i + 3] * 20, key=2)})
    with way():
        s.drain()
    slow, fast = ends(s.output, 1), ends(s.output, 0)
    assert (slow, fast[-1]) == ([1], 601)
    apply_retention(s.output, keep=100)
    assert ends(s.output, 1) == slow
    assert ends(s.output, 0)[-1] == 601
    assert 501 - 40 <= ends(s.output, 0)[0] <= 501


def test_results_stay_although_much_input_has_come_since(tmp_path: Any) -> None:
    s = streams(count_window(3), tmp_path)
    s.append(rows([1, 2, 3]))
    for key in itertools.count(10):
        s.append(rows([5] * 2, key=key))  # windows that open and do not close
        if key == 60:
            break
    s.drain(cec(extent=0, replay=0))
    apply_retention(s.output, keep=10)
    assert ends(s.output) == [2]


@WAYS
@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("window", [time_window(50), session_window(40), count_window(3)])
def test_results_are_found_by_their_time_and_nothing_is_wrong_with_the_stream(
    window: Window, compacted: bool, way: Any, tmp_path: Any
) -> None:
    s = streams(window, tmp_path)
    for i in range(90):
        s.append(rows([i * 7, i * 7 + 1 + LATENESS], key=i % 4))
    with way():
        s.drain(cec(extent=0, replay=0))
        s.output.fold()
    if compacted:
        compact(s.output, blocks_min=2)
        s.output.fold()
    assert verify(s.output).problems == ()
    for e in ends(s.output):
        [offset] = offsets_at(s.output, e)
        [table] = s.output.read(0, offset, offset + 1)
        assert table.column("window_end").to_pylist() == [e]
