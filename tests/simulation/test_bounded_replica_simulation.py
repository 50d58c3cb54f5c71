"""Seeded runs of an operator with a bound over replicas that fail, beside others that do.

See `bounded_replica_input`. A failure names its seed:
`python -m pytest tests/simulation/test_bounded_replica_simulation.py --seed N` runs that one again.
"""

from __future__ import annotations

from concurrent.futures import Executor

import pytest

from strandline.processing import input_marks, time_slices
from tests.simulation import replica_input_world
from tests.simulation.bounded_replica_input import BoundedLives
from tests.simulation.planted import Plant, instead_of, require_found
from tests.simulation.seeded_runs import run_seeds
from tests.simulation.seeds import parametrize
from tests.simulation.table_codec import table_codec

SEEDS = (0, 30, 10_000)
TRIED = 60
"""So many seeds at the most until a planted defect is found."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seeds" in metafunc.fixturenames:
        parametrize(metafunc, SEEDS, a_test=100)


def test_an_operator_over_replicas_keeps_its_bound_and_is_right_in_the_end(seeds: range, workers: Executor) -> None:
    run_seeds(run, seeds, workers)


def run(seed: int) -> None:
    """Runs the seed as it is here."""
    with table_codec():
        replica_input_world.run(seed, BoundedLives())


DEFECTS: dict[str, Plant] = {
    "results are counted one too many": lambda: instead_of(
        input_marks, "results_between", lambda before, *asked: (found := before(*asked)) + (found > 0)
    ),
    "the place of one replica is used in another": lambda: instead_of(
        time_slices, "in_logs", lambda _before, marks, *_: marks
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found(name: str) -> None:
    require_found(DEFECTS[name], lambda seed: replica_input_world.run(seed, BoundedLives()), TRIED)
