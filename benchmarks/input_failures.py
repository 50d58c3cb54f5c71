"""Failures of an input in real time, seen by several operators at once: the DPC paper's Figures 9, 10 and 11.

One thread does everything, in turns: it writes the streams, and lets every operator tick once in `TICK_S`. So nothing
is measured that a busy machine would not show as a longer step.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bounded_operator import BoundedOperator, calm_results, delays, same_results
from benchmarks.sensors import WRITE_S, Sensors, join_of, sleep_until
from strandline.clock import ManualClock
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.log import Log
from strandline.running.promise import Mode, Promise, Reconcile

TICK_S = 0.2
"""An operator looks as often: what a trigger is in Spark."""
BEFORE_S, AFTER_S = 1.0, 0.6
"""How long all is well before a failure, and at least behind it."""
PATIENCE_S = 120.0
SHORT_OF = 1
"""The number of the stream that is cut off."""
COMBINATIONS: tuple[tuple[Mode, Mode], ...] = (
    ("process", "process"),
    ("delay", "process"),
    ("process", "delay"),
    ("delay", "delay"),
    ("process", "suspend"),
    ("delay", "suspend"),
)
KEEPS_BOUND = ("process/process", "delay/delay")


@dataclass(frozen=True)
class Contender:
    """An operator with a bound, or a chain of them."""

    bound_s: float
    failing: Mode = "process"
    stabilizing: Mode = "process"
    depth: int = 1
    pace: int | None = None
    """Tuples a second of the stable lineage at most, so that correcting takes long; None: as fast as it can."""
    reconcile: Reconcile = "redo"

    @property
    def name(self) -> str:
        """The combination."""
        return f"{self.failing}/{self.stabilizing}"

    @property
    def promise(self) -> Promise:
        """The same in the operator's words."""
        return Promise(round(self.bound_s * 1e6), self.failing, self.stabilizing, self.reconcile)


@dataclass(frozen=True)
class InputFailure:
    """What happens: so many tuples a second over three streams, one of which is cut off for some time."""

    folder: Path
    tuples_per_s: int
    seconds: float
    contenders: tuple[Contender, ...]
    streams: int = 3

    def run(self) -> list[dict[str, Any]]:
        """Runs it in real time; what it meant for each contender, the end of the chain last.

        Kernels are compiled before: call it in a process of its own.
        """
        depth = max(contender.depth for contender in self.contenders)
        warm_up(self.folder / "warm", depth)
        per_stream = self.tuples_per_s / self.streams
        many = self.streams + depth - 1
        pieces = any(contender.pace for contender in self.contenders)  # a step takes in a block at least
        sensors = Sensors(self.folder / "in", many, round(per_stream * many), pieces=pieces)
        chains = [_Chain(self.folder / f"c{n}", c, sensors, self.streams) for n, c in enumerate(self.contenders)]
        return self._measured(sensors, chains, healed_s=self._go(sensors, chains))

    def _go(self, sensors: Sensors, chains: Sequence[_Chain]) -> float:
        """Lets time pass until all is well again; when the stream was back."""
        start = time.time()
        begins, heals = start + BEFORE_S, start + BEFORE_S + self.seconds
        share = TICK_S / len(chains)
        due = [(start + 2 * WRITE_S + n * share, n) for n in range(len(chains))]
        heapq.heapify(due)
        written = start
        healed_s = 0.0
        while True:
            moment, number = due[0]
            if written + WRITE_S <= moment:
                written += WRITE_S
                sleep_until(written)
                is_cut_off = begins <= written < heals
                sensors.write(round(written * 1e6), [SHORT_OF] if is_cut_off else [])
                if not is_cut_off and written >= heals and not healed_s:
                    healed_s = time.time()
                continue
            sleep_until(moment)
            chains[number].tick()
            heapq.heapreplace(due, (max(moment + TICK_S, time.time()), number))
            if written > heals + AFTER_S and all(chain.is_stable for chain in chains):
                break
            if written > heals + PATIENCE_S:
                raise TimeoutError(f"not stable {PATIENCE_S:.0f} s after a failure of {self.seconds:g} s")
        sensors.finish()
        while not all(chain.is_finished for chain in chains):
            for chain in chains:
                chain.tick()
        return healed_s

    def _measured(self, sensors: Sensors, chains: Sequence[_Chain], healed_s: float) -> list[dict[str, Any]]:
        calm: list[Log] = []
        folders = [self.folder / f"calm{place}" for place in range(max(len(chain.stages) for chain in chains))]
        for place, folder in enumerate(folders):
            inputs = _inputs_of(place, [folder / "results" for folder in folders], sensors, self.streams)
            calm.append(calm_results(folder, inputs, join_of(len(inputs))))
        return [
            {"failure_s": self.seconds, **chain.measured(place, sensors, calm[place], healed_s)}
            for chain in chains
            for place in range(len(chain.stages))
        ]


