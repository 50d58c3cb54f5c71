"""How long it takes to correct guesses: `redo` against `undo`, over state sizes and lengths of failures.

The DPC paper's Figure 12, and how many tentative tuples a second are corrected. A clock that is moved by hand lets the
bound run out; what is measured is the real time of the ticks from the moment in which the missing tuples are there to
the one in which all is stable. In: the look, reading all tuples since the failure, the kernels, results, the undo,
checksums, fsync, the manifest; with `undo` a recovery of the state from the log. Out: Spark.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.bounded_operator import BoundedOperator, calm_results, same_results
from benchmarks.harness import rounds, say, spread
from benchmarks.sensors import Sensors, join_of
from strandline.clock import ManualClock
from strandline.running.promise import Promise, Reconcile

WAYS: tuple[Reconcile, ...] = ("redo", "undo")
BOUND_US = 3_000_000
_BEGIN_US = 1_000_000_000


@dataclass(frozen=True)
class ReconciliationSize:
    """What to measure."""

    headline: int
    """Tentative tuples to be corrected, with a state of 100 tuples."""
    states: tuple[int, ...]
    """Sizes of the state, in tuples, with few tuples to be corrected."""
    failures: tuple[int, ...]
    """Tentative tuples, with a state of 100."""
    few: int = 3_000


def reconciliations(size: ReconciliationSize, repeat: int, folder: Path) -> dict[str, Any]:
    """The best of all rounds, of each way: tuples a second, and the curves of Figure 12."""
    Guesses(folder / "warm", 100, 300, "redo").corrected_s()
    headline = _measured(100, size.headline, max(5, repeat), folder)
    say(f"availability: {headline['tuples_per_s']['redo']:,} tentative tuples/s corrected")
    rows = {
        "state": [{"state": n, **_measured(n, size.few, repeat, folder)} for n in size.states],
        "failure": [{"tentative": n, **_measured(100, n, repeat, folder)} for n in size.failures],
    }
    every = [headline, *rows["state"], *rows["failure"]]
    return {
        "reconcile_tuples_per_s": headline["tuples_per_s"]["redo"],
        "reconciliation": {"tentative": size.headline, **headline},
        "figure12": rows,
        "stable_match": all(row["stable_match"] for row in every),
    }


def _measured(state: int, tentative: int, repeat: int, folder: Path) -> dict[str, Any]:
    matches: list[bool] = []

    def corrected(way: Reconcile) -> float:
        guesses = Guesses(folder / "reconciliation", state, tentative, way)
        seconds = guesses.corrected_s()
        if len(matches) < len(WAYS):
            matches.append(guesses.is_right())
        shutil.rmtree(folder / "reconciliation")
        return seconds

    seconds = rounds({way: partial(corrected, way) for way in WAYS}, repeat)
    best = {way: min(taken) for way, taken in seconds.items()}
    return {
        "seconds": {way: round(taken, 4) for way, taken in best.items()},
        "tuples_per_s": {way: round(tentative / taken) for way, taken in best.items()},
        "spread": {way: spread(taken) for way, taken in seconds.items()},
        "stable_match": all(matches),
    }


class Guesses:
    """One operator over three streams, or two in series, with so many guesses, because the second stream is missing.

    Operators in series share the state: each has its part of the keys. Each makes as many guesses.
    """

    def __init__(
        self, folder: Path, state: int, tentative: int, way: Reconcile, *, operators: int = 1, steps: int = 1
    ) -> None:
        """Makes the guesses in so many steps of a fork."""
        self._folder = folder
        self._clock = ManualClock(_BEGIN_US)
        keys = max(1, state // operators)
        self._sensors = Sensors(folder / "in", 3, 0, sensors=keys)
        promise = Promise(BOUND_US, reconcile=way)
        self._operators: list[BoundedOperator] = []
        inputs = self._sensors.paths
        for place in range(operators):
            own, join = folder / f"operator{place}", join_of(len(inputs))
            made = BoundedOperator(own, inputs, join, promise, clock=self._clock, durability="fsync")
            self._operators.append(made)
            inputs = [made.path]
        for number in range(3):
            self._sensors.add(number, max(keys, 10), 1_000_000)
        self._catch_up()
        self._each = tentative // 2
        began = time.process_time()
        for step in range(steps):
            for number in (0, 2):
                part = self._each * (step + 1) // steps - self._each * step // steps
                self._sensors.add(number, part, 1_000_000 + 1_000_000 * (step + 1) // steps)
            self._catch_up()
            for _ in self._operators if step == 0 else ():
                self._clock.advance(BOUND_US / 1e6)
                self._catch_up()
        self.guessing_cpu_s = time.process_time() - began
        """What the processor has worked from the first tuple without its match to the last guess."""
        self.correcting_cpu_s = 0.0
        """What it has worked in `corrected_s`."""
        for operator in self._operators:
            outage = operator.output.state.outage
            assert outage is not None
            assert outage.tentative == 2 * self._each, "there is nothing to correct"

    def _catch_up(self) -> None:
        """Until there is nothing to do: a step that opens a million windows stops for the moment."""
        while any([operator.tick().done for operator in self._operators]):
            pass

    @property
    def state_bytes(self) -> int:
        """How much disk the states of all operators need, those of forks included."""
        return sum(file.stat().st_blocks * 512 for file in self._folder.glob("operator*/[sf]0/*"))

    def corrected_s(self) -> float:
        """Seconds from when the missing tuples are there until all is stable."""
        self._sensors.add(1, self._each, 2_000_000)
        began, cpu_s = time.perf_counter(), time.process_time()
        while any(operator.state != "STABLE" for operator in self._operators):
            for operator in self._operators:
                operator.tick()
        self.correcting_cpu_s = time.process_time() - cpu_s
        return time.perf_counter() - began

    def is_right(self) -> bool:
        """Whether stable results are those of a run without a failure."""
        inputs, found = self._sensors.paths, True
        for place, operator in enumerate(self._operators):
            own = self._folder / f"calm{place}"
            found = found and same_results(operator.output, calm_results(own, inputs, join_of(len(inputs))))
            inputs = [own / "results"]
        return found
