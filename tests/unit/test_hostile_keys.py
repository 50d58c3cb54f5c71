"""Keys that are chosen to meet in a hash table, or happen to, do not make a step cost the square of its tuples."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from strandline.operators.open_windows import hash_table
from strandline.operators.open_windows.hash_table import mixed, new_seed
from strandline.operators.open_windows.record import KEY, USED
from tests.support.operator_streams import PLANS, rows_table

MANY = 4_096
_GOLDEN = 0x9E3779B97F4A7C15
Words = npt.NDArray[np.int64]


def chosen() -> Words:
    """By who knows how earlier versions mixed the bits of a key: all went to bucket 0."""
    mixed_before = np.arange(1, MANY + 1, dtype=np.uint64) * np.uint64((1 << 32) + 1)
    return (mixed_before * np.uint64(pow(_GOLDEN, -1, 1 << 64))).view(np.int64)


KEYS = {
    "chosen": chosen(),
    "multiples": np.arange(MANY, dtype=np.int64) << 50,
    "in a row": np.arange(MANY, dtype=np.int64),
    "doubles": np.arange(MANY, dtype=np.float64).view(np.int64),
}


def longest_chain(buckets: int, seed: int, keys: Words) -> int:
    found = [int(mixed(int(key), seed)) & (buckets - 1) for key in keys]
    return int(np.bincount(found).max())


@pytest.mark.parametrize("name", KEYS)
def test_no_bucket_gets_more_than_a_few_keys(name: str) -> None:
    for seed in (0, -1, new_seed()):
        assert longest_chain(2 * MANY, seed, KEYS[name]) < 16


@pytest.mark.parametrize("name", KEYS)
def test_windows_of_any_keys_spread_over_the_buckets(name: str) -> None:
    operator = PLANS["tumbling count"].fresh()
    operator.begin()
    rows = [{"k": int(key), "s": "", "v": 1, "x": 0.0, "t": 0} for key in KEYS[name]]
    for _ in operator.feed([rows_table(rows)]):
        pass
    arrays = operator.state.arrays
    assert arrays.header[USED] == MANY
    assert len(set(arrays.records[:MANY, KEY].tolist())) == MANY
    assert np.count_nonzero(arrays.buckets >= 0) > MANY / 2


def test_keys_that_meet_for_one_number_do_not_meet_for_another() -> None:
    """A sender may know how bits are mixed, but not the number of a state."""
    second, first = pow(int(hash_table._SECOND), -1, 1 << 64), pow(int(hash_table._FIRST), -1, 1 << 64)
    wanted = np.arange(1, MANY + 1, dtype=np.uint64) << np.uint64(32)
    before = (wanted ^ (wanted >> np.uint64(33))) * np.uint64(second)
    keys = ((before ^ (before >> np.uint64(33))) * np.uint64(first)).view(np.int64)
    assert longest_chain(2 * MANY, 0, keys) == MANY
    for seed in (new_seed() for _ in range(5)):
        assert longest_chain(2 * MANY, seed, keys) < 16


def test_every_state_draws_a_number_of_its_own() -> None:
    assert new_seed() != new_seed()
