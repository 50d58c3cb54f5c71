"""All checkpoint policies side by side, on the three regimes of the thesis (4.3): fast, slow and mixed windows.

The step of a task is run over logs on disk, without Spark: it opens the state that the step before left, reads the
input, runs the kernels, writes its block and leaves its state. Every policy takes in the same batches, in turns. The
clock is one that the benchmark moves, a second a batch, so that what is written does not depend on the machine; what
takes time is measured by another one.

The thesis has tuples come one by one, and 2 items of windows of 1 or of 1,000, or 110 of windows of 10. Here they come
in batches, in which windows of so few items would open and close: there are 2,000 items, or 11,000 of which 1,000
come seldom.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

import strandline as sl
from benchmarks.averages import Averages, Ids, Items, Windows, plan_of
from benchmarks.harness import say, workspace
from strandline.clock import ManualClock
from strandline.inputs.one_stream import OneStream
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.recovery.recover import Stand, recover
from strandline.recovery.without_replay import recover_without_replay
from strandline.running.step import Done


@dataclass(frozen=True)
class _Size:
    batch: int
    batches: int
    scale: int
    """Items: twice as many, or eleven times as many."""
    moments: int
    """At which a recovery is measured."""

    @property
    def replay(self) -> int:
        """Tuples of 10 batches, which are 10 seconds."""
        return 10 * self.batch


SIZES = {
    "tiny": _Size(1_000, 18, 10, 1),
    "small": _Size(50_000, 60, 1_000, 5),
    "large": _Size(50_000, 300, 1_000, 10),
}
REGIMES = ("fast", "slow", "mixed")
_WINDOWS = {"fast": 1, "slow": 1_000, "mixed": 10}


def policies_of(size: _Size) -> dict[str, sl.Policy]:
    """Every policy by its name. The time of an item is its number: so many a second as a batch has."""
    return {
        "cec()": sl.cec(),
        f'cec(extent="2x", replay={size.replay:_})': sl.cec(extent="2x", replay=size.replay),
        'cec(recover_within="1 s")': sl.cec(recover_within="1 s"),
        'cec(slow="10 s")': sl.cec(slow=size.replay),
        "cec(failures_per_day=24, balance=10)": sl.cec(failures_per_day=24, balance=10),
        'cec(extent="1x")': sl.cec(extent="1x"),
        'cec(extent="1x", interval="200 us", period="1 s")': sl.cec(extent="1x", interval="200 us", period="1 s"),
        'instant("10 s")': sl.instant("10 s"),
        'partial("10 s")': sl.partial("10 s"),
        "none()": sl.none(),
    }


def run(size: str, repeat: int = 3) -> dict[str, Any]:
    """Runs every regime under every policy; of each batch and each recovery the best of `repeat` rounds counts."""
    sizes, found, hashes = SIZES[size], [], []
    with workspace() as folder:
        for regime in REGIMES:
            runs = [_Regime(regime, sizes, folder / f"{regime}-{turn}", turn).run() for turn in range(repeat)]
            found += [_row(regime, name, [one[name] for one in runs]) for name in policies_of(sizes)]
            hashes += [measured.result_hash for one in runs for measured in one.values()]
    expected = {r["regime"]: r["result_hash"] for r in found}
    return {
        "benchmark": "policies",
        "size": size,
        "repeat": repeat,
        "batch": sizes.batch,
        "batches": sizes.batches,
        "results_match": all(r["results_match"] and r["result_hash"] == expected[r["regime"]] for r in found),
        "result_hash": xxhash.xxh3_64_hexdigest("".join(sorted(set(hashes))).encode()),
        "table": found,
    }


def _ids(regime: str, size: _Size, rng: np.random.Generator) -> Ids:
    """The items of a batch."""
    if regime != "mixed":
        return rng.integers(0, 2 * size.scale, size.batch)
    hundred, ten = 10 * size.scale, size.scale  # a hundred times as many, or most windows would not be fast
    often, seldom = rng.integers(0, hundred, size.batch), rng.integers(hundred, hundred + ten, size.batch)
    return np.where(rng.random(size.batch) < 0.01, seldom, often)


@dataclass
class _Measured:
    """One policy on one regime."""

    steps: list[Done]
    recoveries_s: list[float]
    is_same: bool
    lost: int = 0
    """Tuples that a recovery has left out, at most."""
    result_hash: str = ""

    @property
    def settled(self) -> list[Done]:
        return self.steps[len(self.steps) // 3 :]


class _Regime:
    """The same batches for every policy."""

    def __init__(self, name: str, size: _Size, folder: Path, turn: int) -> None:
        self._name, self._size, self._folder, self._turn = name, size, folder, turn
        self._clock = ManualClock(1_000_000)
        self._items = Items(LocalStorage(folder / "items", durability="os"))
        self._operators = {
            name: Averages(self._items, self._storage(n), folder / f"cache-{n}", self._window, policy, self._clock)
            for n, (name, policy) in enumerate(policies_of(size).items())
        }

    @property
    def _window(self) -> int:
        return _WINDOWS[self._name]

    def _storage(self, number: int) -> LocalStorage:
        return LocalStorage(self._folder / f"averages-{number}", durability="os")

    def run(self) -> dict[str, _Measured]:
        size, rng = self._size, np.random.default_rng(1)
        found = {name: _Measured([], [], True) for name in self._operators}
        chosen = np.random.default_rng(2).choice(
            np.arange(size.batches // 3, size.batches), size.moments, replace=False
        )
        names = list(found)
        for number in range(size.batches):
            self._items.append(_ids(self._name, size, rng), rng.random(size.batch))
            self._clock.advance(1)
            for i in range(len(names)):
                name = names[(i + number + self._turn) % len(names)]
                found[name].steps.append(self._operators[name].step(size.batch))
            if number in chosen:
                for n, name in enumerate(names):
                    self._recover(n, name, found[name])
        for name, measured in found.items():
            log = self._operators[name].log
            measured.result_hash = Windows.found(list(log.read(0))).hash()
        say(f"policies: {self._name} windows, round {self._turn + 1}")
        return found

    def _recover(self, number: int, name: str, measured: _Measured) -> None:
        began = time.perf_counter()
        output, plan = Log.open(self._storage(number), self._clock), plan_of(self._window)
        items = Log.open(LocalStorage(self._folder / "items"), self._clock)
        stand = Stand.of(output, 0)
        if stand.standing.replays:
            operator, done = recover(output, OneStream(plan, items), plan, stand)
            measured.is_same &= operator.open_windows == stand.standing.open
        else:
            _, done = recover_without_replay(output, plan, stand)
        measured.recoveries_s.append(time.perf_counter() - began - done.kernels_s)
        measured.lost = max(measured.lost, sum(loss.tuples or 0 for loss in done.losses))


def _row(regime: str, policy: str, rounds: list[_Measured]) -> dict[str, Any]:
    """What a policy did on a regime. Counts are those of the first round: they are the same in all, but for targets in
    seconds, which follow what the machine needs."""
    steps = rounds[0].settled
    batch_s = [min(one) for one in zip(*([s.seconds for s in r.settled] for r in rounds), strict=True)]
    recoveries = [min(one) for one in zip(*(r.recoveries_s for r in rounds), strict=True)]
    written = sum(s.opened + s.checked for s in steps)
    return {
        "regime": regime,
        "policy": policy,
        "open_windows": round(statistics.mean(s.standing.open for s in steps)),
        "results": sum(s.results for s in steps),
        "g_open": sum(s.opened for s in steps),
        "g_check": sum(s.checked for s in steps),
        "written_per_1000": round(1_000 * written / sum(s.tuples for s in steps), 1),
        "extent": max(s.standing.extent for s in steps),
        "replay": max(s.standing.replay for s in steps) if steps[-1].standing.replays else 0,
        "lost": max(r.lost for r in rounds),
        "recovery_s": round(max(recoveries), 4),
        "batch_ms": round(1_000 * statistics.median(batch_s), 2),
        "batch_ms_max": round(1_000 * max(batch_s), 2),
        "checkpoint_ms": round(1_000 * statistics.mean(s.checkpoint_s for s in steps), 2),
        "footprint_us": round(steps[-1].standing.footprint_cost / 1e3, 3),
        "footprint_ms": round(1_000 * statistics.mean(s.footprint_s for s in steps), 3),
        "replays": steps[-1].standing.replays,
        "results_match": all(r.is_same for r in rounds),
        "result_hash": rounds[0].result_hash,
    }
