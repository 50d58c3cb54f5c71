"""Steps of joins over windows of the last tuples, without Spark: contenders take in the same batches in turns.

A step is that of a task, over logs in memory: it opens the state that the step before left on disk, reads both inputs
and puts them in order, runs the kernels, encodes and checksums the block, and leaves its state. For every batch the
best of all rounds counts. All contenders take in a batch before any takes in the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import strandline as sl
from benchmarks.harness import spread
from benchmarks.orders import PAPER_LEFT, PAPER_RIGHT, Ids, Joined, Matches, Side, paper_tuples, results_of
from strandline.operators.join.definition import JoinDefinition
from strandline.testing import MemoryStorage


@dataclass(frozen=True, eq=False)
class Workload:
    """Tuples of both sides in batches. Tuples are as in SPADE's paper (`orders.paper_tuples`)."""

    left: Ids
    right: Ids
    batch: int
    """Tuples a batch and side."""
    settle: int
    """Batches that are not measured: until then windows are not full."""

    @property
    def measured(self) -> int:
        """The tuples of both sides that are measured."""
        return 2 * (len(self.left) - self.settle * self.batch)

    def batches(self) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Makes the batches of both sides, the same ones each time."""
        rng = np.random.default_rng(8)
        for first in range(0, len(self.left), self.batch):
            part = slice(first, first + self.batch)
            yield paper_tuples(rng, "left", first, self.left[part]), paper_tuples(rng, "right", first, self.right[part])

    def streams(self) -> tuple[Side, Side]:
        """Makes a log of each side, with all batches."""
        sides = Side(MemoryStorage(), "left", PAPER_LEFT), Side(MemoryStorage(), "right", PAPER_RIGHT)
        for tables in self.batches():
            for side, table in zip(sides, tables, strict=True):
                side.append(table)
        return sides


@dataclass(frozen=True)
class Contender:
    """A join under a policy, over some tuples."""

    workload: Workload
    join: JoinDefinition
    policy: sl.Policy


@dataclass(frozen=True)
class Taken:
    """What the measured steps of a contender took, and what they left."""

    seconds: float
    spread: float
    footprints: int
    """Footprints of the measured steps."""
    extent: int
    """The most output tuples that a recovery would have read after a measured step."""
    found: Matches

    def cost_pct(self, none: Taken) -> float:
        """Returns the part of the rate that checkpoints cost, against the same join under `none()`.

        Raises if no footprint was written: then the difference is noise.
        """
        if not self.footprints:
            raise RuntimeError("the policy wrote no footprint in the measured steps: its cost would be noise")
        return round(100 * (1 - none.seconds / self.seconds), 2)


def steps(contenders: Mapping[str, Contender], repeat: int, folder: Path) -> dict[str, Taken]:
    """Runs all contenders, batch by batch in turns, as often as `repeat` says."""
    names = list(contenders)
    workloads = {id(each.workload): each.workload for each in contenders.values()}
    inputs = {key: workload.streams() for key, workload in workloads.items()}
    seconds: dict[str, list[list[float]]] = {name: [] for name in names}
    taken: dict[str, Taken] = {}
    for turn in range(repeat):
        joins = {
            name: Joined(inputs[id(one.workload)], MemoryStorage(), folder / f"{turn}-{number}", one.join, one.policy)
            for number, (name, one) in enumerate(contenders.items())
        }
        footprints, extents = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
        for name in names:
            seconds[name].append([])
        for number in range(max(len(w.left) // w.batch for w in workloads.values())):
            for name in names if (number + turn) % 2 == 0 else reversed(names):
                workload = contenders[name].workload
                done = joins[name].step(2 * workload.batch)
                seconds[name][turn].append(done.seconds)
                if number >= workload.settle:
                    footprints[name] += done.opened + done.checked
                    extents[name] = max(extents[name], done.standing.extent)
        for name in names:
            settle = contenders[name].workload.settle
            measured = [one[settle:] for one in seconds[name]]
            taken[name] = Taken(
                sum(map(min, zip(*measured, strict=True))),
                spread([sum(one) for one in measured]),
                footprints[name],
                extents[name],
                Matches.found(results_of(joins[name].log)),
            )
    return taken
