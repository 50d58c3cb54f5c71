"""A barrier over several real streams, its output in a real stream, its state lost now and then: the same sets."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import pyarrow.compute as pc
import pytest

from strandline.inputs.edges import Edges
from strandline.inputs.input_marks import fresh_marks, last_seen, moved, needs, require_same_inputs
from strandline.inputs.input_stream import InputStream
from strandline.inputs.next_bounds import next_bounds
from strandline.inputs.serialised_input import pieces, replayed
from strandline.log.reading.results import result_blocks
from strandline.log.storage.storage import create_once
from strandline.log.stream.append_commit import Append
from strandline.log.stream.block_sequence import BlockSequence
from strandline.log.stream.kinds import Kind, is_closed
from strandline.log.stream.log import Log
from strandline.log.stream.spec import StreamSpec
from strandline.log.upkeep import consumer_registry, retention
from strandline.log.upkeep.compaction import compact
from strandline.operators.barrier.definition import BarrierDefinition, BarrierInput
from strandline.operators.operator import Extent, Limits, Saved
from strandline.testing.hand_clock import ManualClock
from strandline.testing.memory_storage import MemoryStorage
from strandline.units import END_OF_TIME
from tests.specification.plain_barrier import BarrierTuple, PlainBarrier
from tests.specification.plain_serialised_input import plain_serialised
from tests.support.serialised_streams import Feed, make_feeds


def output_spec(definition: BarrierDefinition) -> StreamSpec:
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in definition.result_columns]
    operator = {**definition.to_json(), "footprints": [list(c) for c in definition.control_columns]}
    return StreamSpec("output", {"type": "struct", "fields": fields}, ("k",), "time", 1, lateness=0, operator=operator)


class Element:
    """The barrier of one partition between its streams: what a driver and its task do, in one place."""

    def __init__(self, rng: Random, feeds: list[Feed], definition: BarrierDefinition) -> None:
        self._rng = rng
        self._limits = Limits(extent=rng.choice([10, 200]), replay=rng.choice([0, 50, 1_000_000]))
        self.inputs = [feed.log for feed in feeds]
        self.definition = definition
        clock = ManualClock(1_000_000)
        self.output = Log.create(MemoryStorage(clock), output_spec(definition), clock)
        self.marks = fresh_marks(self.inputs)[0]
        self.extent = Extent(0, 0, 0)
        self.operator, self.edges = definition.fresh(), Edges([self.marks.stands])
        self.batches = 0

    def _streams(self, firsts: list[int]) -> list[InputStream]:
        triples = zip(self.inputs, self.definition.reads, firsts, strict=True)
        return [InputStream(log, reads, first) for log, reads, first in triples]

    def batch(self, tuples_max: int) -> bool:
        require_same_inputs(self.inputs, [self.marks])
        seen = [last_seen(log) for log in self.inputs]
        until = next_bounds(self.inputs, [self.marks], tuples_max)[0]
        if until is None:
            return False
        operator, parts, before = self.operator, [], self.marks
        stands = before.stands
        operator.begin()
        for piece in pieces(self._streams([m.first for m in before.inputs]), 0, stands, until, 20):
            parts += [(Kind.RESULT, columns) for columns in operator.feed(piece.tables)]
            operator.input_end = piece.end
            if piece.is_edge:
                stands = piece.position
                self.edges.add(stands)
                if self._rng.random() < 0.2:
                    break
        parts += [(Kind.CLOSED, columns) for columns in operator.aside.closed]
        end = self.output.state.ends[0]
        saved = operator.save(end + sum(len(columns[0]) for _, columns in parts), self._limits)
        parts += [(Kind.G_OPEN, saved.opened), (Kind.G_CHECK, saved.checked)]
        operator.end()
        self.batches += 1
        create = partial(create_once, self.output.storage)
        filled = [(kind, columns) for kind, columns in parts if len(columns[0])]
        blocks = list(BlockSequence(self.output.spec, 0, end, f"b{self.batches}", create).write(filled))
        self.output.append(Append(blocks, boundaries=[stands.bound], finished=stands.bound == END_OF_TIME))
        extent = operator.extent(self.output.state.ends[0])
        assert extent.oldest_input >= self.extent.oldest_input, "what was let go may not be needed again"
        assert extent.oldest_output >= self.extent.oldest_output
        self.extent = extent
        oldest = self.edges.before(self.extent.oldest_input)
        self.marks = moved(before, self.inputs, 0, stands, oldest, seen)
        return True

    def lose_state(self) -> None:
        """Recovers from the streams alone."""
        operator, marks = self.definition.fresh(), self.marks
        first, end = self.extent.oldest_output, self.output.state.ends[0]
        columns = list(self.definition.loads)
        tables = list(self.output.read(0, first, end, columns)) if first < end else []
        if tables:
            split = ((table, is_closed(table)) for table in reversed(tables))
            operator.load([Saved(t.filter(closed), t.filter(pc.invert(closed))) for t, closed in split])
        self.edges = Edges([marks.oldest])
        streams = self._streams([m.oldest for m in marks.inputs])
        for piece in replayed(streams, 0, self.extent.oldest_input, marks.oldest, marks.stands, 30):
            operator.replay(piece.tables)
            if piece.is_edge:
                self.edges.add(piece.position)
        operator.input_end = marks.stands.ordinal
        assert operator.open_windows == self.extent.open_windows
        self.operator = operator

    def let_go(self) -> None:
        """Registers what is needed, and lets all else go."""
        for number, log in enumerate(self.inputs):
            consumer_registry.register(log, "operator-barrier", needs([self.marks], number))
            retention.truncate(log, before_offset={0: log.state.ends[0]}, yield_to_consumers=True)


def results(log: Log) -> list[dict[str, Any]]:
    return [row for _, t in result_blocks(log, 0, list(log.spec.columns)) for row in t.drop(["_offset"]).to_pylist()]


def expected(feeds: list[Feed], definition: BarrierDefinition) -> list[dict[str, Any]]:
    order = plain_serialised([[t for _, _, t in feed.rows[0]] for feed in feeds], END_OF_TIME)
    rows = [(one.input, feeds[one.input].rows[0][one.offset]) for one in order]
    tuples = [BarrierTuple(m, number, row[0], row) for m, (number, row) in enumerate(rows)]
    found = []
    for members in PlainBarrier(len(feeds), definition.at_most).feed(tuples):
        own = {f"in{m.input}_{name}": m.values[i] for m in members for name, i in (("v", 1), ("t", 2))}
        found.append({"k": members[0].key, "time": max(m.values[2] for m in members), **own})
    return found


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(s, marks=pytest.mark.long) for s in range(6, 60))])
def test_a_barrier_over_streams_gives_the_same_sets_whatever_happens(seed: int) -> None:
    rng = Random(seed)
    feeds = make_feeds(rng, partitions=1)
    inputs = tuple(BarrierInput(f"in{i}", "t", (("v", "long"), ("t", "long"))) for i in range(len(feeds)))
    definition = BarrierDefinition((("k", "long"),), inputs, rng.choice([None, 10]))
    element, tuples_max = Element(rng, feeds, definition), rng.choice([1, 50, 10_000])
    for _ in range(20):
        feed = rng.choice(feeds)
        feed.append(rng.choice([0, 5, 60])) if rng.random() < 0.8 else feed.beat()
        for chance, act in (
            (0.7, lambda: element.batch(tuples_max)),
            (0.2, element.lose_state),
            (0.1, element.let_go),
            (0.1, feed.tidy),
            (0.1, lambda: compact(element.output, target_bytes=20_000, blocks_min=2)),
        ):
            if rng.random() < chance:
                act()
    for feed in feeds:
        feed.finish()
    while element.batch(tuples_max):
        if rng.random() < 0.3:
            element.lose_state()
    assert results(element.output) == expected(feeds, definition)
    assert element.output.state.finished


def test_results_of_a_barrier_are_read_as_any_others() -> None:
    rng = Random(0)
    feeds = make_feeds(rng, partitions=1)[:2]
    inputs = tuple(BarrierInput(f"in{i}", "t", (("v", "long"), ("t", "long"))) for i in range(2))
    element = Element(rng, feeds, BarrierDefinition((("k", "long"),), inputs))
    for feed in feeds:
        feed.append(50)
        feed.finish()
    while element.batch(1000):
        pass
    tables = [t for _, t in result_blocks(element.output, 0, list(element.output.spec.columns))]
    assert tables[0].schema.names == ["k", "time", "in0_v", "in0_t", "in1_v", "in1_t", "_offset"]
    assert sum(map(len, tables)) == len(results(element.output)) > 0
