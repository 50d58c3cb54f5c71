"""Seeded runs of a query of Spark's over replicas that are written by hand; see `written_query_world`.

A failure names its seed: `python -m pytest tests/simulation/test_written_query_simulation.py --seed N` runs that one
again. Defects that are planted on purpose are found.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import replace
from functools import partial

import pytest

from strandline.availability import numbered_results
from strandline.availability.replica_changes import ReplicaChanges
from tests.simulation import written_query_world
from tests.simulation.planted import Plant, instead_of, require_found
from tests.simulation.seeded_runs import run_seeds
from tests.simulation.seeds import parametrize
from tests.simulation.table_codec import table_codec

SEEDS = (2, 80, 25_000)
PLANTED_SEEDS = 100


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, SEEDS, a_test=150)


def run(seed: int) -> None:
    """Of stable results, and of all that happens."""
    with table_codec():
        written_query_world.run(seed, tentative=False)
        written_query_world.run(seed, tentative=True)


def test_whenever_a_query_dies_its_sink_has_every_result_once_and_no_guess_in_the_end(
    seeds: range, workers: Executor
) -> None:
    run_seeds(run, seeds, workers)


DEFECTS: dict[str, Plant] = {
    "guesses of a batch that was repeated are told twice": lambda: instead_of(
        ReplicaChanges, "_undone", lambda before, own, place: (before(own, place)[0], [])
    ),
    "a repeated batch undoes nothing": lambda: instead_of(
        ReplicaChanges,
        "between",
        lambda before, own, start, end: [
            one if own._batch is not None else replace(one, before=()) for one in before(own, start, end)
        ],
    ),
    "a repeated batch is not reconciled": lambda: instead_of(
        ReplicaChanges,
        "between",
        lambda before, own, start, end: [replace(one, after=()) for one in before(own, start, end)],
    ),
    "a reader that goes on begins one too late": lambda: instead_of(
        numbered_results, "offset_of_result", lambda before, log, p, n: before(log, p, n + (n > 0))
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found(name: str) -> None:
    run_one = partial(written_query_world.run, tentative="batch" in name)
    require_found(DEFECTS[name], run_one, PLANTED_SEEDS)
