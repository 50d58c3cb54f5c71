"""A step writes its blocks as they fill: what it holds does not follow how much it makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from strandline import arrow_rows
from strandline.log.audit.stream_audit import verify
from strandline.log.stream import block_sequence
from strandline.log.stream.block import Block
from strandline.log.stream.block_sequence import BlockSequence
from strandline.log.stream.log import Log
from strandline.log.upkeep import retention
from strandline.operators.join import join_columns, join_operator
from strandline.operators.join.definition import JoinDefinition, JoinInput
from strandline.operators.join.join_windows import JoinWindows
from strandline.operators.join.predicate import Predicate
from strandline.running.state.state_cache import StateCache
from tests.support.operator_streams import COLUMNS, Row
from tests.support.union_streams import UnionStreams

HOT = 30
BLOCK_ROWS = 100


class StopHere(Exception):
    """The process dies."""


def row(v: int, text: str) -> Row:
    return {"k": 1, "s": text, "v": v, "x": float(v), "t": 5}


def hot_key(tmp_path: Path, condition: Any = None, key: str = "k", text: str = "hot") -> UnionStreams:
    """Two inputs whose tuples all have one key and meet all of the other side."""
    one = JoinInput(dict(COLUMNS), (key,), "t")
    definition = JoinDefinition.of(one, one, JoinWindows("band", -3, 3), condition)
    streams = UnionStreams(definition, 2, lambda p: StateCache(tmp_path / f"state{p}"))
    for number in (0, 1):
        streams.append(number, {0: [row(1000 * number + i, text) for i in range(HOT)]})
    streams.finish()
    return streams


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_sequence, "ROWS_MAX", BLOCK_ROWS)
    monkeypatch.setattr(join_operator, "PAIRS_MAX", 2 * HOT)


@pytest.mark.usefixtures("small")
def test_results_of_a_hot_key_are_written_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    streams, held, most = hot_key(tmp_path), 0, 0
    add = BlockSequence.add

    def watched(self: BlockSequence, kind: object, columns: list) -> list[Block]:  # type: ignore[type-arg]
        nonlocal held, most
        held += len(columns[0])
        most = max(most, held)
        written = add(self, kind, columns)  # type: ignore[arg-type]
        held -= sum(block.tuples for block in written)
        return written

    monkeypatch.setattr(BlockSequence, "add", watched)
    streams.drain(tuples_max=10_000)
    assert len(streams.results(0)) == HOT * HOT
    assert most <= BLOCK_ROWS + 4 * HOT, "a block, and what a kernel makes at once"
    assert max(b.tuples for b in streams.output.blocks(0)) == BLOCK_ROWS
    assert verify(streams.output).problems == ()


@pytest.mark.parametrize("rows", [7, 64, 1_000_000])
def test_results_do_not_depend_on_how_blocks_are_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    whole = hot_key(tmp_path / "whole")
    whole.drain(tuples_max=10_000)
    monkeypatch.setattr(block_sequence, "ROWS_MAX", rows)
    streams = hot_key(tmp_path / "split")
    streams.drain(tuples_max=10_000)
    assert streams.results(0).equals(whole.results(0))
    assert streams.output.state.ends == whole.output.state.ends


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("died_at", [1, 4, 8])
def test_an_attempt_that_dies_between_its_blocks_publishes_nothing_and_is_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, died_at: int
) -> None:
    streams = hot_key(tmp_path)
    storage, before = streams.output.storage, streams.output.state.seq
    create, left = storage.create, died_at

    def dying(key: str, data: bytes) -> None:
        nonlocal left
        if key.startswith("blocks/"):
            left -= 1
            if left < 0:
                raise StopHere
        create(key, data)

    with monkeypatch.context() as dies:
        dies.setattr(storage, "create", dying)
        with pytest.raises(StopHere):
            streams.drain(tuples_max=10_000)
    orphans = {found.key for found in storage.list("blocks")}
    assert len(orphans) == died_at
    streams.output = Log.open(storage, streams.clock)
    assert (streams.output.state.seq, list(streams.output.blocks(0))) == (before, [])
    streams.drain(tuples_max=10_000)
    assert len(streams.results(0)) == HOT * HOT
    streams.clock.advance(10)
    for _ in range(2):
        retention.collect(streams.output, grace_us=0)
    kept = {found.key for found in storage.list("blocks")}
    assert kept == {b.file for b in streams.output.blocks(0)}
    assert not kept & orphans


def test_a_condition_over_texts_and_results_of_many_bytes_are_made_portion_by_portion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    condition = lambda left, right: left.s == right.s and left.s != "cold"  # noqa: E731
    whole = hot_key(tmp_path / "whole", condition)
    whole.drain(tuples_max=10_000)
    sizes, holds = [], Predicate.holds

    def watched(self: Predicate, sides: Any, kinds: Any, rows: int) -> Any:
        sizes.append(sum(column.nbytes for side in sides for column in side.values()))
        return holds(self, sides, kinds, rows)

    monkeypatch.setattr(Predicate, "holds", watched)
    monkeypatch.setattr(arrow_rows, "PORTION_BYTES_MAX", 1_000)
    streams = hot_key(tmp_path / "split", condition)
    sizes.clear()
    streams.drain(tuples_max=10_000)
    assert len(sizes) > HOT
    assert max(sizes) <= 1_000
    assert streams.results(0).equals(whole.results(0))
    assert len(streams.results(0)) == HOT * HOT


def test_a_long_key_makes_small_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_rows, "PORTION_BYTES_MAX", 2_000)
    made, columns_of = [], join_columns.result_columns
    monkeypatch.setattr(join_operator, "result_columns", lambda *a: made.append(len(a[1].left)) or columns_of(*a))
    streams = hot_key(tmp_path, key="s", text="k" * 500)
    streams.drain(tuples_max=10_000)
    assert (sum(made), max(made)) == (HOT * HOT, 3)
