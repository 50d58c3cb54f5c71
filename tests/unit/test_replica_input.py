"""Replicas as an input of an operator: which is read, where a mark stands in each, and what they have to keep."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.clock import ManualClock
from strandline.errors import OptionError, StorageError, StreamError
from strandline.inputs.input_marks import fresh_marks, in_logs, moved, needs_of_replica, oldest_in
from strandline.inputs.left_alone import RETRY_US
from strandline.inputs.replicas.replica_input import ReplicaInput
from strandline.inputs.replicas.replica_set import ReplicaSet
from strandline.log.operator_state.input_mark import InputMark, Marks, Position, ReplicaMark
from strandline.log.reading.result_ordinals import results_between
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.upkeep import consumer_registry
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.retention import truncate
from strandline.units import END_OF_TIME
from tests.support.written_replicas import SPEC, Written

R, GUESS, SAVED = Kind.RESULT, Kind.TENTATIVE, (Kind.G_OPEN, 0)


class Both:
    """Two replicas with the same results among other tuples, and who reads them."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_000_000)
        self.one = Written("one").append([(R, 10), (R, 20), (R, 30), (R, 40)], boundary=41)
        self.other = Written("other").append([SAVED, (R, 10), SAVED, (R, 20)], boundary=21)
        self.other.append([SAVED, SAVED, (R, 30)], boundary=31)
        self.input = ReplicaInput(ReplicaSet([self.one.open, self.other.open], clock=self.clock))

    def chosen(self, marks: Marks | None = None) -> str | None:
        log = self.input.choose([marks] if marks else [], 0)
        return None if log is None else log.spec.id


def at(results: int, bound: int | None, oldest: int = 0) -> Marks:
    """Where an operator stands that has read the first replica, in which results have the offsets of their numbers."""
    mark = InputMark(results, oldest, replica=ReplicaMark("one", results, oldest))
    return Marks(Position(results, bound), Position(oldest, None), (mark,))


@pytest.fixture
def both() -> Both:
    return Both()


def test_a_mark_is_the_same_place_in_every_replica(both: Both) -> None:
    one, other = both.one.log, both.other.log
    assert fresh_marks([one], {0}) == [at(0, None)]
    assert fresh_marks([one]) == [Marks(Position(0, None), Position(0, None), (InputMark(0, 0),))]
    noted = at(2, 25, oldest=1)
    assert in_logs(noted, [one], 0) is noted
    (there,) = in_logs(noted, [other], 0).inputs
    assert there == InputMark(6, 3, -1, "", ReplicaMark("other", 2, 1))
    assert (oldest_in(one, 0, noted.inputs[0]), oldest_in(other, 0, noted.inputs[0])) == (1, 3)
    assert needs_of_replica(other, [noted], 0) == [3]
    assert in_logs(in_logs(noted, [other], 0), [one], 0) == noted


def test_marks_count_results_on_whatever_compaction_has_joined(both: Both) -> None:
    one, seen = both.one.log, [AppendCommit(0, "one", 0, checksum="sum")]
    half = moved(at(0, None), [one], 0, Position(2, 25), Position(1, 15), seen)
    assert half.inputs == (InputMark(2, 1, 0, "sum", ReplicaMark("one", 2, 1)),)
    compact(one, blocks_min=2)
    whole = moved(half, [one], 0, Position(4, 45), Position(1, 15), seen)
    assert whole.inputs == (InputMark(4, 1, 0, "sum", ReplicaMark("one", 4, 1)),)
    assert [results_between(one, 0, first, end) for first, end in ((0, 4), (1, 3), (3, 3), (3, 1))] == [4, 2, 0, 0]
    compact(both.other.log, blocks_min=2)
    other = both.other.open()
    assert len(list(other.blocks(0))) == 1
    assert [results_between(other, 0, first, end) for first, end in ((0, 7), (0, 2), (2, 4), (4, 7))] == [3, 1, 1, 1]


def test_a_replica_is_read_that_is_complete_up_to_where_the_operator_stands(both: Both) -> None:
    assert both.chosen() == "one"
    assert both.chosen(at(2, 25)) == "one"
    both.one.cut_off()
    assert both.chosen(at(2, 25)) == "other"
    assert both.chosen(at(3, 35)) is None  # up to there it may have results that are still to come
    assert isinstance(both.input.none_readable(), StorageError)
    both.other.append([(R, 40)], boundary=41)
    assert both.chosen(at(3, 35)) == "other"
    assert both.chosen(at(4, END_OF_TIME)) is None


def test_after_a_restart_the_replica_is_read_on_that_was_read_last(both: Both) -> None:
    both.other.append([(R, 40), (R, 50)], boundary=51)
    assert both.chosen() == "other"
    again = ReplicaInput(ReplicaSet([both.one.open, both.other.open], clock=both.clock))
    log = again.choose([at(2, 25)], 0)
    assert log is not None
    assert log.spec.id == "one"
    assert again.current == 0


def test_a_replica_that_has_dropped_what_a_replay_needs_is_not_read(both: Both) -> None:
    truncate(both.other.log, before_offset=4)
    both.one.cut_off()
    assert both.chosen(at(2, 25, oldest=1)) is None
    assert both.chosen(at(2, 25, oldest=2)) == "other"


def test_a_replica_with_other_results_is_not_read(both: Both) -> None:
    """It has the third result at a time that the operator has passed with two."""
    both.one.cut_off()
    assert both.chosen(at(2, 15)) is None
    with pytest.raises(StreamError, match="has other results before 15"):
        raise both.input._set.problems[1] or AssertionError


def test_a_replica_that_fails_in_a_step_is_left_alone_for_a_while(both: Both) -> None:
    assert both.chosen(at(2, 25)) == "one"
    url = both.one.storage.url
    assert not both.input.bears(OptionError("no matter of storage", stream=url))
    assert not both.input.bears(StorageError("elsewhere", where=f"{url}/blocks/x", stream=f"{url}2"))
    assert both.input.bears(StorageError("lost", where="a text decides nothing", stream=url))
    assert not both.input.bears(StorageError("lost", stream=url))
    assert both.chosen(at(2, 25)) == "other"
    assert both.input.bears(StreamError("dropped", stream=both.other.storage.url))
    assert both.chosen(at(2, 25)) is None
    both.clock.advance(RETRY_US / 1e6)
    assert both.chosen(at(2, 25)) == "one"


def test_all_replicas_are_told_what_to_keep(both: Both) -> None:
    both.chosen()
    both.input.register("operator", [at(2, 25, oldest=1)], 0, writes="streams/x", label="x")
    for written, offset in ((both.one, 1), (both.other, 3)):
        written.log.refresh()
        (consumer,) = consumer_registry.consumers(written.log)
        assert (consumer.name, consumer.needs) == ("operator", (offset,))
    both.other.cut_off()
    both.input.register("operator", [at(3, 35, oldest=2)], 0)
    both.input.unregister("operator")
    both.one.log.refresh()
    assert not list(consumer_registry.consumers(both.one.log))
    both.one.cut_off()
    with pytest.raises(StorageError):
        both.input.register("operator", [at(3, 35)], 0)


def test_nobody_is_told_whose_stream_has_begun_anew(both: Both) -> None:
    both.chosen()
    for written in (both.one, both.other):
        for listed in list(written.storage.list("")):
            written.storage.delete(listed.key)
        Log.create(written.storage, replace(SPEC, id=f"anew-{written.log.spec.id}"), both.clock)
    with pytest.raises(StorageError, match="none of the 2 replicas"):
        both.input.register("operator", [at(2, 25)], 0)
    both.input.unregister("operator")
