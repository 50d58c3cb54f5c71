"""Seeded runs of operators whose policies lose something, and have it on record; see `lossy_world`.

A failure names its seed: `python -m pytest tests/simulation/test_lossy_simulation.py --seed N` runs that one again.
"""

from concurrent.futures import Executor

import pytest

from tests.simulation.operator_runs import run_all, run_here
from tests.simulation.seeds import parametrize

SEEDS = (9, 600, 12_000)
FEW = 9


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, SEEDS, a_test=300)


def test_results_are_those_of_the_specification_without_what_is_on_record(seeds: range, workers: Executor) -> None:
    if len(seeds) <= FEW:
        run_here(seeds, "lossy")
    else:
        run_all(seeds, "lossy", workers)
