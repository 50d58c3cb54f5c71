"""Seeded runs of users' classes that die and come back; see `operator_world`.

A failure names its seed: `python -m pytest tests/simulation/test_class_simulation.py --seed N` runs that one again.
"""

from concurrent.futures import Executor
from typing import Any
from unittest import mock

import pytest

from strandline.operators.partition_wide.object_at_work import ObjectAtWork
from tests.simulation.operator_runs import run_all, run_here
from tests.simulation.seeds import parametrize
from tests.user_operators import Running

SEEDS = (40, 200, 10_000)
FEW = 40
"""They are run here: processes take as long to start."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, SEEDS, a_test=500)


def test_whatever_happens_results_are_those_of_an_uninterrupted_run(seeds: range, workers: Executor) -> None:
    if len(seeds) <= FEW:
        run_here(seeds, "class")
    else:
        run_all(seeds, "class", workers)


def _half_a_state(self: Running, state: dict[str, Any]) -> None:
    self.n = state["n"]


PLANTED = {
    "half of a state is restored": (Running, "restore_checkpoint", _half_a_state),
    "a step forgets the calls to repeat": (ObjectAtWork, "_note", lambda self, call, is_noted: None),
}


@pytest.mark.long
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_defect_is_found(name: str) -> None:
    with mock.patch.object(*PLANTED[name]), pytest.raises(AssertionError, match=r"seed \d+, "):
        run_here(range(40), "class")
