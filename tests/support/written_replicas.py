"""Replicas whose streams are written by hand: no operator, but all that a reader gets to see of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from strandline.clock import ManualClock
from strandline.errors import StorageError
from strandline.log.operator_state.outage import ForkStanding, Outage, State
from strandline.log.operator_state.standing import Standing
from strandline.log.storage.storage import Storage, create_once
from strandline.log.stream.append_commit import Append
from strandline.log.stream.block_sequence import BlockSequence, control_block
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.testing import MemoryStorage
from tests.support.operator_streams import PLANS, output_spec

SPEC = output_spec(PLANS["tumbling time"], input_path="streams/input")


class Written:
    """The stream of a replica, written by hand: windows are known by their ends."""

    def __init__(self, name: str, storage: Storage | None = None, **changed: Any) -> None:
        self.storage = storage or MemoryStorage(ManualClock(1))
        self.log = Log.create(self.storage, replace(SPEC, id=name, **changed), ManualClock(1))
        self.is_reachable = True

    def open(self) -> Log:
        if not self.is_reachable:
            raise StorageError("it cannot be reached", stream=self.storage.url)
        return Log.open(self.storage, ManualClock(1))

    def cut_off(self) -> None:
        """Whoever has opened it cannot read it any more, either."""
        self.is_reachable = False
        self.storage.read = self._refused  # type: ignore[method-assign]

    def _refused(self, key: str) -> bytes:
        raise StorageError("it cannot be reached", where=key)

    def append(
        self, told: Sequence[tuple[Kind, int]], state: State = "STABLE", boundary: int = 0, **said: Any
    ) -> Written:
        """One commit."""
        before, blocks, first = self.log.state, [], self.log.state.ends[0]
        undone = counts = 0
        for kind, end in told:
            if kind in (Kind.UNDO, Kind.REC_DONE):
                block = control_block(self.log, 0, first, [kind], f"{kind.name}{first}")
                undone, counts = (first + 1, 0) if kind is Kind.UNDO else (undone, counts)
            else:
                columns = [
                    pa.array([end], f.type) if f.name == "window_end" else pa.nulls(1, f.type) for f in SPEC.arrow
                ]
                create = partial(create_once, self.storage)
                sequence = BlockSequence(self.log.spec, 0, first, f"{kind.name}{first}", create)
                (block,) = sequence.write([(kind, columns)])
                counts += kind is Kind.TENTATIVE
            blocks.append(block)
            first += 1
        known = before.standings[0].results if before.standings else 0
        results = (known or 0) + sum(kind is Kind.RESULT for kind, _ in told)
        fork = before.outage.forks[0] if before.outage and before.outage.forks else None
        forks = ()
        if state != "STABLE":
            start = undone or (fork.first if fork else before.ends[0])
            tuples = counts if undone or fork is None else fork.tuples + counts
            forks = (ForkStanding(boundary, 0, None, start, tuples, 1 << 20),)
        standing = Standing(0, -1, 0, 0, 0, 0, **{"results": results, **said})
        self.log.append(
            Append(blocks, standings=[standing], boundaries=[boundary], outage=Outage(state, 5, forks=forks))
        )
        return self
