"""All simulations, each on some fixed seeds and, for some seconds, on seeds that only this commit has.

`catalogue` lists them. A failure prints its seed and the command that runs this one seed again, call by call the same.
`make simulate MINUTES=60` tries many more.
"""

import pytest

from tests.simulation import world
from tests.simulation.catalogue import SIMULATIONS, run_operator
from tests.simulation.seeded_runs import run_for, run_seeds
from tests.support.draw import first_seed
from tests.support.plain_codec import plain_codec

SECONDS = 2.0
LONG_SECONDS = 8.0
LONG_BEGINS = 1_000_000
"""So many seeds behind those of the ordinary tests: no seed is in two."""

each = pytest.mark.parametrize("name", SIMULATIONS)


@each
def test_fixed_seeds(name: str) -> None:
    simulation = SIMULATIONS[name]
    run_seeds(simulation, range(simulation.fixed))


@each
def test_seeds_of_this_commit(name: str, draw: str, request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("--seed")
    if seed is not None:
        run_seeds(SIMULATIONS[name], [seed])
    else:
        run_for(SIMULATIONS[name], SECONDS, first_seed(draw, name))


@pytest.mark.long
@each
def test_more_seeds_of_this_commit(name: str, draw: str) -> None:
    run_for(SIMULATIONS[name], LONG_SECONDS, first_seed(draw, name) + LONG_BEGINS, least=3)


def test_one_seed_gives_one_run_of_a_log() -> None:
    assert [fingerprint(seed) for seed in range(5)] == [fingerprint(seed) for seed in range(5)]


def fingerprint(seed: int) -> list[tuple[str, bytes]]:
    with plain_codec():
        disk = world.run(seed)
        return [(listed.key, disk.read(listed.key)) for listed in disk.list("")]


@pytest.mark.parametrize("inputs", ["one", "several"])
def test_one_seed_gives_one_run_of_an_operator(inputs: str) -> None:
    for seed in range(4):
        assert run_operator(inputs, seed) == run_operator(inputs, seed)  # type: ignore[arg-type]