class _Chain:
    """The operators of a contender, each over the results of the one before and a stream of its own."""

    def __init__(self, folder: Path, contender: Contender, sensors: Sensors, streams: int) -> None:
        self._contender = contender
        self.stages: list[BoundedOperator] = []
        for place in range(contender.depth):
            inputs = _inputs_of(place, [stage.path for stage in self.stages], sensors, streams)
            own, join = folder / f"stage{place}", join_of(len(inputs))
            self.stages.append(BoundedOperator(own, inputs, join, contender.promise, pace=contender.pace))

    def tick(self) -> None:
        for stage in self.stages:
            stage.tick()

    @property
    def is_stable(self) -> bool:
        return all(stage.state == "STABLE" for stage in self.stages)

    @property
    def is_finished(self) -> bool:
        return all(stage.output.state.finished for stage in self.stages)

    def measured(self, place: int, sensors: Sensors, calm: Log, healed_s: float) -> dict[str, Any]:
        """What the failure meant for what one of the operators says."""
        contender, stage = self._contender, self.stages[place]
        found = delays(stage.output, sensors, self.stages[0].looked_us)
        step_s = sum(stage.step_s for stage in self.stages[: place + 1])
        limit_s = (place + 1) * contender.bound_s + step_s
        ended = [
            m.outage.since_us / 1e6
            for m in stage.output.after(-1)
            if isinstance(m, AppendCommit)
            and m.outage
            and m.outage.state == "STABLE"
            and m.outage.since_us / 1e6 >= healed_s
        ]
        return {
            "combination": contender.name,
            "bound_s": contender.bound_s,
            "depth": place + 1,
            "delay_new_max_s": round(found.new_max_s, 3),
            "delay_seen_max_s": round(found.seen_max_s, 3),
            "step_s": round(step_s, 3),
            "tentative": found.tentative,
            "stable_again_s": round(ended[0] - healed_s, 3) if ended else None,
            "bound_kept": found.seen_max_s <= limit_s,
            "stable_match": same_results(stage.output, calm),
        }


def _inputs_of(place: int, outputs: Sequence[Path], sensors: Sensors, streams: int) -> list[Path]:
    """What the operator at a place of a chain reads: the streams, or what comes before it and one stream more."""
    if place == 0:
        return sensors.paths[:streams]
    return [outputs[place - 1], sensors.paths[streams + place - 1]]


def warm_up(folder: Path, depth: int = 1) -> None:
    """Has every kernel compiled, by a failure that goes by a clock that is moved by hand."""
    clock = ManualClock(1_000_000)
    sensors = Sensors(folder / "in", 3 + depth - 1, 300)
    stages: list[BoundedOperator] = []
    for place in range(min(depth, 2)):
        inputs = _inputs_of(place, [stage.path for stage in stages], sensors, 3)
        own = folder / f"stage{place}"
        stages.append(BoundedOperator(own, inputs, join_of(len(inputs)), Promise(1_000_000), clock=clock))
    for moment in range(8):
        sensors.write((moment + 1) * 1_000_000, [SHORT_OF] if 2 <= moment < 6 else [])
        clock.advance(1)
        for stage in stages:
            stage.tick()
