"""Seeded runs of keyed functions that die and come back; see `operator_world`.

A failure names its seed: `python -m pytest tests/simulation/test_keyed_simulation.py --seed N` runs that one again.
"""

from concurrent.futures import Executor

import pytest

from tests.simulation.operator_runs import run_all
from tests.simulation.seeds import parametrize

SEEDS = (150, 2_000, 15_000)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, SEEDS, a_test=500)


def test_whatever_happens_results_are_those_of_an_uninterrupted_run(seeds: range, workers: Executor) -> None:
    run_all(seeds, "keyed", workers)
