"""Which replica is read: the choice, and what it goes by."""

from __future__ import annotations

import pytest

from strandline.inputs.replicas.replica_choice import ReplicaSight, choose
from strandline.inputs.replicas.replica_watch import Reach, ReplicaWatch


def stable(*results: int, is_behind: bool = False) -> ReplicaSight:
    return ReplicaSight(results, "STABLE", is_behind)


def failing(*results: int, is_behind: bool = False) -> ReplicaSight:
    return ReplicaSight(results, "UP_FAILURE", is_behind)


def correcting(*results: int) -> ReplicaSight:
    return ReplicaSight(results, "STABILIZATION")


@pytest.mark.parametrize(
    ("sights", "read", "current", "chosen"),
    [
        # at the start
        ([stable(7), stable(9)], 0, None, 1),
        ([stable(9), stable(9)], 0, None, 0),
        ([failing(9), stable(9)], 0, None, 1),
        ([failing(9), correcting(9)], 0, None, 1),
        ([failing(9), correcting(8)], 0, None, 0),
        ([None, failing(3)], 0, None, 1),
        ([None, None], 0, None, None),
        # empty, far behind, or without what was read
        ([stable(0), failing(9)], 0, None, 1),
        ([stable(8), stable(9)], 9, None, 1),
        ([stable(8), None], 9, None, None),
        ([stable(8), failing(9)], 9, 1, 1),
        ([stable(99, is_behind=True), failing(9)], 9, None, 1),
        ([stable(9, is_behind=True), None], 9, None, 0),
        ([stable(9, is_behind=True), None], 9, 0, 0),
        # one that is good is kept
        ([stable(9), stable(12)], 9, 0, 0),
        ([stable(9), failing(12)], 9, 0, 0),
        ([correcting(9), correcting(12)], 9, 0, 0),
        ([failing(9), failing(9)], 9, 1, 1),
        # and left when another is better
        ([failing(9), stable(9)], 9, 0, 1),
        ([correcting(9), stable(12)], 9, 0, 1),
        ([failing(9), failing(12)], 9, 0, 1),
        ([failing(9), correcting(12)], 9, 0, 1),
        ([stable(9, is_behind=True), failing(9)], 9, 0, 1),
        ([None, failing(9)], 9, 0, 1),
    ],
)
def test_stable_ones_come_first_then_the_most_advanced_and_none_that_lacks_what_was_read(
    sights: list[ReplicaSight | None], read: int, current: int | None, chosen: int | None
) -> None:
    assert choose(sights, [read], current) == chosen


def test_every_partition_must_be_there() -> None:
    assert choose([stable(9, 1), stable(4, 4)], [4, 4]) == 1
    assert choose([stable(9, 1), None], [4, 4]) is None


def reach(results: int, stable_until: int, guessed: int | None = None) -> Reach:
    return Reach((results,), (stable_until,), (stable_until if guessed is None else guessed,))


def test_one_is_behind_that_lacks_for_longer_than_the_patience_what_others_have() -> None:
    watch = ReplicaWatch(100).looked([reach(5, 50), reach(5, 50)], 1000)
    assert not watch.is_behind(0, 5000)  # nobody goes on
    watch = watch.looked([reach(5, 50), reach(7, 50)], 5000)
    assert not watch.is_behind(0, 5099)
    watch = watch.looked([reach(5, 50), reach(9, 50)], 5100)
    assert watch.is_behind(0, 5100)
    watch = watch.looked([reach(6, 50), reach(12, 50)], 5150)
    assert watch.is_behind(0, 5150)  # it lives, and is late all the same
    watch = watch.looked([reach(7, 50), reach(12, 50)], 5160)
    assert not watch.is_behind(0, 5160)
    assert len(watch.furthest) <= 3


def test_one_that_has_all_inputs_is_not_behind_another_that_guesses_unless_it_stands_still() -> None:
    watch = ReplicaWatch(100).looked([reach(5, 50), reach(5, 50, 90)], 1000)
    watch = watch.looked([reach(5, 60), reach(5, 50, 99)], 1090)
    assert not watch.looked([reach(5, 60), reach(5, 50, 99)], 1150).is_behind(0, 1150)
    assert watch.looked([reach(5, 60), reach(5, 50, 99)], 1200).is_behind(0, 1200)


def test_replicas_that_cannot_be_read_are_not_looked_at() -> None:
    watch = ReplicaWatch(100).looked([None, reach(5, 50)], 1000).looked([reach(0, 0), reach(5, 50)], 2000)
    assert watch.is_behind(0, 2000)
    assert not watch.is_behind(1, 2000)
    assert not watch.is_behind(2, 2000)
