"""Seeded runs of operators with a bound, whose inputs fail and heal while they die and come back.

See `availability_world`, and `chain_world` for several of them in a row. A failure names its seed: `python -m pytest
tests/simulation/test_availability_simulation.py --seed N` runs that one again.
"""

from __future__ import annotations

import tempfile
from concurrent.futures import Executor
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.simulation import availability_world, chain_world
from tests.simulation.chained_operators import OverResults, SimulatedReordered, results_of
from tests.simulation.seeded_runs import run_seeds
from tests.simulation.seeds import parametrize
from tests.simulation.table_codec import table_codec

SEEDS = (0, 400, 20_000)
REAL_CODEC_EVERY = 50
REAL_CACHE_EVERY = 20
CHAIN_EVERY = 7
ROWS_PER_GROUP = (5, 20)
QUICK_ALONE = range(36)
QUICK_CHAINS = range(12)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, SEEDS, a_test=200)


def run(seed: int) -> None:
    world = chain_world if seed % CHAIN_EVERY == 2 else availability_world
    codec = nullcontext() if seed % REAL_CODEC_EVERY == 7 else table_codec(ROWS_PER_GROUP[seed % 2])
    files = tempfile.TemporaryDirectory() if seed % REAL_CACHE_EVERY == 1 else nullcontext()
    with files as folder, codec:
        world.run(seed, folder and Path(folder))


def test_whatever_fails_stable_results_are_right_and_tentative_ones_come_in_time_and_go(
    seeds: range, workers: Executor
) -> None:
    run_seeds(run, seeds, workers)


@pytest.mark.parametrize("seed", QUICK_ALONE)
def test_so_it_is_with_an_operator_that_needs_no_kernels(seed: int) -> None:
    with table_codec():
        availability_world.run(seed, operator=SimulatedReordered(2))


@pytest.mark.parametrize("seed", QUICK_CHAINS)
def test_and_with_two_of_them_in_a_row(seed: int) -> None:
    first = SimulatedReordered(2)
    with table_codec():
        chain_world.run(seed, operators=[first, OverResults(SimulatedReordered(2), results_of(first, 1))])
