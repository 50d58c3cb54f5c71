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
from benchmarks.links import Link, Links, own_inputs
from benchmarks.sensors import SENSORS, WRITE_S, Sensors, sleep_until
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
_STREAMS = 3
"""How many streams have the rate together that is asked for; more streams bring more tuples."""
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
    behind: float = 1.0
    """The part of the bound that nodes behind the first have."""

    @property
    def name(self) -> str:
        """The combination."""
        return f"{self.failing}/{self.stabilizing}"

    def promise(self, share: float = 1.0) -> Promise:
        """Returns the promise of an operator that has this part of the bound."""
        return Promise(round(self.bound_s * share * 1e6), self.failing, self.stabilizing, self.reconcile)


@dataclass(frozen=True)
class InputFailure:
    """What happens: so many tuples a second over three streams, one of which is cut off for some time."""

    folder: Path
    tuples_per_s: int
    seconds: float
    contenders: tuple[Contender, ...]
    links: Links = own_inputs
    sensors: int = SENSORS
    before_s: float = BEFORE_S

    def run(self) -> list[dict[str, Any]]:
        """Runs it in real time; what it meant for each contender, the end of the chain last.

        Kernels are compiled before: call it in a process of its own.
        """
        depth = max(contender.depth for contender in self.contenders)
        warm_up(self.folder / "warm", depth, self.links)
        per_stream = self.tuples_per_s / _STREAMS
        many = _streams(self.links(depth))
        pieces = any(contender.pace for contender in self.contenders)  # a step takes in a block at least
        tuples_per_s = round(per_stream * many)
        sensors = Sensors(self.folder / "in", many, tuples_per_s, sensors=self.sensors, pieces=pieces)
        chains = [_Chain(self.folder / f"c{n}", c, sensors, self.links) for n, c in enumerate(self.contenders)]
        return self._measured(sensors, chains, healed_s=self._go(sensors, chains))

    def _go(self, sensors: Sensors, chains: Sequence[_Chain]) -> float:
        """Lets time pass until all is well again; when the stream was back."""
        start = time.time()
        begins = start + self.before_s
        heals = begins + self.seconds
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
        longest = max(chains, key=lambda chain: len(chain.links)).links
        calm: list[Log] = []
        before: Path | None = None
        for place, link in enumerate(longest):
            own = self.folder / f"calm{place}"
            calm.append(calm_results(own, _inputs_of(link, before, sensors), link.definition))
            before = own / "results"
        return [
            {"failure_s": self.seconds, **chain.measured(place, sensors, calm[place], healed_s)}
            for chain in chains
            for place, link in enumerate(chain.links)
            if link.is_end
        ]


class _Chain:
    """The operators of a contender, each over the results of the one before, or streams, or both."""

    def __init__(self, folder: Path, contender: Contender, sensors: Sensors, links: Links) -> None:
        self._contender = contender
        self.links = links(contender.depth)
        self.stages: list[BoundedOperator] = []
        for place, link in enumerate(self.links):
            inputs = _inputs_of(link, self.stages[-1].path if self.stages else None, sensors)
            promise, own = contender.promise(self._share(place)), folder / f"stage{place}"
            self.stages.append(BoundedOperator(own, inputs, link.definition, promise, pace=contender.pace))

    def _share(self, place: int) -> float:
        """Returns the part of the bound that an operator has."""
        is_behind = any(link.is_end for link in self.links[:place])
        return self.links[place].share * (self._contender.behind if is_behind else 1.0)

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
        limit_s = sum(map(self._share, range(place + 1))) * contender.bound_s + step_s
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
            "depth": sum(link.is_end for link in self.links[: place + 1]),
            "delay_new_max_s": round(found.new_max_s, 3),
            "delay_seen_max_s": round(found.seen_max_s, 3),
            "step_s": round(step_s, 3),
            "tentative": found.tentative,
            "stable_again_s": round(ended[0] - healed_s, 3) if ended else None,
            "bound_kept": found.seen_max_s <= limit_s,
            "stable_match": same_results(stage.output, calm),
        }


def _inputs_of(link: Link, before: Path | None, sensors: Sensors) -> list[Path]:
    """Returns what an operator reads: the results before it, then its streams."""
    return [*([before] if before is not None else []), *(sensors.paths[number] for number in link.streams)]


def _streams(links: Sequence[Link]) -> int:
    """Returns how many streams the operators read."""
    return 1 + max(number for link in links for number in link.streams)


def warm_up(folder: Path, depth: int = 1, links: Links = own_inputs) -> None:
    """Has every kernel compiled, by a failure that goes by a clock that is moved by hand."""
    clock, chain = ManualClock(1_000_000), links(depth)
    sensors = Sensors(folder / "in", _streams(chain), 300)
    stages: list[BoundedOperator] = []
    for place, link in enumerate(chain):
        inputs = _inputs_of(link, stages[-1].path if stages else None, sensors)
        own = folder / f"stage{place}"
        stages.append(BoundedOperator(own, inputs, link.definition, Promise(1_000_000), clock=clock))
    for moment in range(8):
        sensors.write((moment + 1) * 1_000_000, [SHORT_OF] if 2 <= moment < 6 else [])
        clock.advance(1)
        for stage in stages:
            stage.tick()
