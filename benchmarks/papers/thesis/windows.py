"""The thesis's workload of chapter 4: an average of prices over count windows that are fast, slow, or mixed.

Steps run over logs without Spark, and all contenders take in the same batches, in turns.

The thesis has tuples come one by one, 2 items with windows of 1,000 or 110 items with windows of 10. Here they come in
batches, in which windows of so few items would open and close. So there are as many times more items as a batch has
tuples, and a batch stands for the time in which one tuple came in the thesis.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import strandline as sl
from benchmarks.averages import Averages, Ids, Items, Windows
from benchmarks.papers.thesis.filtered import Stopwatch
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.storage.storage import Durability, Storage
from strandline.running.step import Done
from strandline.testing.memory_storage import MemoryStorage

WINDOWS = {"fast": 1, "slow": 1_000, "mixed": 10}
OPENINGS_ONLY = sl.cec(extent=10**12)
"""G-opens and no G-check: no extent is that long."""
_SELDOM = 0.01
"""Of the tuples of the mixed windows, those of the tenth of the items that come seldom."""


def ids_of(regime: str, scale: int, many: int, rng: np.random.Generator) -> Ids:
    """Returns the items of so many tuples: 2 items, or 100 that come often and 10 that come seldom, times the scale."""
    if regime != "mixed":
        return rng.integers(0, 2 * scale, many)
    often, seldom = rng.integers(0, 100 * scale, many), rng.integers(100 * scale, 110 * scale, many)
    return np.where(rng.random(many) < _SELDOM, seldom, often)


@dataclass(frozen=True)
class Contender:
    """A policy, and where the results go."""

    policy: sl.Policy
    durability: Durability | None
    """None: results stay in memory."""


@dataclass(frozen=True)
class Found:
    """The outcome of one contender on one regime."""

    goodput: float
    """Results a second."""
    real: float
    """Results and footprints a second: what the receiver gets."""
    results: int
    g_open: int
    g_check: int
    cpu_us: float
    """Microseconds of the processor for each tuple of the input."""
    spread: float
    """How far the slowest round lies from the fastest."""

    def to_json(self) -> dict[str, float]:
        """Returns the values as JSON holds them."""
        return {
            "goodput": round(self.goodput),
            "real": round(self.real),
            "results": self.results,
            "g_open": self.g_open,
            "g_check": self.g_check,
            "cpu_us": round(self.cpu_us, 4),
            "spread": round(self.spread, 3),
        }


def measured(
    contenders: Mapping[str, Contender], regime: str, scale: int, batch: int, batches: int, repeat: int, folder: Path
) -> dict[str, Found]:
    """Returns what came of each contender; of each batch the best round counts. Raises if results differ."""
    found = [_round(contenders, regime, scale, batch, batches, turn, folder / "round") for turn in range(repeat)]
    settled = batches // 4  # before that no window is old enough to close
    return {name: _found([one[name] for one in found], settled) for name in contenders}


@dataclass
class _Run:
    steps: list[Done]
    seconds: list[float]
    cpu_s: list[float]


def _round(
    contenders: Mapping[str, Contender], regime: str, scale: int, batch: int, batches: int, turn: int, folder: Path
) -> dict[str, _Run]:
    rng = np.random.default_rng(1)
    items = Items(MemoryStorage())  # the source of the thesis is another machine

    def storage(name: str, contender: Contender) -> Storage:
        if contender.durability is None:
            return MemoryStorage()
        return LocalStorage(folder / name.replace("/", "-"), contender.durability)

    operators = {
        name: Averages(items, storage(name, one), folder / f"cache-{n}", WINDOWS[regime], one.policy)
        for n, (name, one) in enumerate(contenders.items())
    }
    found = {name: _Run([], [], []) for name in contenders}
    names = list(contenders)
    for number in range(batches):
        items.append(ids_of(regime, scale, batch, rng), rng.random(batch))
        for i in range(len(names)):
            name = names[(i + number + turn) % len(names)]
            watch = Stopwatch()
            found[name].steps.append(operators[name].step(batch))
            used = watch.read()
            found[name].seconds.append(used.seconds)
            found[name].cpu_s.append(used.cpu_s)
    hashes = {Windows.found(list(operator.log.read(0))).hash() for operator in operators.values()}
    if len(hashes) != 1:
        raise AssertionError(f"the policies differ in their results of {regime} windows")
    shutil.rmtree(folder)
    return found


def _found(runs: Sequence[_Run], settled: int) -> Found:
    steps = runs[0].steps[settled:]
    seconds = _sum_of_best(runs, settled, lambda run: run.seconds)
    results, opened = sum(step.results for step in steps), sum(step.opened for step in steps)
    checked = sum(step.checked for step in steps)
    totals = [sum(run.seconds[settled:]) for run in runs]
    cpu_s = _sum_of_best(runs, settled, lambda run: run.cpu_s)
    return Found(
        goodput=results / seconds,
        real=(results + opened + checked) / seconds,
        results=results,
        g_open=opened,
        g_check=checked,
        cpu_us=1e6 * cpu_s / sum(step.tuples for step in steps),
        spread=max(totals) / min(totals) - 1,
    )


def _sum_of_best(runs: Sequence[_Run], settled: int, values: Callable[[_Run], list[float]]) -> float:
    """Returns the sum over batches of the best round of each."""
    return float(sum(min(one) for one in zip(*(values(run)[settled:] for run in runs), strict=True)))
