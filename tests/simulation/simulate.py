"""`make simulate MINUTES=60 [SEED=…]`: all simulations in turn, on new seeds, until the time is over.

A line a minute says how many runs there were and what was injected. The last line is the summary as JSON, which
`--summary FILE` writes to a file, too. A seed that breaks a promise is reported with the command that repeats it, and
ends the run with status 1. Ctrl-C ends it early, with the summary of what was done.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import queue
import secrets
import signal
import sys
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from strandline.clock import stopwatch_s
from tests.simulation.catalogue import SIMULATIONS
from tests.simulation.seeded_runs import run_seeds
from tests.simulation.tally import counted

PROCESSES = 2
TURN_S = 5.0
"""So long a process runs one simulation before it goes on with the next."""
LINE_S = 60.0


@dataclass
class Totals:
    """Adds up the runs, faults and failures of all processes."""

    runs: Counter[str] = field(default_factory=Counter)
    """By simulation."""
    seconds: Counter[str] = field(default_factory=Counter)
    injected: Counter[str] = field(default_factory=Counter)
    """By kind of fault."""
    failures: list[str] = field(default_factory=list)

    def add(self, turn: dict[str, Any]) -> None:
        self.runs[turn["name"]] += turn["runs"]
        self.seconds[turn["name"]] += turn["seconds"]
        self.injected.update(turn["injected"])
        self.failures += turn["failures"]

    def line(self, elapsed_s: float) -> str:
        runs = self.runs.total()
        faults = {name: n for name, n in sorted(self.injected.items()) if name != "crash"}
        told = " ".join(f"{name}={n:,}" for name, n in faults.items())
        return (
            f"{elapsed_s / 60:.0f} min: {runs:,} runs ({runs / elapsed_s * 60:,.0f} a minute), "
            f"{self.injected['crash']:,} crashes, faults: {told or 'none'}; {len(self.failures)} failed"
        )

    def summary(self, seed: int, elapsed_s: float) -> dict[str, Any]:
        by_name = {
            name: {"runs": runs, "runs_per_minute_and_core": round(60 * runs / self.seconds[name])}
            for name, runs in sorted(self.runs.items())
        }
        return {
            "seed": seed,
            "minutes": round(elapsed_s / 60, 2),
            "runs": self.runs.total(),
            "runs_per_minute": round(60 * self.runs.total() / elapsed_s),
            "crashes": self.injected["crash"],
            "faults": {name: n for name, n in sorted(self.injected.items()) if name != "crash"},
            "simulations": by_name,
            "failures": self.failures,
        }


def work(number: int, first_seed: int, seconds: float, done: Any) -> None:
    """Runs turns of the simulations for so long; process `number` takes the seeds that the others leave."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends this one
    until_s = stopwatch_s() + seconds  # from here on: on a busy machine the imports took longer than a short run
    names = list(SIMULATIONS)
    names = names[number * len(names) // PROCESSES :] + names[: number * len(names) // PROCESSES]
    seeds = {name: count(first_seed + number, PROCESSES) for name in names}
    while stopwatch_s() < until_s:
        for name in names:
            began_s, runs, injected, failures = stopwatch_s(), 0, Counter[str](), []
            with counted(injected):
                while stopwatch_s() < min(began_s + TURN_S, until_s):
                    try:
                        run_seeds(SIMULATIONS[name], [next(seeds[name])])
                    except AssertionError as problem:
                        failures.append(str(problem))
                        traceback.print_exc()
                    runs += 1
            turn = {"name": name, "runs": runs, "seconds": stopwatch_s() - began_s}
            done.put({**turn, "injected": dict(injected), "failures": failures})


def simulate(minutes: float, seed: int) -> tuple[Totals, float]:
    """Runs all simulations for so many minutes; returns what was done, and in how many seconds."""
    print(f"seeds from {seed} on: {', '.join(SIMULATIONS)}", flush=True)
    began_s, told_s = stopwatch_s(), 0.0
    totals, context = Totals(), multiprocessing.get_context("spawn")
    done: Any = context.Queue()
    workers = [context.Process(target=work, args=(n, seed, 60 * minutes, done), daemon=True) for n in range(PROCESSES)]
    for worker in workers:
        worker.start()
    try:
        while any(worker.is_alive() for worker in workers) or not done.empty():
            with suppress(queue.Empty):
                totals.add(done.get(timeout=0.5))
            elapsed_s = stopwatch_s() - began_s
            if elapsed_s - told_s >= LINE_S:
                told_s = elapsed_s
                print(totals.line(elapsed_s), flush=True)
        if lost := [worker.exitcode for worker in workers if worker.exitcode]:
            totals.failures.append(f"a process of the simulation ended with status {lost[0]}")
    except KeyboardInterrupt:
        print("stopped", flush=True)
        for worker in workers:
            worker.kill()
    return totals, stopwatch_s() - began_s


def main() -> None:
    """Runs the command."""
    arguments = argparse.ArgumentParser(prog="make simulate", description=__doc__.split("\n")[0])
    arguments.add_argument("--minutes", type=float, default=5.0)
    arguments.add_argument("--seed", type=int, help="the first seed; drawn anew by default")
    arguments.add_argument("--summary", type=Path, metavar="FILE", help="write the summary to this file, too")
    given = arguments.parse_args()
    if given.minutes <= 0:
        arguments.error(f"--minutes {given.minutes:g}: use a number above 0")
    seed = secrets.randbelow(1 << 32) if given.seed is None else given.seed
    totals, elapsed_s = simulate(given.minutes, seed)
    print(totals.line(elapsed_s))
    summary = json.dumps(totals.summary(seed, elapsed_s), indent=2)
    if given.summary is not None:
        given.summary.write_text(summary + "\n")
    print(summary)
    sys.exit(1 if totals.failures or not totals.runs else 0)


if __name__ == "__main__":
    main()
