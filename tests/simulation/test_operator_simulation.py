"""Thousands of seeded runs of an operator over one stream that dies and comes back; see `operator_world`.

A failure names its seed: `python -m pytest tests/simulation/test_operator_simulation.py --seed N` runs that one again.
"""

from concurrent.futures import Executor
from pathlib import Path

import pytest

from tests.simulation.operator_runs import run, run_all
from tests.simulation.seeds import parametrize

SEEDS = (80, 800, 40_000)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, SEEDS, a_test=400)


def test_whatever_happens_results_are_those_of_an_uninterrupted_run(seeds: range, workers: Executor) -> None:
    run_all(seeds, "one", workers)


def test_one_seed_gives_one_run(tmp_path: Path) -> None:
    for seed in range(8):
        assert run(seed, tmp_path / f"a{seed}", "one") == run(seed, tmp_path / f"b{seed}", "one")
