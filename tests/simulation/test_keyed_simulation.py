"""Seeded runs of keyed functions that die and come back; see `operator_world`.

A failure names its seed: `python -m pytest tests/simulation/test_keyed_simulation.py --seed N` runs that one again.
"""

from concurrent.futures import Executor

import pytest

from tests.simulation.operator_runs import run_all, run_here
from tests.simulation.seeds import parametrize

SEEDS = (20, 290, 15_000)
FEW = 40
"""They are run here: every process has to compile the functions."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, SEEDS, a_test=500)


def test_whatever_happens_results_are_those_of_an_uninterrupted_run(seeds: range, workers: Executor) -> None:
    if len(seeds) <= FEW:
        run_here(seeds, "keyed")
    else:
        run_all(seeds, "keyed", workers)
