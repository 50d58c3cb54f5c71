"""What it costs to look up and to plan over many blocks, counted in looks at a block instead of in seconds."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from strandline.errors import ConflictError
from strandline.inputs.input import InputSlice
from strandline.inputs.input_marks import first_needed
from strandline.log.operator_state.input_mark import Position
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.block import Block
from strandline.log.stream.log import Log
from strandline.log.upkeep import compaction
from strandline.spark.read import source
from strandline.testing import MemoryStorage
from tests.support.inputs_over import inputs_over
from tests.support.items import append_items, item_spec

COMMITS = 100


class Watched(Block):
    """A block that counts how often somebody looks at it."""

    looks = 0

    def __getattribute__(self, name: str) -> object:
        if not name.startswith("__"):
            Watched.looks += 1
        return super().__getattribute__(name)


@pytest.fixture(autouse=True)
def _no_looks_yet() -> None:
    Watched.looks = 0


def block(partition: int, number: int, size_bytes: int = 1000) -> Watched:
    return Watched(partition, f"{partition}-{number}", number, number + 1, {"result": 1}, 0, 0, size_bytes, "", 0)


def log_with_a_tail(partitions: int) -> Log:
    spec = item_spec(partitions)
    log = Log(MemoryStorage(), spec)
    for seq in range(COMMITS):
        blocks = tuple(block(p, seq) for p in range(partitions))
        ends = (*(seq + 1 for _ in range(partitions)), 0)
        log._apply(AppendCommit(seq, spec.id, 1, blocks, ends=ends, boundaries=(None,) * partitions, time_max=0))
    return log


@pytest.mark.parametrize("partitions", [10, 300])
def test_the_newest_block_of_each_partition_costs_what_is_found(partitions: int) -> None:
    log = log_with_a_tail(partitions)
    Watched.looks = 0
    for p in range(partitions):
        assert [b.first for b in log.blocks(p, COMMITS - 1)] == [COMMITS - 1]
    # Some looks of two binary searches for each; a walk would have been over all blocks of all partitions each time.
    assert Watched.looks < 50 * partitions


@pytest.mark.parametrize("many", [100, 10_000])
def test_a_task_is_filled_with_blocks_at_a_cost_that_follows_their_number(many: int) -> None:
    runs = list(source._runs(block(0, i, size_bytes=6400) for i in range(many)))
    assert [len(run) for run in runs] == [many]
    assert Watched.looks <= 2 * many


class Tables:
    """Tables of one row, which count how often somebody asks how long they are."""

    nbytes = 8

    def __init__(self) -> None:
        self.asked = 0

    def __iter__(self) -> Iterator["Tables"]:
        return iter([self] * 10_000)

    def __len__(self) -> int:
        self.asked += 1
        return 1


def test_a_row_group_is_filled_at_a_cost_that_follows_the_number_of_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = Tables()
    monkeypatch.setattr(pa, "concat_tables", len)
    assert list(compaction._row_groups(iter(tables))) == [10_000]  # type: ignore[arg-type]
    assert tables.asked == 10_000


def test_blocks_that_are_compacted_while_they_are_listed_are_listed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log.create(MemoryStorage(), item_spec())
    append_items(log, {0: [(1, 2, 3)]}, "a")
    found, blocks, asked = list(log.blocks(0)), log.blocks, []

    def compacted_once(*args: Any) -> Iterator[Block]:
        asked.append(args)
        if len(asked) == 1:
            raise ConflictError("compacted", where="here", todo="ask again")
        return blocks(*args)

    monkeypatch.setattr(log, "blocks", compacted_once)
    assert inputs_over([log]).blocks(InputSlice(Position(0, None), 1, None, 1), 0) == [found]
    assert len(asked) == 2


def test_blocks_that_are_compacted_each_time_they_are_looked_through_end_the_search() -> None:
    asked = []

    def compacted(*_: Any, **__: Any) -> Iterator[Block]:
        asked.append(1)
        raise ConflictError("compacted", where="here", todo="ask again")

    log = Log.create(MemoryStorage(), item_spec())
    append_items(log, {0: [(1, 2, 3)]}, "a")
    log.blocks = compacted  # type: ignore[method-assign]
    with pytest.raises(ConflictError):
        first_needed(log, 0, 2, 0)
    assert len(asked) == 2
