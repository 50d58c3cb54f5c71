"""Thousands of seeded runs of unions, joins and barriers that die and come back; see `operator_world`.

A failure names its seed: `python -m pytest tests/simulation/test_several_inputs_simulation.py --seed N` runs that one
again.
"""

from concurrent.futures import Executor
from pathlib import Path

import pytest

from tests.simulation.operator_runs import run, run_all
from tests.simulation.seeds import parametrize

SEEDS = (60, 420, 50_000)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, SEEDS, a_test=1000)


def test_whatever_happens_results_are_those_of_all_inputs_in_one_sequence(seeds: range, workers: Executor) -> None:
    run_all(seeds, "several", workers)


def test_one_seed_over_several_inputs_gives_one_run(tmp_path: Path) -> None:
    for seed in range(8):
        assert run(seed, tmp_path / f"a{seed}", "several") == run(seed, tmp_path / f"b{seed}", "several")
