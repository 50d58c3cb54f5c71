"""One seed, one run: operators over each other, whose inputs fail, each beside others of its own that do.

Two or three of them, each as in `availability_world`, with a bound, a policy, machines and deaths of its own; what must
hold of one must hold of all. Some have no bound: they wait, and those behind them have one all the same. Beside that an
operator may be unable to reach the output of the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.simulation.availability_world import Violation, World
from tests.simulation.chained_operators import results_of, some_operator_over, some_upstream
from tests.simulation.operator_world import small_index, small_state
from tests.simulation.rekeyed_inputs import SimulatedRekey, some_rekey
from tests.simulation.simulated_operators import SimulatedJoin, SimulatedOperator

__all__ = ["Violation", "run"]

NAMES = ("first", "second", "third")


def run(
    seed: int, folder: Path | None = None, operators: Sequence[SimulatedOperator] = (), partitions: int | None = None
) -> World:
    """Runs the seed, with its operators or with others; with a folder, states are real files.

    The streams of the first operator have so many `partitions`, if it is not for the seed to say. Returns the world of
    the last operator as it is in the end.
    """
    rng = Random(seed)
    with small_index(Random(seed)), small_state(Random(seed)):
        worlds: list[World] = []
        for name, operator in zip(NAMES, operators or _some_operators(rng), strict=False):
            upstream_ = worlds[-1] if worlds else None
            if isinstance(operator, SimulatedRekey):
                partitions = operator.partitions
            worlds.append(World(rng, operator, folder and folder / name, name, upstream_, partitions))
        *upstream, last = worlds
        with last.named():
            for world in upstream:
                world.is_upstream = True
                world.start_at_last()
            last.run()
            for world in upstream:
                world.may_die = False
                world.start()
                world.check_end()
        return last


def run_rekeyed(seed: int, folder: Path | None = None) -> World:
    """Runs a seed of a chain in which the tuples of an operator get another key, mostly for another operator."""
    rng = Random(f"rekeyed {seed}")
    first = some_upstream(rng)
    while isinstance(first, SimulatedJoin):
        first = some_upstream(rng)
    partitions = rng.choice([1, 2, 2, 3])
    rekey = some_rekey(rng, results_of(first, partitions), rng.choice([1, 2, 2, 3]))
    more = [some_operator_over(rng, rekey)] if rng.random() < 0.6 else []
    return run(seed, folder, [first, rekey, *more], partitions)


def _some_operators(rng: Random) -> list[SimulatedOperator]:
    """Two or three, each over the one before."""
    found = [some_upstream(rng)]
    if rng.random() < 0.25 and not isinstance(found[0], SimulatedJoin):
        found.append(some_upstream(rng, results_of(found[0], 1)))
    return [*found, some_operator_over(rng, found[-1])]
