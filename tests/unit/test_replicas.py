"""Replicas in streams that somebody writes by hand: what is refused, and what a reader is told when it changes over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from strandline.clock import ManualClock
from strandline.errors import OptionError, StorageError, StreamMismatchError
from strandline.inputs.replicas.replica_place import ReplicaPlace
from strandline.inputs.replicas.replica_reader import ReplicaReader, snapshot
from strandline.inputs.replicas.replica_set import ReplicaSet
from strandline.log.operator_state.loss import Losses
from strandline.log.operator_state.outage import Outage
from strandline.log.operator_state.standing import Standing
from strandline.log.reading.result_ordinals import first_kept_result
from strandline.log.stream import spec as spec_
from strandline.log.stream.append_commit import Append
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.spec import StreamSpec
from strandline.log.upkeep.retention import truncate
from strandline.testing import MemoryStorage
from tests.support.operator_streams import PLANS, input_spec, output_spec
from tests.support.written_replicas import SPEC, Written

CLOCK_US = 1_000_000
Told = list[tuple[str, int]]
"""Kinds, and ends of windows; of control tuples how many results come before."""


def results(*ends: int) -> list[tuple[Kind, int]]:
    return [(Kind.RESULT, end) for end in ends]


def guesses(*ends: int) -> list[tuple[Kind, int]]:
    return [(Kind.TENTATIVE, end) for end in ends]


UNDO, DONE = (Kind.UNDO, 0), (Kind.REC_DONE, 0)


def replicas(*written: Written, clock: ManualClock | None = None) -> ReplicaSet:
    return ReplicaSet([one.open for one in written], clock=clock or ManualClock(CLOCK_US), patience_us=1_000_000)


def told(reader: ReplicaReader) -> Told:
    """What a look of the reader brings."""
    rows = [row for table in reader.poll() for row in table.to_pylist()]
    return [(r["_kind"], r["_result"] if r["_kind"] in ("undo", "rec_done") else r["window_end"]) for r in rows]


# ---------------------------------------------------------------------- what is refused


def test_replicas_have_the_same_operator_inputs_and_partitions() -> None:
    other = output_spec(PLANS["tumbling count"]).operator
    differing: list[tuple[dict[str, Any], str]] = [
        ({"operator": other}, "they are made by count windows of"),
        ({"upstream": {"stream": "other", "path": "streams/other"}}, "the inputs are streams/other (other), and str"),
        ({"partitions": 3}, "they have 3 and 1 partitions"),
        ({"operator": None}, "was written by an entry point"),
        ({"operator": {**(SPEC.operator or {}), "aggregates": {}}}, "which differ in aggregates"),
    ]
    for changed, problem in differing:
        with pytest.raises(StreamMismatchError) as caught:
            replicas(Written("a"), Written("b", **changed))
        assert problem in caught.value.what


def test_one_stream_or_the_same_one_twice_is_no_set_of_replicas() -> None:
    one = Written("a")
    with pytest.raises(OptionError, match="1 stream given as replicas"):
        replicas(one)
    with pytest.raises(StreamMismatchError, match="one and the same stream"):
        replicas(one, one)


def test_entry_streams_have_no_replicas() -> None:
    storages = [MemoryStorage(ManualClock(1)) for _ in "ab"]
    for storage, name in zip(storages, "ab", strict=True):
        Log.create(storage, replace(input_spec(["k"], 1), id=name))
    with pytest.raises(StreamMismatchError, match="written by an entry point"):
        ReplicaSet([partial(Log.open, storage) for storage in storages])


def test_results_that_were_lost_or_never_counted_make_no_replica() -> None:
    good = Written("a").append(results(10))
    with pytest.raises(StreamMismatchError, match="a failure has cost the operator"):
        replicas(good, Written("b").append(results(10), losses=Losses(1, 1, 0, 0)))
    with pytest.raises(StreamMismatchError, match="does not number its results"):
        replicas(good, Written("b").append(results(10), results=None))


def test_an_operator_that_went_on_with_another_version_has_no_replicas() -> None:
    good, changed = Written("a"), Written("b")
    body = StreamSpec.from_json(changed.storage.read(spec_.KEY), "here")
    older = replace(body, operator={**(body.operator or {}), "version": 1})
    changed.storage.put(spec_.KEY, older.to_json())
    changed.log = Log.open(changed.storage)
    changed.log.append(
        Append(standings=[Standing(0, -1, 0, 0, 0, 0, results=0)], boundaries=[0], revised={"version": 2})
    )
    good.storage.put(spec_.KEY, replace(older, id="a", operator={**(body.operator or {}), "version": 2}).to_json())
    with pytest.raises(StreamMismatchError, match="has gone on with version 2"):
        replicas(good, changed)


def test_streams_whose_last_common_result_differs_are_no_replicas() -> None:
    one, other = Written("a").append(results(10, 20, 30)), Written("b").append(results(20, 30))
    with pytest.raises(StreamMismatchError, match="they differ in result 1 of partition 0"):
        replicas(one, other)


def test_who_finds_nobody_is_told_of_everybody() -> None:
    one, other = Written("a"), Written("b")
    one.is_reachable = other.is_reachable = False
    with pytest.raises(StorageError, match="none of the 2 replicas can be read") as caught:
        replicas(one, other)
    assert "replica 1: it cannot be reached" in caught.value.where
    assert "replica 2: it cannot be reached" in caught.value.where


# ---------------------------------------------------------------------- going on from another


def test_results_go_on_behind_the_nth_whatever_stands_between_them() -> None:
    one = Written("a").append([*results(10, 20), (Kind.G_OPEN, 0)])
    other = Written("b").append([(Kind.G_OPEN, 0), *results(10), (Kind.G_CHECK, 0), *results(20, 30), (Kind.G_OPEN, 0)])
    one.append(results(30, 40))
    reader = ReplicaReader(replicas(one, other))
    assert told(reader) == [("stable", end) for end in (10, 20, 30, 40)]
    assert reader.current == 0
    one.cut_off()
    assert told(reader) == []
    assert reader.current is None  # the other has three
    other.append(results(40, 50))
    assert told(reader) == [("stable", 50)]
    assert reader.current == 1


def test_who_stops_in_the_middle_of_a_change_has_left_the_old_replica() -> None:
    one = Written("a").append(results(10, 20)).append(guesses(30), "UP_FAILURE")
    other = Written("b").append(results(10))
    reader = ReplicaReader(replicas(one, other))
    assert told(reader) == [("stable", 10), ("stable", 20), ("tentative", 30)]
    other.append([*[(Kind.G_OPEN, 0)] * 5, *results(20, 30)])
    assert next(reader.poll()).column("_kind").to_pylist() == ["undo"]
    one.append([UNDO, *results(30), DONE])
    assert told(reader) == [("stable", 30), ("rec_done", 3)]


def test_one_that_stands_still_while_another_goes_on_is_left_when_patience_is_over() -> None:
    clock = ManualClock(CLOCK_US)
    one, other = Written("a").append(results(10)), Written("b").append(results(10))
    reader = ReplicaReader(replicas(one, other, clock=clock))
    assert told(reader) == [("stable", 10)]
    clock.advance(3600)
    other.append(results(20))
    assert told(reader) == []
    clock.advance(0.9)
    assert told(reader) == []
    clock.advance(0.2)
    assert told(reader) == [("stable", 20)]
    assert reader.current == 1


def test_one_that_has_begun_anew_is_read_when_it_has_caught_up() -> None:
    one, other = Written("a").append(results(10, 20)), Written("b")
    other.is_reachable = False
    reader = ReplicaReader(replicas(one, other))
    assert told(reader) == [("stable", 10), ("stable", 20)]
    other.is_reachable = True
    one.cut_off()
    assert told(reader) == []
    other.append(results(10))
    assert told(reader) == []
    other.append(results(20, 30))
    assert told(reader) == [("stable", 30)]


def test_one_that_has_other_results_is_never_read() -> None:
    one, other = Written("a").append(results(10, 20)), Written("b")
    reader = ReplicaReader(replicas(one, other))
    assert told(reader) == [("stable", 10), ("stable", 20)]
    other.append(results(20, 30, 40))  # it has begun behind the first
    one.cut_off()
    assert told(reader) == []
    found = reader._set.problems[1]
    assert isinstance(found, StreamMismatchError)
    assert "result 1 of partition 0 differs" in found.what


def test_one_that_has_dropped_what_comes_next_is_left_out() -> None:
    one, other = Written("a").append(results(10)), Written("b").append(results(10, 20)).append(results(30))
    reader = ReplicaReader(replicas(one, other), ReplicaPlace.from_json(_place_after(one)))
    truncate(other.log, before_offset={0: 2})
    assert first_kept_result(other.log, 0) == 2
    one.cut_off()
    assert told(reader) == []
    assert "dropped" in str(reader._set.problems[1])


def _place_after(one: Written) -> dict[str, Any]:
    reader = ReplicaReader(replicas(one, Written("any")))
    told(reader)
    assert reader.place is not None
    return reader.place.to_json()


def test_a_reader_begins_with_the_oldest_result_that_is_kept() -> None:
    one, other = Written("a").append(results(10)).append(results(20)), Written("b").append(results(10))
    truncate(one.log, before_offset={0: 1})
    tables = list(ReplicaReader(replicas(one, other)).poll())
    assert [r["_result"] for table in tables for r in table.to_pylist()] == [1]


# ---------------------------------------------------------------------- what is tentative


def failing(name: str, *ends: int) -> Written:
    return Written(name).append(results(10), boundary=10).append(guesses(*ends), "UP_FAILURE", 10)


def test_guesses_go_on_by_time_in_another_that_is_failing_too() -> None:
    one, other = failing("a", 20, 30), failing("b", 20, 30, 40)
    reader = ReplicaReader(replicas(one, other))
    assert told(reader) == [("stable", 10), ("tentative", 20), ("tentative", 30)]
    one.cut_off()
    assert told(reader) == [("tentative", 30), ("tentative", 40)]  # of the same time, it may be another one
    other.append([UNDO, *results(20), *guesses(50)], "STABILIZATION", 20)
    assert told(reader) == [("undo", 1), ("stable", 20), ("tentative", 50)]
    other.append([*results(30, 40), UNDO, DONE], boundary=50)
    assert told(reader) == [("stable", 30), ("stable", 40), ("undo", 4), ("rec_done", 4)]


def test_one_that_knows_better_undoes_the_guesses_of_another() -> None:
    one, other = failing("a", 20, 30), Written("b").append(results(10), boundary=10)
    one_set = replicas(one, other)
    reader = ReplicaReader(one_set, ReplicaPlace.from_json(_place_after(one)))
    other.append(results(20), boundary=20)
    assert told(reader) == [("undo", 1), ("stable", 20), ("rec_done", 2)]
    assert reader.current == 1


def test_guesses_of_another_are_undone_by_its_first_result_though_it_had_none_itself() -> None:
    one, other = failing("a", 20, 30), failing("b")
    reader = ReplicaReader(replicas(one, other))
    told(reader)
    one.cut_off()
    assert told(reader) == []
    other.append([*results(20), *guesses(25)], "STABILIZATION", 20)
    assert told(reader) == [("undo", 1), ("stable", 20), ("tentative", 25)]


def test_all_is_well_in_another_that_never_guessed() -> None:
    one, other = failing("a", 20), Written("b").append(results(10), boundary=10)
    reader = ReplicaReader(replicas(one, other), ReplicaPlace.from_json(_place_after(one)))
    assert told(reader) == [("undo", 1), ("rec_done", 1)]
    assert told(reader) == []


def test_guesses_that_are_void_already_are_not_shown() -> None:
    one = failing("a", 20, 30).append([UNDO, *results(20), *guesses(40)], "STABILIZATION", 20)
    reader = ReplicaReader(replicas(one, Written("b")))
    assert told(reader) == [("stable", 10), ("stable", 20), ("tentative", 40)]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_reader_that_died_goes_on_from_what_it_kept(is_there: bool) -> None:
    one, other = failing("a", 20, 30), failing("b", 20, 35)
    place = ReplicaPlace.from_json(_place_after(one))
    one.append(guesses(25), "UP_FAILURE", 10)  # of one and the same replica, guesses come as it makes them
    if not is_there:
        one.cut_off()
    assert told(ReplicaReader(replicas(one, other), place)) == [("tentative", 25 if is_there else 35)]


def test_a_place_in_other_replicas_is_refused() -> None:
    place = ReplicaPlace.from_json(_place_after(failing("a", 20)))
    others = [Written(name, upstream={"stream": "other", "path": "streams/other"}) for name in "ab"]
    with pytest.raises(StreamMismatchError, match="this place is in other streams"):
        ReplicaReader(replicas(*others), place)
    ReplicaReader(replicas(Written("c"), Written("d")), place)  # others, and replicas of those all the same


# ---------------------------------------------------------------------- reading what is there


def read(found: ReplicaSet, **options: bool) -> list[tuple[int, bool | None]]:
    rows = [row for table in snapshot(found, **options) for row in table.to_pylist()]
    return [(row["window_end"], row.get("_tentative")) for row in rows]


def test_a_snapshot_is_that_of_the_best() -> None:
    one, other = failing("a", 20, 30), failing("b", 20).append([UNDO, *results(20), *guesses(40)], "STABILIZATION", 20)
    found = replicas(one, other)
    assert read(found) == [(10, None), (20, None)]
    assert read(found, tentative=True) == [(10, False), (20, False), (40, True)]


def test_a_snapshot_goes_on_in_another_when_one_is_lost_on_the_way() -> None:
    one, other = Written("a"), Written("b")
    for end in (10, 20, 30):
        one.append(results(end))
    other.append(results(10, 20, 30))
    found, ends = replicas(one, other), []
    for table in snapshot(found):
        ends += table.column("window_end").to_pylist()
        one.cut_off()
    assert ends == [10, 20, 30]


def test_a_snapshot_of_nobody_is_an_error() -> None:
    one, other = Written("a").append(results(10)), Written("b").append(results(10))
    found = replicas(one, other)
    one.cut_off()
    other.cut_off()
    with pytest.raises(StorageError, match="none of the 2 replicas"):
        list(snapshot(found))


def test_following_ends_with_the_stream() -> None:
    clock = ManualClock(CLOCK_US)
    one, other = Written("a").append(results(10)), Written("b")
    looks: list[Callable[[], Any]] = [lambda: one.append(results(20)), lambda: _finish(one)]
    found = replicas(one, other, clock=clock)
    found.clock = _Acting(looks)
    ends = [end for table in ReplicaReader(found).follow() for end in table.column("window_end").to_pylist()]
    assert ends == [10, 20]
    assert not looks


def _finish(one: Written) -> None:
    one.log.append(Append(standings=one.log.state.standings, outage=Outage("STABLE", 5), finished=True))


class _Acting(ManualClock):
    """Something happens whenever somebody sleeps."""

    def __init__(self, acts: list[Callable[[], Any]]) -> None:
        super().__init__(CLOCK_US)
        self._acts = acts

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._acts.pop(0)()
