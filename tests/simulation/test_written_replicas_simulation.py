"""Seeded runs of replicas that are written by hand, and of a reader that changes between them and dies itself.

See `written_replicas_world`. A failure names its seed: `python -m pytest
tests/simulation/test_written_replicas_simulation.py --seed N` runs that one again.
"""

from __future__ import annotations

from concurrent.futures import Executor

import pytest

from tests.simulation import written_replicas_world
from tests.simulation.seeds import parametrize
from tests.simulation.table_codec import table_codec

SEEDS = (4, 150, 50_000)
WORKERS = 2


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, SEEDS, a_test=200)


def run_here(seeds: range) -> None:
    """Runs the seeds one by one."""
    for seed in seeds:
        with table_codec():
            try:
                written_replicas_world.run(seed)
            except BaseException as problem:
                again = f"python -m pytest tests/simulation/test_written_replicas_simulation.py --seed {seed}"
                raise AssertionError(f"seed {seed}, {type(problem).__name__}: {problem}\n{again}") from problem


def test_in_whatever_order_replicas_commit_every_result_is_shown_once_and_no_guess_goes_back(
    seeds: range, workers: Executor
) -> None:
    if len(seeds) < 10:
        run_here(seeds)
        return
    for done in [workers.submit(run_here, seeds[i::WORKERS]) for i in range(WORKERS)]:
        done.result()
