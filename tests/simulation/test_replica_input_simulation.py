"""Seeded runs of an operator over replicas that fail, and of which it reads another one in any tick.

See `replica_input_world`. A failure names its seed:
`python -m pytest tests/simulation/test_replica_input_simulation.py --seed N` runs that one again.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import pytest

from strandline.log.input_mark import InputMark
from strandline.log.log import Log
from strandline.processing import input_marks, serialised_intake
from tests.simulation import replica_input_world
from tests.simulation.planted import Plant, instead_of, require_found
from tests.simulation.seeded_runs import run_seeds
from tests.simulation.seeds import parametrize
from tests.simulation.table_codec import table_codec

SEEDS = (0, 60, 10_000)
TRIED = 150
"""So many seeds at the most until a planted defect is found."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seeds" in metafunc.fixturenames:
        parametrize(metafunc, SEEDS, a_test=100)


def test_an_operator_over_replicas_gives_what_one_over_a_single_stream_gives_whichever_of_them_it_reads(
    seeds: range, workers: Executor
) -> None:
    run_seeds(run, seeds, workers)


def run(seed: int) -> None:
    """Runs the seed as it is here."""
    with table_codec():
        replica_input_world.run(seed)


def renamed(_before: Any, mark: InputMark, log: Log, _partition: int) -> InputMark:
    """The mark of another replica as if it were of this one."""
    replica = None if mark.replica is None else replace(mark.replica, stream=log.spec.id)
    return InputMark(mark.first, mark.oldest, replica=replica)


DEFECTS: dict[str, Plant] = {
    "offsets of one replica are used in another": lambda: instead_of(input_marks, "_in_log", renamed),
    "a replay begins at the offset of another replica": lambda: instead_of(
        serialised_intake, "oldest_in", lambda _before, _log, _partition, mark: mark.oldest
    ),
    "results are counted one too many": lambda: instead_of(
        input_marks, "results_between", lambda before, *asked: (found := before(*asked)) + (found > 0)
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found(name: str) -> None:
    require_found(DEFECTS[name], replica_input_world.run, TRIED)
