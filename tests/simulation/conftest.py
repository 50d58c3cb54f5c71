"""Processes for simulations that take long."""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor

import pytest

from tests.simulation.seeded_runs import WORKERS


@pytest.fixture(scope="module")
def workers() -> Iterator[Executor]:
    """Processes of their own: a run is a run, whoever does it."""
    with ProcessPoolExecutor(WORKERS, multiprocessing.get_context("spawn")) as pool:
        yield pool
