"""The seeds of ordinary, long and slow tests follow each other: what one did, no other repeats."""

import pytest

from tests.simulation import test_operator_simulation, test_several_inputs_simulation, test_simulation
from tests.simulation.seeds import chunks

EVERY = [test_simulation.SEEDS, test_operator_simulation.SEEDS, test_several_inputs_simulation.SEEDS, (7, 8, 31)]


@pytest.mark.parametrize("ends", EVERY)
def test_no_seed_is_in_two_of_the_ordinary_long_and_slow_tests(ends: tuple[int, int, int]) -> None:
    found: dict[str, list[int]] = {"": [], "long": [], "slow": []}
    for chunk in chunks(ends, a_test=10):
        (seeds,), marks = chunk.values, chunk.marks
        assert 0 < len(seeds) <= 10
        found["".join(mark.name for mark in marks)] += seeds
    ordinary, long, slow = ends
    assert found == {
        "": list(range(ordinary)),
        "long": list(range(ordinary, long)),
        "slow": list(range(long, slow)),
    }
