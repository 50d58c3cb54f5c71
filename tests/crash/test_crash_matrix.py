"""Real processes die by SIGKILL at every failpoint; results are those of a run without failures, bit by bit.

The whole matrix is failpoints times operators times policies, some hours of Spark starts (`make test-all`). Every
commit runs each failpoint once: the hash of the commit draws the operators, the policies and the order. One set of
streams goes through many deaths, because every start of Spark costs seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from tests.crash.conftest import content, run
from tests.crash.lives import Life
from tests.crash.two_inputs import Deaths, write_files
from tests.support.draw import generator

AT_ENTRY = ("before-seal", "during-seal", "after-seal", "before-manifest", "after-manifest", "before-spark-commit")
"""Where the driver of an entry point can die."""
IN_DRIVERS = ("after-manifest@2", "before-output@2", "before-manifest@3")
"""Where the driver of an operator over streams can die. The first death leaves something to recover."""
IN_WORKERS = ("before-block", "task-begins", "during-recovery", "after-block", "after-state", "between-blocks")
"""Where a worker of an operator can die: in the life of each driver two of them, the first two before any result."""
POLICIES = {
    **dict.fromkeys(("full", "counts", "barrier", "union", "keyed", "keyed-union"), ("cec", "tight", "instant")),
    "smoothed": ("instant", "often"),
}
"""Of each operator in `several_program`, the policies that it can have."""
BETWEEN_SOURCES = ("after-seal", "before-output", "after-manifest@5", "before-output@2", "before-spark-commit")
"""Where a program of two sources and an operator dies, whichever of its queries comes by: each leaves work to do."""
BESIDE_SOURCES = ("full", "counts", "barrier", "union", "keyed-union", "merged")


@pytest.mark.long
def test_an_entry_point_that_died_at_every_failpoint_has_the_tuples_of_an_uninterrupted_run(
    folder: Path, expected: list[pa.Table], draw: str, tmp_path: Path
) -> None:
    rng = generator(draw, "entry")
    failpoints = rng.sample(AT_ENTRY, len(AT_ENTRY))
    second = rng.randrange(len(failpoints))  # this one dies in the second of its batches
    for number, failpoint in enumerate(failpoints):
        run(folder, tmp_path / "items", failpoint=failpoint + "@2" * (number == second), dies=True)
    run(folder, tmp_path / "items")
    assert content(tmp_path / "items") == expected


@dataclass(frozen=True)
class Deadly:
    """A failpoint, and the operator that dies there."""

    failpoint: str
    operator: str


@pytest.mark.long
def test_operators_that_died_at_every_failpoint_have_the_results_of_an_uninterrupted_run(
    draw: str, tmp_path: Path
) -> None:
    rng = generator(draw, "operators")
    names = rng.sample(list(POLICIES), len(POLICIES)) * 2
    in_drivers = [Deadly(failpoint, names.pop()) for failpoint in IN_DRIVERS]
    in_workers = [Deadly(failpoint, names.pop()) for failpoint in IN_WORKERS]
    recovering = IN_WORKERS.index("during-recovery")
    in_workers[recovering] = Deadly("during-recovery", in_drivers[0].operator)  # which has published something
    die_in_turn(in_drivers, in_workers, rng, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "policy"), [(name, p) for name, policies in POLICIES.items() for p in policies])
def test_an_operator_that_died_at_every_failpoint_under_a_policy_has_the_same_results(
    name: str, policy: str, tmp_path: Path
) -> None:
    in_drivers, in_workers = ([Deadly(point, name) for point in points] for points in (IN_DRIVERS, IN_WORKERS))
    die_in_turn(in_drivers, in_workers, Random(1), tmp_path, policy)


def die_in_turn(
    in_drivers: Sequence[Deadly], in_workers: Sequence[Deadly], rng: Random, root: Path, policy: str = ""
) -> None:
    """Runs lives that end in these deaths, each under a drawn policy, then one that gets to the end."""
    write_files(root)
    deaths = Deaths(root, "over")
    share = -(-len(in_workers) // len(in_drivers))
    for number, death in enumerate(in_drivers):
        before = in_workers[number * share : (number + 1) * share]
        allowed = set.intersection(*(set(POLICIES[d.operator]) for d in (death, *before))) or {"instant"}
        life = Life(
            death.failpoint,
            death.operator,
            lost=rng.choice(("", "state", "state and spark checkpoint")) if number else "",
            policy=policy or rng.choice(sorted(allowed)),
            tasks_die=tuple(f"{d.failpoint}:{d.operator}" for d in before),
        )
        deaths.live(number, life)
    names = sorted({death.operator for death in (*in_drivers, *in_workers)})
    last = "instant" if "smoothed" in names else "cec"
    deaths.live(len(in_drivers), Life("before-block", " ".join(names), "state", policy=policy or last, retried=True))
    deaths.check(*names)


@pytest.mark.long
def test_two_sources_and_an_operator_that_died_have_the_results_of_an_uninterrupted_run(
    draw: str, tmp_path: Path
) -> None:
    rng = generator(draw, "sources")
    die_beside_sources(rng.choice(BESIDE_SOURCES), rng.sample(BETWEEN_SOURCES, 2), rng, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", BESIDE_SOURCES)
def test_two_sources_and_an_operator_that_died_everywhere_have_the_same_results(name: str, tmp_path: Path) -> None:
    die_beside_sources(name, BETWEEN_SOURCES, Random(1), tmp_path)


def die_beside_sources(name: str, failpoints: Sequence[str], rng: Random, root: Path) -> None:
    """Runs lives of two sources and an operator that end in these deaths, then one that gets to the end."""
    write_files(root)
    deaths = Deaths(root, "sources")
    in_order = sorted(failpoints, key=BETWEEN_SOURCES.index)
    for number, failpoint in enumerate(in_order):
        lost = rng.choice(("", "state"))
        deaths.live(number, Life(failpoint, name, lost=lost, policy=rng.choice(POLICIES.get(name, ("cec",)))))
    # Whether there is anything to recover depends on how far the lives before have come; a step is always made.
    deaths.live(len(in_order), Life("before-block", name, lost="state", retried=True))
    deaths.check(name)
