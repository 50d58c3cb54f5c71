"""Seeded runs of replicas that fail each in its own way, and of a reader that changes between them and dies itself.

See `replicas_world`; `test_written_replicas_simulation` does the same without operators, ten times as often. A failure
names its seed: `python -m pytest tests/simulation/test_replicas_simulation.py --seed N` runs that one again.
"""

from __future__ import annotations

from concurrent.futures import Executor

import pytest

from tests.simulation import replicas_world
from tests.simulation.seeds import parametrize
from tests.simulation.table_codec import table_codec

SEEDS = (0, 40, 10_000)
WORKERS = 2


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, SEEDS, a_test=200)


def run_here(seeds: range) -> None:
    """Runs the seeds one by one."""
    for seed in seeds:
        with table_codec():
            try:
                replicas_world.run(seed)
            except BaseException as problem:
                again = f"python -m pytest tests/simulation/test_replicas_simulation.py --seed {seed}"
                raise AssertionError(f"seed {seed}, {type(problem).__name__}: {problem}\n{again}") from problem


def test_whoever_changes_between_replicas_gets_every_result_once_and_no_guess_that_goes_back(
    seeds: range, workers: Executor
) -> None:
    if len(seeds) < 10:
        run_here(seeds)
        return
    for done in [workers.submit(run_here, seeds[i::WORKERS]) for i in range(WORKERS)]:
        done.result()
