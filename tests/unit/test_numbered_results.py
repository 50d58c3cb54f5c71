"""Results of replicas by their numbers: a batch between two places is the same, whoever it is read from."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from strandline.clock import ManualClock
from strandline.errors import StorageError
from strandline.inputs.replicas import result_span
from strandline.inputs.replicas.numbered_results import NumberedResults
from strandline.inputs.replicas.replica_place import ReplicaPlace
from strandline.inputs.replicas.replica_set import ReplicaSet
from strandline.inputs.replicas.result_span import ResultSpan
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.upkeep import consumer_registry
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.retention import truncate
from tests.support.written_replicas import SPEC, Written

Tuples = list[tuple[Kind, int]]


def results(*ends: int) -> Tuples:
    return [(Kind.RESULT, end) for end in ends]


FOOTPRINT = (Kind.G_OPEN, 0)
GUESS = (Kind.TENTATIVE, 99)


def numbered(*written: Written) -> NumberedResults:
    return NumberedResults(ReplicaSet([one.open for one in written], clock=ManualClock(1), patience_us=1_000_000))


def all_of(there: Sequence[int]) -> Sequence[int]:
    return there


def ends_in(spans: Sequence[ResultSpan], *written: Written, wait_s: float = 0, clock: ManualClock | None = None) -> Any:
    """The ends of the windows in some spans, by the numbers of their results."""
    storages = [storage_of(one) for one in written]
    found = [part for span in spans for part in span.read(storages, clock=clock or ManualClock(1), wait_s=wait_s)]
    return {first + i: end for first, t in found for i, end in enumerate(t.column("window_end").to_pylist())}


def storage_of(one: Written) -> Callable[[], Any]:
    def storage() -> Any:
        one.open()
        return one.storage

    return storage


@pytest.fixture
def both() -> tuple[Written, Written]:
    """Two replicas with other footprints and guesses between the same results; the second has one more."""
    one = Written("a").append([*results(10, 20), FOOTPRINT]).append(results(30))
    other = Written("b").append([FOOTPRINT, *results(10)]).append([GUESS], "UP_FAILURE")
    other.append([(Kind.UNDO, 0), *results(20), FOOTPRINT, *results(30, 40)])
    return one, other


def test_a_batch_is_the_same_from_whichever_replica(both: tuple[Written, Written]) -> None:
    one, other = both
    read = numbered(one, other)
    start = read.oldest()
    assert (start.results, start.stream, start.offsets) == ((0,), "", ())
    end = read.after(start, lambda there: [min(3, *there)])
    assert read.current == 1
    assert end.results == (3,)
    right = {0: 10, 1: 20, 2: 30}
    assert ends_in(read.spans(start, end), one, other) == right
    for lost, left in ((0, 1), (1, 0)):
        both[lost].is_reachable = False
        again = numbered(one, other)
        known = ReplicaPlace.from_json(json.loads(json.dumps(start.to_json())))
        until = ReplicaPlace.from_json(json.loads(json.dumps(end.to_json())))
        assert ends_in(again.spans(known, until), one, other) == right
        assert again.current == left
        assert again.after(start, lambda there: [min(3, *there)]).to_json() == end.to_json()
        both[lost].is_reachable = True


def test_whoever_reads_on_stays_with_a_replica_and_goes_to_another_when_it_is_lost(
    both: tuple[Written, Written],
) -> None:
    one, other = both
    read = numbered(one, other)
    first = read.after(read.oldest(), all_of)
    assert first.results == (4,)
    other.cut_off()
    assert read.after(first, all_of) is first  # the other one has three
    assert read.current is None
    one.append(results(40, 50))
    second = read.after(first, all_of)
    assert second.results == (5,)
    assert ends_in(read.spans(first, second), one, other) == {4: 50}


def test_a_place_without_news_is_the_same_text(both: tuple[Written, Written]) -> None:
    read = numbered(*both)
    end = read.after(read.oldest(), all_of)
    assert json.dumps(read.after(end, all_of).to_json()) == json.dumps(end.to_json())
    assert numbered(*both).newest().to_json() == end.to_json()


def test_a_span_is_read_on_in_another_replica_from_the_result_at_which_one_was_lost(
    both: tuple[Written, Written],
) -> None:
    one, other = both
    other.append(results(50))
    read = numbered(one, other)
    start = read.oldest()
    spans = read.spans(start, read.after(start, all_of))
    assert spans[0].held is not None
    assert spans[0].held.replica == 1
    one.append(results(40, 50))
    found: dict[int, int] = {}
    for first, table in spans[0].read([storage_of(one), storage_of(other)], clock=ManualClock(1), wait_s=0):
        found |= {first + i: end for i, end in enumerate(table.column("window_end").to_pylist())}
        if first == 1:
            other.cut_off()
    assert found == {0: 10, 1: 20, 2: 30, 3: 40, 4: 50}


def test_a_span_whose_blocks_were_compacted_is_found_again(both: tuple[Written, Written]) -> None:
    one, other = both
    read = numbered(one, other)
    start = read.oldest()
    spans = read.spans(start, read.after(start, all_of))
    old = {block.file for block in other.log.blocks(0)}
    other.log.refresh()
    compact(other.log, blocks_min=2)
    for file in old - {block.file for block in other.log.blocks(0)}:
        other.storage.delete(file)
    one.cut_off()
    assert ends_in(spans, one, other) == {0: 10, 1: 20, 2: 30, 3: 40}


def test_a_batch_that_no_replica_has_yet_is_waited_for(both: tuple[Written, Written]) -> None:
    one, other = both
    read = numbered(one, other)
    start = read.oldest()
    end = read.after(start, all_of)
    other.is_reachable = False
    (span,) = numbered(one, other).spans(start, end)  # after a restart
    assert span.held is None

    class Waiting(ManualClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.now_us() > 3_000_000 and one.log.state.standings[0].results == 3:
                one.append(results(40))

    assert ends_in([span], one, other, wait_s=60, clock=Waiting(1)) == {0: 10, 1: 20, 2: 30, 3: 40}


def test_who_waits_in_vain_is_told_of_every_replica(both: tuple[Written, Written]) -> None:
    one, other = both
    read = numbered(one, other)
    spans = read.spans(read.oldest(), read.after(read.oldest(), all_of))
    other.cut_off()
    clock = ManualClock(1)
    with pytest.raises(StorageError, match="none of the 2 replicas has the results 0 to 3 of partition 0") as caught:
        ends_in(spans, one, other, wait_s=result_span.WAIT_S, clock=clock)
    assert clock.now_us() >= 60_000_000
    assert "it cannot be reached" in caught.value.where
    assert "partition 0 has 3 results" in caught.value.where


def test_a_replica_with_another_result_before_the_place_is_not_read() -> None:
    one, other = Written("a").append(results(10, 20)), Written("b")
    read = numbered(one, other)
    start, end = read.oldest(), read.newest()
    other.append(results(20, 30, 40))  # it has begun behind the first
    one.cut_off()
    assert read.after(end, all_of) is end
    assert numbered(other, Written("c")).after(end, all_of) is end
    span = ResultSpan(0, 2, 3, end.partitions[0].last, start.group)
    with pytest.raises(StorageError) as caught:
        ends_in([span], one, other)
    assert "result 1 of partition 0 differs" in caught.value.where


def test_another_operator_in_the_place_of_a_replica_is_not_read() -> None:
    read = numbered(Written("a").append(results(10)), Written("b"))
    (span,) = read.spans(read.oldest(), read.newest())
    other = Written("c", upstream={"stream": "x", "path": "streams/x"}).append(results(10))
    with pytest.raises(StorageError) as caught:
        ends_in([replace(span, held=None)], other)
    assert "its operator or inputs differ" in caught.value.where


def test_results_that_were_dropped_are_read_from_a_replica_that_keeps_them() -> None:
    one = Written("a").append(results(10)).append(results(20)).append(results(30))
    other = Written("b").append(results(10, 20, 30))
    read = numbered(one, other)
    start = read.oldest()
    assert read.current == 0
    truncate(one.log, before_offset={0: 2})
    end = read.after(start, all_of)
    assert ends_in(read.spans(start, end), one, other) == {0: 10, 1: 20, 2: 30}
    assert read.current == 1
    assert numbered(one, Written("c")).oldest().results == (2,)


def test_a_query_may_begin_at_a_time(both: tuple[Written, Written]) -> None:
    for place in (numbered(*both).at(25), numbered(both[0], Written("c")).at(25)):
        assert place.results == (2,)
    assert numbered(*both).at(1_000).results == (4,)
    assert numbered(*both).at(0).results == (0,)


def test_a_consumer_is_registered_at_every_replica_that_can_be_written(both: tuple[Written, Written]) -> None:
    one, other = both
    gone = Written("c").append(results(10))
    read = numbered(one, other, gone)
    place = read.after(read.oldest(), lambda there: [3])
    gone.cut_off()
    read.register("reader", place)
    for written, offset in ((one, 4), (other, 7)):
        written.log.refresh()
        (consumer,) = consumer_registry.consumers(written.log)
        assert (consumer.name, consumer.needs) == ("reader", (offset,))
    one.cut_off()
    other.cut_off()
    with pytest.raises(StorageError):
        read.register("reader", place)


def test_a_consumer_writes_nothing_into_a_stream_that_has_begun_anew(both: tuple[Written, Written]) -> None:
    one, other = both
    read = numbered(one, other)
    place = read.newest()
    for listed in list(other.storage.list("")):
        other.storage.delete(listed.key)
    anew = Log.create(other.storage, replace(SPEC, id="anew"), ManualClock(1))
    read.register("reader", place)
    assert not anew.refresh()
    assert [listed.key for listed in other.storage.list("")] == ["stream.json"]


def test_places_of_readers_of_one_replica_do_not_open_its_blocks_again(both: tuple[Written, Written]) -> None:
    one, other = both
    read = numbered(one, other)
    start = read.oldest()
    middle = read.after(start, lambda there: [2])
    read.spans(start, middle)
    end = read.after(middle, all_of)
    with mock.patch.object(other.storage, "read", wraps=other.storage.read) as asked:
        read.spans(middle, end)
    assert not any("blocks" in key for (key,), _ in asked.call_args_list)
