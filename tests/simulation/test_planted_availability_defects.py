"""Defects that are planted in the two lineages on purpose are found by `availability_world`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest import mock

import pyarrow.compute as pc
import pytest

from strandline.availability import fork, inputs_at_sight, tick, watch
from strandline.availability.watch import Watch
from strandline.errors import StrandlineError
from strandline.log import tentative_results
from strandline.log.guesses import Guesses
from strandline.log.kinds import is_closed
from strandline.log.log import END
from strandline.log.standing import Standing
from strandline.processing import serialised_intake
from strandline.recovery import eventual_checkpoint
from tests.simulation import availability_world, chain_world
from tests.simulation.table_codec import table_codec

SEEDS = 60
"""So many at the most until a planted defect is found."""


def instead_of(owner: Any, name: str, change: Callable[..., Any]) -> AbstractContextManager[Any]:
    """`change` gets what was there, then the arguments."""
    before = getattr(owner, name)
    return mock.patch.object(owner, name, lambda *args, **more: change(before, *args, **more))


DEFECTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "the extent does not reach over tentative tuples": lambda: instead_of(
        Standing, "behind", lambda _, standing, tuples: standing
    ),
    "tentative tuples are taken for footprints": lambda: mock.patch.object(
        eventual_checkpoint, "is_footprint", lambda table: pc.invert(is_closed(table))
    ),
    "the last undo is forgotten": lambda: instead_of(tick.Tick, "_end_reconciliation", lambda *_: None),
    "a fork that is made anew says all again": lambda: instead_of(
        fork, "_anew", lambda before, step, *rest: before(replace(step, silent_until=None), *rest)
    ),
    "a fork stops a moment early": lambda: instead_of(
        fork, "run", lambda before, step, *rest: before(replace(step, until=step.until - 1), *rest)
    ),
    "nobody is ever missing for the last tuple": lambda: instead_of(
        Watch, "overdue", lambda before, *args: {i: time - 3 for i, time in before(*args).items()}
    ),
    "the driver does not see that tuples wait": lambda: mock.patch.object(
        inputs_at_sight, "_latest", return_value=None
    ),
    "void results count": lambda: instead_of(
        tentative_results, "is_result", lambda _, table: pc.less(table.column("_offset"), END)
    ),
}

IN_CHAINS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "guesses that an undo has voided are taken in": lambda: instead_of(
        watch, "guesses_of", lambda before, *args: (found := before(*args)) and replace(found, first=0)
    ),
    "guesses are not taken in": lambda: mock.patch.object(Watch, "guesses_of", return_value=None),
    "guesses are taken for complete no further than results": lambda: instead_of(
        Watch, "fork_reach", lambda _, watch, taken: watch.reach(taken)
    ),
    "corrections that come too late for the fork are forgotten": lambda: mock.patch.object(
        Watch, "late", return_value=frozenset()
    ),
    "the stable lineage takes in guesses": lambda: instead_of(
        serialised_intake.SerialisedIntake,
        "_streams",
        lambda before, intake, firsts: [
            replace(one, guesses=Guesses(0, END, None) if one.log.spec.is_stamped else None)
            for one in before(intake, firsts)
        ],
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", [*DEFECTS, *IN_CHAINS])
def test_a_planted_defect_is_found(name: str) -> None:
    world = chain_world if name in IN_CHAINS else availability_world
    for seed in range(SEEDS):
        try:
            with {**DEFECTS, **IN_CHAINS}[name](), table_codec():
                world.run(seed)
        except (StrandlineError, availability_world.Violation):
            return
    pytest.fail(f"{SEEDS} seeds did not find it")
