"""Which seeds a simulation runs: some in every run, more in the long one, most of them on demand; none in two."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

MARKS = ((), (pytest.mark.long,), (pytest.mark.slow,))


def parametrize(metafunc: pytest.Metafunc, ends: tuple[int, int, int], *, a_test: int) -> None:
    """Gives a test that takes `seeds` ranges of `a_test` seeds each, or the one seed of `--seed`.

    `ends` has where the seeds of the ordinary, the long and the slow tests end; each go on where the ones before ended.
    """
    if "seeds" not in metafunc.fixturenames:
        return
    seed = metafunc.config.getoption("--seed")
    ranges = chunks(ends, a_test) if seed is None else [range(seed, seed + 1)]
    metafunc.parametrize("seeds", ranges, ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")


def chunks(ends: tuple[int, int, int], a_test: int) -> list[Any]:
    """All seeds in order; those of the long and of the slow tests are marked so."""
    return [
        pytest.param(range(start, min(start + a_test, stop)), marks=marks)
        for marks, (first, stop) in zip(MARKS, pairwise((0, *ends)), strict=True)
        for start in range(first, stop, a_test)
    ]
