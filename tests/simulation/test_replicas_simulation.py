"""Seeded runs of replicas that fail each in its own way, and of a reader that changes between them and dies itself.

See `replicas_world`; `test_written_replicas_simulation` does the same without operators, ten times as often. A failure
names its seed: `python -m pytest tests/simulation/test_replicas_simulation.py --seed N` runs that one again.
"""

from __future__ import annotations

from concurrent.futures import Executor

import pytest

from tests.simulation import replicas_world
from tests.simulation.seeded_runs import run_seeds
from tests.simulation.seeds import parametrize
from tests.simulation.table_codec import table_codec

SEEDS = (0, 80, 10_000)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, SEEDS, a_test=200)


def run(seed: int) -> None:
    with table_codec():
        replicas_world.run(seed)


def test_whoever_changes_between_replicas_gets_every_result_once_and_no_guess_that_goes_back(
    seeds: range, workers: Executor
) -> None:
    run_seeds(run, seeds, workers)
