"""A checksum that is brought up to date is the one that would be computed anew, and no wrong bit escapes it."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from strandline.operators.kernels.checksum import MODULUS, checksum, checksum_of_rows, checksum_of_run

SHAPES = [((40, 13), np.int64), ((1, 10), np.int64), ((0, 2), np.int64), ((512,), np.int32), ((16,), np.int64)]
SHAPES += [((30, 512), np.uint8), ((0, 8), np.uint8)]


@pytest.mark.parametrize(("shape", "dtype"), SHAPES)
@pytest.mark.parametrize("seed", range(5))
def test_changed_rows_change_it_by_what_they_add(shape: tuple[int, ...], dtype: type[np.generic], seed: int) -> None:
    rng = np.random.default_rng(seed)
    array = rng.integers(-(2**31), 2**31 - 1, shape).astype(dtype)
    rows = rng.permutation(shape[0])[: shape[0] // 2].astype(np.int32)
    before, part = checksum(array), checksum_of_rows(array, rows)
    array[rows] = rng.integers(-(2**31), 2**31 - 1, array[rows].shape).astype(dtype)
    assert (before - part + checksum_of_rows(array, rows)) % MODULUS == checksum(array)


@pytest.mark.parametrize(("shape", "dtype"), SHAPES)
@pytest.mark.parametrize("seed", range(5))
def test_a_run_of_rows_changes_it_by_what_it_adds(shape: tuple[int, ...], dtype: type[np.generic], seed: int) -> None:
    rng = np.random.default_rng(seed)
    array = rng.integers(-(2**31), 2**31 - 1, shape).astype(dtype)
    begin, end = sorted(int(x) for x in rng.integers(0, shape[0] + 1, 2))
    before, part = checksum(array), checksum_of_run(array, begin, end)
    assert part == checksum_of_rows(array, np.arange(begin, end))
    array[begin:end] = rng.integers(-(2**31), 2**31 - 1, array[begin:end].shape).astype(dtype)
    assert (before - part + checksum_of_run(array, begin, end)) % MODULUS == checksum(array)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 64, 1003])
@pytest.mark.parametrize("seed", range(20))
def test_changed_bytes_change_it_by_what_they_add(length: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    array = rng.integers(0, 255, length).astype(np.uint8)
    begin, end = sorted(int(x) for x in rng.integers(0, length + 1, 2))
    before, part = checksum(array), checksum_of_run(array, begin, end)
    array[begin:end] ^= np.uint8(1 + seed)
    assert (before - part + checksum_of_run(array, begin, end)) % MODULUS == checksum(array)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_a_wrong_bit_a_word_moved_and_a_pair_of_signs_show(dtype: type[np.generic]) -> None:
    array = np.zeros(300, dtype)
    good, rng = checksum(array), Random(3)
    for _ in range(200):
        wrong = array.copy()
        data = wrong.view(np.uint8)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        assert checksum(wrong) != good
        assert checksum(np.roll(wrong, 8)) != checksum(wrong)
        signs = array.copy()
        size = signs.itemsize
        for at in rng.sample(range(300), 2):
            signs.view(np.uint8)[(at + 1) * size - 1] ^= 0x80
        assert checksum(signs) != good
