"""The stream of an operator with a bound, as somebody writes it by hand: kinds of tuples, and outages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from strandline.clock import ManualClock
from strandline.log.operator_state.outage import ForkStanding, Outage
from strandline.log.operator_state.standing import Standing
from strandline.log.reading.bounds import Bounds
from strandline.log.reading.results import Results
from strandline.log.reading.tentative_results import changes
from strandline.log.storage.storage import Storage, create_once
from strandline.log.stream.append_commit import Append
from strandline.log.stream.block import Block
from strandline.log.stream.block_sequence import BlockSequence, control_block
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.testing import MemoryStorage
from tests.support.operator_streams import PLANS, output_spec
from tests.support.with_tentative import with_tentative

STABLE = Outage("STABLE", 5)
Story = Sequence[tuple[Kind, int]]
"""Kinds of tuples, each with the end of its window."""


class Output:
    """The stream of an operator that somebody writes by hand."""

    def __init__(self, storage: Storage | None = None) -> None:
        self.clock = ManualClock(1)
        there = storage or MemoryStorage(self.clock)
        self.log = Log.create(there, output_spec(PLANS["tumbling time"]), self.clock)

    def block(self, kind: Kind, times: Sequence[int], first: int) -> Block:
        """Tuples of one kind."""
        if kind in (Kind.UNDO, Kind.REC_DONE):
            return control_block(self.log, 0, first, [kind], f"{kind.name}{first}")
        columns = [
            pa.array(times, pa.int64()) if f.name == "window_end" else pa.nulls(len(times), f.type)
            for f in self.log.spec.arrow
        ]
        create = partial(create_once, self.log.storage)
        (block,) = BlockSequence(self.log.spec, 0, first, f"{kind.name}{first}", create).write([(kind, columns)])
        return block

    def append(self, story: Story, outage: Outage | None, boundary: int | None = None, results: int | None = 0) -> None:
        """One commit; without `results` it counts them."""
        state, blocks = self.log.state, []
        first = state.ends[0]
        for kind, time in story:
            blocks.append(self.block(kind, [time], first))
            first += 1
        before = state.standings[0].results if state.standings else 0
        new = sum(kind is Kind.RESULT for kind, _ in story)
        known = (before or 0) + new if results == 0 else results
        standing = Standing(0, -1, 0, 0, 0, 0, results=known)
        self.log.append(Append(blocks, standings=[standing], boundaries=[boundary], outage=outage))

    def read(self) -> list[tuple[int, bool]]:
        """What readers of tentative results get."""
        tables = with_tentative(self.log, 0, ["window_end"])
        return [(r["window_end"], r["_tentative"]) for table in tables for r in table.to_pylist()]

    def stable(self) -> list[int]:
        """What readers get."""
        found = Results(self.log, Bounds({}, {}, None, None), ["window_end"], late=False, positions=False).table()
        ends: list[int] = found.column("window_end").to_pylist()
        return ends

    def told(self) -> list[tuple[str, int]]:
        """What followers get."""
        tables = changes(self.log, 0, columns=["window_end"])
        return [(r["_kind"], r["window_end"]) for table in tables for r in table.to_pylist()]


def fork(first: int, tuples: int, published: int) -> tuple[ForkStanding, ...]:
    return (ForkStanding(60, 9, 60, first, tuples, published, "attempt"),)


def story(storage: Storage | None = None) -> Output:
    """A failure, its first correction and more guesses."""
    output = Output(storage)
    output.append([(Kind.RESULT, 10), (Kind.G_OPEN, 20)], STABLE, 10)
    failing = Outage("UP_FAILURE", 6, (1,), forks=fork(0, 2, 2))
    output.append([(Kind.TENTATIVE, 20), (Kind.TENTATIVE, 30)], failing, 10)
    corrected = [(Kind.UNDO, 0), (Kind.RESULT, 20), (Kind.G_CHECK, 30), (Kind.TENTATIVE, 40), (Kind.TENTATIVE, 50)]
    output.append(corrected, Outage("STABILIZATION", 7, (), (1,), 30, fork(5, 2, 4)), 20)
    return output
