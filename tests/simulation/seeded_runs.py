"""Many seeds of a simulation, in two processes; a failure names its seed and how to run it again."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor

WORKERS = 2
FEW = 10
"""So many are run here, where a debugger can follow."""


def run_seeds(run: Callable[[int], object], seeds: range, workers: Executor) -> None:
    """Runs the seeds, with a function that stands in the test's own file: its name leads other processes to it."""
    if len(seeds) < FEW:
        run_one_by_one(run, seeds)
        return
    for done in [workers.submit(run_one_by_one, run, seeds[i::WORKERS]) for i in range(WORKERS)]:
        done.result()


def run_one_by_one(run: Callable[[int], object], seeds: range) -> None:
    """Runs the seeds here."""
    for seed in seeds:
        try:
            run(seed)
        except BaseException as problem:
            raise failed(run.__module__.rpartition(".")[2], seed, problem) from problem


def failed(test: str, seed: int, problem: BaseException) -> AssertionError:
    """What failed and how to see it again, as text, because it may come from another process."""
    again = f"python -m pytest tests/simulation/{test}.py --seed {seed}"
    return AssertionError(f"seed {seed}, {type(problem).__name__}: {problem}\n{again}")
