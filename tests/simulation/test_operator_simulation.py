"""Thousands of seeded runs of an operator that dies and comes back; see `operator_world`.

A failure names its seed: `python -m pytest tests/simulation/test_operator_simulation.py --seed N` runs that one again.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.simulation import operator_world
from tests.simulation.seeds import parametrize
from tests.simulation.table_codec import table_codec

SEEDS = (500, 8_000, 50_000)
WORKERS = 2
REAL_CODEC_EVERY = 25
REAL_CACHE_EVERY = 4


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, SEEDS, a_test=500)


@pytest.fixture(scope="module")
def workers() -> Iterator[Executor]:
    """Processes of their own: a run is a run, whoever does it."""
    with ProcessPoolExecutor(WORKERS, multiprocessing.get_context("spawn")) as pool:
        yield pool


def test_whatever_happens_results_are_those_of_an_uninterrupted_run(seeds: range, workers: Executor) -> None:
    if len(seeds) == 1:  # where a debugger can follow
        return run_all(seeds)
    for done in [workers.submit(run_all, seeds[i::WORKERS]) for i in range(WORKERS)]:
        done.result()


def run_all(seeds: range) -> None:
    with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
        for seed in seeds:
            run(seed, Path(folder) / str(seed))


def run(seed: int, folder: Path) -> list[object]:
    # Real Parquet and real files now and then; for the logic around them, tables in memory are as good and faster.
    with nullcontext() if seed % REAL_CODEC_EVERY == 0 else table_codec():
        try:
            return list(operator_world.run(seed, folder if seed % REAL_CACHE_EVERY == 0 else None))
        except BaseException as problem:
            # As text, because it may come from another process.
            again = f"python -m pytest tests/simulation/test_operator_simulation.py --seed {seed}"
            raise AssertionError(f"seed {seed}, {type(problem).__name__}: {problem}\n{again}") from problem


def fast_folder() -> str | None:
    """Memory that looks like a disk, if there is some."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def test_one_seed_gives_one_run(tmp_path: Path) -> None:
    for seed in range(8):
        assert run(seed, tmp_path / f"a{seed}") == run(seed, tmp_path / f"b{seed}")
