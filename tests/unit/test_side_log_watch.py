"""Somebody is told that tuples are set aside: at once, and when it gets much worse, but not with every batch."""

import warnings

import pytest

from strandline.errors import StrandlineWarning
from strandline.log.stream.block import Block
from strandline.spark.entry.side_log_watch import SideLogWatch, by_reason
from tests.support.items import item_spec

SPEC = item_spec(2, time_type="timestamp")
NOW = 1_790_000_000_000_000


def block(tuples: int, reason: str, partition: int = 2) -> Block:
    file = SPEC.file(partition, 0, "u", reason)
    return Block(partition, file, 0, tuples, {"result": tuples}, NOW, 2 * NOW, 1, "x")


def warned(watch: SideLogWatch, *blocks: Block) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        watch.saw(blocks, NOW)
    assert all(issubclass(w.category, StrandlineWarning) for w in caught)
    return [str(w.message).partition(" set aside")[0] for w in caught]


def test_a_warning_at_once_and_then_at_ten_times_as_many() -> None:
    watch = SideLogWatch(SPEC, "streams/s")
    assert warned(watch, block(1, "ahead")) == ["1 tuple was"]
    assert [warned(watch, block(1, "ahead")) for _ in range(8)] == [[]] * 8
    assert warned(watch, block(1, "ahead"), block(3, "key")) == ["10 tuples were", "3 tuples were"]
    assert warned(watch, block(89, "ahead")) == []
    assert warned(watch, block(1, "ahead")) == ["100 tuples were"]


@pytest.mark.parametrize("ordinary", [block(5, "late"), block(5, "late", partition=0)])
def test_late_tuples_and_those_of_partitions_are_ordinary(ordinary: Block) -> None:
    assert warned(SideLogWatch(SPEC, "streams/s"), ordinary) == []


def test_tuples_are_counted_by_reason() -> None:
    assert by_reason([block(5, "late"), block(2, "ahead"), block(1, "late")]) == {"late": 6, "ahead": 2}
