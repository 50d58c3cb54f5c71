"""Runs many seeds of a simulation for some seconds; a failure names its seed and the command that repeats it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from strandline.clock import stopwatch_s
from tests.simulation.catalogue import Simulation


def run_seeds(simulation: Simulation, seeds: Iterable[int]) -> None:
    """Runs these seeds; raises for the first that breaks a promise."""
    for seed in seeds:
        try:
            simulation.run(seed)
        except BaseException as problem:
            if isinstance(problem, KeyboardInterrupt):
                raise
            raise failed(simulation, seed, problem) from problem


def run_for(simulation: Simulation, seconds: float, first_seed: int, least: int = 1) -> int:
    """Runs seeds from `first_seed` on until the time is over, `least` of them on any machine; returns how many."""
    began_s = stopwatch_s()
    for runs in count(1):
        run_seeds(simulation, [first_seed + runs - 1])
        if runs >= least and stopwatch_s() - began_s >= seconds:
            return runs
    raise AssertionError("seeds do not end")


def failed(simulation: Simulation, seed: int, problem: BaseException) -> AssertionError:
    """Returns the error that says what failed and how to see it again."""
    test = f"tests/simulation/test_simulations.py::test_seeds_of_this_commit[{simulation.name}]"
    again = f"make test ARGS='\"{test}\" --seed {seed} -n 0'"
    what = f"simulation {simulation.name}, seed {seed}, {type(problem).__name__}: {problem}"
    return AssertionError(f"{what}\npromised: {simulation.promise}\nrepeat it: {again}")
