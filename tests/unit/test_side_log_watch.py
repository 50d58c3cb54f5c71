"""Somebody is told that tuples are set aside: at once, and when it gets much worse, but not with every batch."""

import warnings

import pytest

from strandline.errors import StrandlineWarning
from strandline.log.stream import reason as reasons
from strandline.log.stream.block import Block
from strandline.operators.aside_tables import VALUE
from strandline.operators.barrier.barrier_columns import REASON as BARRIER
from strandline.operators.join.join_aside import WHERE
from strandline.operators.keyed.keyed_operator import FUNCTION_RAISED
from strandline.operators.partition_wide.partition_operator import PROCESS_RAISED
from strandline.spark.entry.side_log_watch import SideLogWatch, by_reason
from tests.support.items import item_spec

SPEC = item_spec(2, time_type="timestamp")
NOW = 1_790_000_000_000_000


def block(tuples: int, reason: str, partition: int = 2) -> Block:
    file = SPEC.file(partition, 0, "u", reason)
    return Block(partition, file, 0, tuples, {"result": tuples}, NOW, 2 * NOW, 1, "x")


def warnings_of(watch: SideLogWatch, *blocks: Block) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        watch.saw(blocks, NOW)
    assert all(issubclass(w.category, StrandlineWarning) for w in caught)
    return [str(w.message) for w in caught]


def warned(watch: SideLogWatch, *blocks: Block) -> list[str]:
    return [text.partition(" set aside")[0] for text in warnings_of(watch, *blocks)]


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


REASONS = [value for name, value in vars(reasons).items() if name.isupper() and name != "IN_NAME"]


@pytest.mark.parametrize(
    "reason", sorted({*REASONS, VALUE, BARRIER, WHERE, FUNCTION_RAISED, PROCESS_RAISED} - {"late"})
)
def test_every_reason_is_explained_in_its_warning(reason: str) -> None:
    [text] = warnings_of(SideLogWatch(SPEC, "streams/s"), block(8, reason))
    why = text.partition("side log of streams/s: ")[2].removesuffix(". read(late=True, positions=True) shows them")
    assert len(why.split()) > 5
    assert ";" in why  # the cause, then what to do


def test_a_value_that_cannot_be_computed_is_not_called_too_long_alone() -> None:
    [text] = warnings_of(SideLogWatch(SPEC, "streams/s"), block(8, "value"))
    assert "where(…) or select(…)" in text
    assert "16 MiB" in text


def test_what_a_join_sets_aside_for_its_condition_are_pairs() -> None:
    assert warned(SideLogWatch(SPEC, "streams/s"), block(86, "where")) == ["86 pairs were"]
