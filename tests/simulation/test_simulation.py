"""Thousands of seeded runs of a whole cluster over faulty storage; see `world`.

A failure names its seed: `python -m pytest tests/simulation --seed N` runs that one again, call by call the same.
"""

from contextlib import nullcontext

import pytest

from strandline.testing.plain_codec import plain_codec
from tests.simulation import world
from tests.simulation.seeds import parametrize

SEEDS = (300, 1_800, 20_000)
REAL_CODEC_EVERY = 50


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, SEEDS, a_test=100)


def test_whatever_happens_the_log_keeps_its_promises(seeds: range) -> None:
    for seed in seeds:
        run(seed)


def run(seed: int) -> None:
    # Real Parquet now and then; for the logic around it, lists are as good and a hundred times as fast.
    with nullcontext() if seed % REAL_CODEC_EVERY == 0 else plain_codec():
        try:
            world.run(seed)
        except BaseException as problem:
            problem.add_note(f"seed {seed}: python -m pytest tests/simulation --seed {seed}")
            raise


def test_one_seed_gives_one_run() -> None:
    assert [fingerprint(seed) for seed in range(5)] == [fingerprint(seed) for seed in range(5)]


def fingerprint(seed: int) -> list[tuple[str, bytes]]:
    with plain_codec():
        disk = world.run(seed)
        return [(listed.key, disk.read(listed.key)) for listed in disk.list("")]
