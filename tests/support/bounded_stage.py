"""An operator with a bound in a test of chains: a tick at a time, and what its output tells."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from strandline.log.operator_state.outage import Outage
from strandline.log.reading.tentative_results import changes
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.running import tick as ticks
from strandline.running.element import Element
from strandline.running.fork import Caches
from strandline.running.promise import Promise
from strandline.running.state.state_cache import StateCache
from strandline.running.step import Logs
from strandline.running.tick import Operation, Ticked, Work, Worked
from strandline.running.watch import Watch


class Stage:
    """One operator with a bound, ticked by hand: its inputs, its output, its states in a folder."""

    def __init__(self, folder: Path, element: Element, inputs: tuple[Log, ...], output: Log, promise: Promise) -> None:
        self.folder, self.element, self.inputs, self.output, self.promise = folder, element, inputs, output, promise
        self.watch = Watch.fresh(len(inputs))
        self.shown = 0

    def tick(self) -> Ticked:
        operation = Operation(
            self.element, self.promise, self.element.input(self.inputs), self.output, self.output.clock
        )
        ticked = operation.tick(self.watch, self._run, Writer("q", "r", 1))
        self.watch = ticked.watch
        return ticked

    def begin_anew(self) -> None:
        """Another process goes on."""
        states = [log.state for log in self.inputs]
        known = [state.boundary for state in states]
        now_us = self.output.clock.steady_us()
        self.watch = Watch.resumed(known, self.output.state.outage, now_us, self.promise.bound_us, states)

    def _run(self, works: Sequence[Work]) -> list[Worked]:
        logs, clock = Logs(self.output, self.inputs), self.output.clock
        return [ticks.run(work, self.element, logs, self.caches(work.partition), clock) for work in works]

    def caches(self, partition: int) -> Caches:
        return Caches(*(StateCache(self.folder / f"{lineage}{partition}") for lineage in ("stable", "fork")))

    def told(self) -> list[tuple[str, int]]:
        """What a follower has got since it last looked: kinds, and ends of windows."""
        tables = changes(self.output, 0, self.shown, columns=[self.output.spec.time])
        self.shown = self.output.state.ends[0]
        return [(r["_kind"], r[self.output.spec.time]) for table in tables for r in table.to_pylist()]

    @property
    def outage(self) -> Outage:
        return self.output.state.outage or Outage()
