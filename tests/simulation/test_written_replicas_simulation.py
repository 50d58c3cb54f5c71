"""Seeded runs of replicas that are written by hand, and of a reader that changes between them and dies itself.

See `written_replicas_world`. A failure names its seed: `python -m pytest
tests/simulation/test_written_replicas_simulation.py --seed N` runs that one again.
"""

from __future__ import annotations

from concurrent.futures import Executor

import pytest

from tests.simulation import written_replicas_world
from tests.simulation.seeded_runs import run_seeds
from tests.simulation.seeds import parametrize
from tests.simulation.table_codec import table_codec

SEEDS = (4, 150, 50_000)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, SEEDS, a_test=200)


def run(seed: int) -> None:
    with table_codec():
        written_replicas_world.run(seed)


def test_in_whatever_order_replicas_commit_every_result_is_shown_once_and_no_guess_goes_back(
    seeds: range, workers: Executor
) -> None:
    run_seeds(run, seeds, workers)
