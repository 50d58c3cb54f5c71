"""Conditions of joins over streams: pairs that they cannot judge, changes that are meant, people who only look."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import strandline as sl
from strandline.checkpoint.policy import cec, instant, none
from strandline.errors import InputError, StreamMismatchError
from strandline.inputs.stream_definition import output_spec, words_of
from strandline.log.stream.log import Log
from strandline.operators.join.definition import JoinDefinition, JoinInput
from strandline.operators.join.join_windows import JoinWindows
from strandline.operators.join.predicate import Predicate
from strandline.recovery.checkpoint_audit import audit
from strandline.recovery.window_report import current_windows
from strandline.running.state.state_cache import StateCache
from strandline.units import END_OF_TIME
from tests.specification.plain_join import PlainJoin
from tests.support.operator_streams import COLUMNS, bits
from tests.support.union_streams import UnionStory, UnionStreams

POLICIES = [cec(replay=5), cec(), cec(extent=3, replay=10), instant("1 hour")]
INNER, LEFT_OUTER, FULL = (
    JoinWindows("band", -3, 3),
    JoinWindows("band", 0, 10, how="left"),
    JoinWindows("band", -4, 6, how="full"),
)
COUNTS = JoinWindows("key", sizes=(3, 2))


def definition(windows: JoinWindows, function: Any, version: int = 1) -> JoinDefinition:
    one = JoinInput(dict(COLUMNS), ("k",), "t")
    return JoinDefinition.of(one, one, windows, Predicate.of(function, version), group=4)


def _streams_of(tmp_path: Path, join: JoinDefinition, on_error: Any = "stop") -> tuple[UnionStreams, list[int]]:
    machine = [0]
    return UnionStreams(join, 2, lambda p: StateCache(tmp_path / f"m{machine[0]}-{p}"), 1, on_error), machine


def side_log(log: Log) -> pa.Table:
    names = [n for n in log.spec.columns]
    blocks = list(log.blocks(log.spec.late))
    assert {b.reason for b in blocks} <= {"where"}
    return bits(pa.concat_tables([log.spec.arrow.empty_table(), *(log.read_block(b).select(names) for b in blocks)]))


def divides(left: Any, right: Any) -> bool:
    return left.v // (right.v % 3) > 0


def _divides(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return left["v"] is not None and right["v"] is not None and left["v"] // (right["v"] % 3) > 0


@pytest.mark.parametrize("windows", [INNER, LEFT_OUTER, FULL, COUNTS], ids=["inner", "left", "full", "counts"])
@pytest.mark.parametrize("seed", range(3))
def test_pairs_that_a_condition_cannot_judge_are_set_aside_once_whatever_happens(
    tmp_path: Path, windows: JoinWindows, seed: int
) -> None:
    rng = Random(seed)
    streams, machine = _streams_of(tmp_path, definition(windows, divides), "set_aside")
    story = UnionStory(rng, streams)
    for _ in range(25):
        story.grow()
        if rng.random() < 0.6:
            streams.batch(rng.choice(POLICIES), tuples_max=rng.choice([1, 10, 1000]))
        if rng.random() < 0.4:
            machine[0] += 1
            streams.reopen()
    streams.finish()
    streams.drain(rng.choice(POLICIES), tuples_max=20)
    plain = PlainJoin(streams.definition, _divides)  # type: ignore[arg-type]
    sides = {id(row): side for side, own in enumerate(streams.rows) for row in own[0]}
    wanted = plain.feed((sides[id(r)], {**r, "_offset": m}) for m, r in enumerate(streams.serialised(0)))
    wanted += plain.advance(END_OF_TIME)
    assert streams.results(0).equals(bits(pa.Table.from_pylist(wanted, schema=streams.output.spec.arrow)))
    aside = bits(pa.Table.from_pylist(plain.set_aside, schema=streams.output.spec.arrow))
    assert side_log(streams.output).equals(aside)
    assert plain.set_aside


def feeds() -> tuple[Any, Any]:
    options: dict[str, Any] = {"key": "id", "time": "at", "lateness": "5 s"}
    return sl.testing.stream("id long, at timestamp, n long", **options), sl.testing.stream(
        "id long, at timestamp, m long", **options
    )


def test_a_condition_that_raises_says_of_which_pair_and_what_to_do() -> None:
    left, right = feeds()
    join = left.join(right, within="10 s").where(lambda left, right: left.n // right.m > 1)
    left.add([(7, "2026-01-01 00:00:01", 5)])
    right.add([(7, "2026-01-01 00:00:03", 0), (7, "2026-01-01 00:00:04", 2)])
    left.finish(), right.finish()
    with pytest.raises(InputError, match="where raised ZeroDivisionError") as stopped:
        sl.testing.run(join).step()
    for told in ("id=7", "left_at=2026-01-01 00:00:01", "right_at=2026-01-01 00:00:03", "n=5", "m=0"):
        assert told in stopped.value.where
    assert "set_aside" in stopped.value.todo
    assert "version=2" in stopped.value.todo
    run = sl.testing.run(join, on_error="set_aside")
    assert [(r["n"], r["m"]) for r in run.step().to_pylist()] == [(5, 2)]
    (aside,) = run.set_aside.to_pylist()
    assert (aside["id"], aside["n"], aside["m"], aside["_reason"]) == (7, 5, 0, "where")


@pytest.mark.parametrize("windows", [INNER, LEFT_OUTER, FULL], ids=["inner", "left", "full"])
@pytest.mark.parametrize("policy", [cec(replay=3), instant("1 hour")], ids=["cec", "instant"])
def test_a_changed_condition_gives_the_same_results_whether_or_not_state_was_lost(
    tmp_path: Path, windows: JoinWindows, policy: Any
) -> None:
    found = []
    for crashes in (False, True):
        rng = Random(5)
        folder = tmp_path / f"crashes{crashes}"
        streams, machine = _streams_of(folder, definition(windows, lambda left, right: left.v <= right.v))
        story = UnionStory(rng, streams)
        for number in range(40):
            story.grow()
            if number == 20:
                streams.definition = definition(windows, lambda left, right: left.v > right.v, 2)
                Log.create(streams.output.storage, _spec(streams, streams.definition))
            streams.batch(policy, tuples_max=7)
            if crashes and number % 3 == 0:
                machine[0] += 1
                streams.reopen()
        streams.finish()
        streams.drain(policy, tuples_max=20)
        found.append(streams.results(0))
    assert found[0].equals(found[1])
    assert len(found[0])


def _spec(streams: UnionStreams, join: JoinDefinition) -> Any:
    before = streams.output.spec
    return replace(output_spec(join, streams.inputs[0].spec), id=before.id, upstream=before.upstream)


def test_a_changed_condition_is_refused_unless_a_later_version_says_that_it_is_meant(tmp_path: Path) -> None:
    one = definition(INNER, lambda left, right: left.v > 1)
    streams, _ = _streams_of(tmp_path, one)
    storage = streams.output.storage
    changed = definition(INNER, lambda left, right: left.v > 2)
    with pytest.raises(StreamMismatchError, match=r"its where is left.v > 1, this program says left.v > 2") as refused:
        Log.create(storage, _spec(streams, changed))
    assert "where(…, version=2)" in refused.value.todo
    for number in (0, 1):
        streams.append(number, {0: [{"k": 1, "s": "a", "v": 9, "x": 0.5, "t": 3}]})
    streams.definition = second = definition(INNER, lambda left, right: left.v > 2, 2)
    Log.create(storage, _spec(streams, second))
    Log.create(storage, _spec(streams, one))  # nothing has been published yet
    streams.finish()
    assert streams.batch()
    known = Log.open(storage).spec
    assert known.operator is not None
    assert known.operator["where"] == "left.v > 2"
    assert words_of(known).text.endswith("where left.v > 2 (version 2)")
    Log.create(storage, _spec(streams, second))
    with pytest.raises(
        StreamMismatchError, match="gone on with version 2 of its function, this program says version 1"
    ):
        Log.create(storage, _spec(streams, one))
    with pytest.raises(StreamMismatchError, match=r"left\.v > 2, this program says left\.v > 3") as refused:
        Log.create(storage, _spec(streams, definition(INNER, lambda left, right: left.v > 3, 2)))
    assert "where(…, version=3)" in refused.value.todo
    with pytest.raises(StreamMismatchError, match="it has been") as refused:
        Log.create(storage, _spec(streams, definition(FULL, lambda left, right: left.v > 3, 4)))
    assert "version=" not in refused.value.todo


def _rows(keys: list[int], v: int, t: int) -> dict[int, list[dict[str, Any]]]:
    return {0: [{"k": k, "s": "a", "v": v, "x": 0.5, "t": t + i} for i, k in enumerate(keys)]}


@pytest.mark.parametrize("policy", [cec(), instant("1 hour")], ids=["cec", "instant"])
def test_without_a_checkpoint_a_changed_condition_of_an_outer_join_drops_nothing(tmp_path: Path, policy: Any) -> None:
    windows, found = JoinWindows("band", 0, 100, how="left"), []
    first = definition(windows, lambda left, right: left.v <= right.v)
    second = definition(windows, lambda left, right: left.v < right.v, 2)
    for before in (policy, none()):
        streams, _ = _streams_of(tmp_path / str(before), first)
        for number, rows in enumerate([_rows([1, 2], 5, 10), _rows([9], 5, 12), _rows([7], 5, 40), _rows([9], 5, 41)]):
            streams.append(number % 2, rows)
        streams.drain(before, tuples_max=100)
        assert streams.output.state.standings[0].open
        streams.append(1, _rows([8], 9, 55))
        streams.append(0, _rows([6], 5, 56))
        if before == none():
            streams.definition = second
            for _ in range(2):
                with pytest.raises(StreamMismatchError, match="another version of the condition decided") as refused:
                    streams.drain(before, tuples_max=100)
            assert "once with cec() or instant()" in refused.value.todo
            streams.definition = first
        streams.drain(policy, tuples_max=100)
        streams.definition = second
        Log.create(streams.output.storage, _spec(streams, second))
        streams.append(1, _rows([1, 2], 9, 60))
        streams.finish()
        streams.drain(before, tuples_max=100)
        found.append([(r["k"], r["left_v"], r["right_v"]) for r in streams.results(0).to_pylist()])
    assert found[0] == found[1]
    assert {(1, 5, 9), (2, 5, 9), (7, 5, None)} <= set(found[1])


def test_a_version_outlives_a_snapshot_of_the_log(tmp_path: Path) -> None:
    streams, _ = _streams_of(tmp_path, definition(INNER, lambda left, right: left.v > 2, 3))
    state = replace(streams.output.state, revised={"where": "x", "version": 4})
    assert type(state).from_json(state.to_json()).revised == {"where": "x", "version": 4}


@pytest.mark.parametrize("windows", [INNER, LEFT_OUTER, FULL, COUNTS], ids=["inner", "left", "full", "counts"])
@pytest.mark.parametrize("policy", [instant("1 hour"), cec(replay=3), none()], ids=["instant", "cec", "none"])
def test_who_looks_at_a_join_need_not_know_its_condition(tmp_path: Path, windows: JoinWindows, policy: Any) -> None:
    rng = Random(1)
    streams, _ = _streams_of(tmp_path, definition(windows, divides), "set_aside")
    story = UnionStory(rng, streams)
    for _ in range(20):
        story.grow()
        streams.batch(policy, tuples_max=9)
    assert streams.output.state.standings[0].open
    windows_now = current_windows(streams.output, streams.inputs)
    assert windows_now.num_rows == streams.output.state.standings[0].open
    assert audit(streams.output).problems == ()
