"""Defects that are planted in the two lineages on purpose are found by `availability_world` and `chain_world`.

At least one against each of the properties in docs/how-availability-works.md; against the fifth,
`test_planted_replica_defects`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import pyarrow.compute as pc
import pytest

from strandline.clock import ManualClock
from strandline.inputs import one_stream, serialised_union
from strandline.log.operator_state.guesses import Guesses, Passed
from strandline.log.operator_state.input_mark import Position
from strandline.log.operator_state.outage import ForkStanding
from strandline.log.operator_state.standing import Standing
from strandline.log.stream.kinds import Kind, is_closed
from strandline.log.stream.log import END
from strandline.log.stream.partition_view import PartitionView
from strandline.operators.stateless.rekey_definition import RekeyDefinition
from strandline.recovery import eventual_checkpoint
from strandline.running import decision, fork, inputs_at_sight, tick, watch
from strandline.running.fork import ForkStep
from strandline.running.watch import Watch
from tests.simulation import availability_world, chain_world
from tests.simulation.catalogue import run_with_tables
from tests.simulation.chained_operators import TUMBLING, OverResults, results_of
from tests.simulation.machines import KeptStates
from tests.simulation.planted import Plant, instead_of, require_found
from tests.simulation.rekeyed_inputs import SimulatedRekey
from tests.simulation.simulated_operators import SimulatedAggregate
from tests.simulation.simulated_stateless import ALL, OTHERS, SimulatedStateless
from tests.support import with_tentative

SEEDS = 400
"""So many at the most until a planted defect is found."""


class Defect(NamedTuple):
    """What is wrong, and the property that it is against."""

    against: int
    plant: Plant


def overdue_after(share: float) -> AbstractContextManager[Any]:
    """The bound runs out when this share of it has passed."""
    return instead_of(
        Watch, "overdue", lambda before, own, now, bound, taken: before(own, now, int(bound * share), taken)
    )


ALONE = {
    "the extent does not reach over tentative tuples": Defect(
        1, lambda: instead_of(Standing, "behind", lambda _, standing, tuples: standing)
    ),
    "tentative tuples are taken for footprints": Defect(
        1, lambda: mock.patch.object(eventual_checkpoint, "is_footprint", lambda table: pc.invert(is_closed(table)))
    ),
    "a fork writes into the stable state": Defect(
        1, lambda: mock.patch.object(KeptStates, "open", lambda own, attempt: own.states.get(attempt))
    ),
    "tentative results are published as results": Defect(
        1, lambda: mock.patch.object(fork, "Kind", mock.Mock(TENTATIVE=Kind.RESULT))
    ),
    "void results count": Defect(
        2,
        lambda: instead_of(
            with_tentative, "guesses_of", lambda before, *of: (g := before(*of)) and replace(g, first=0, since=None)
        ),
    ),
    "a fork outlives the failure": Defect(
        2, lambda: instead_of(availability_world, "decide", lambda before, *args: replace(before(*args), ends=False))
    ),
    "the last undo is forgotten": Defect(3, lambda: mock.patch.object(tick.Tick, "_end_reconciliation")),
    "the first undo is forgotten": Defect(3, lambda: mock.patch.object(tick.Tick, "_undo")),
    "an undo leaves a tuple that counts": Defect(
        3,
        lambda: instead_of(
            ForkStanding, "undone", lambda before, own, first: replace(before(own, first), first=first - 2, tuples=1)
        ),
    ),
    "a fork that is made anew says all again": Defect(
        3,
        lambda: instead_of(fork, "_anew", lambda before, step, *rest: before(replace(step, silent_until=None), *rest)),
    ),
    "a fork stops a moment early": Defect(
        4,
        lambda: instead_of(fork, "run", lambda before, step, *rest: before(replace(step, until=step.until - 1), *rest)),
    ),
    "no input is ever missing for the last tuple": Defect(
        4,
        lambda: instead_of(Watch, "overdue", lambda before, *args: {i: time - 3 for i, time in before(*args).items()}),
    ),
    "the driver does not see that tuples wait": Defect(
        4, lambda: mock.patch.object(inputs_at_sight, "_latest", return_value=None)
    ),
    "the bound runs out unnoticed": Defect(4, lambda: overdue_after(2)),
    "a bound is longer for who sets the clock": Defect(
        4, lambda: mock.patch.object(ManualClock, "steady_us", ManualClock.now_us)
    ),
    "a short failure is taken for a long one": Defect(6, lambda: overdue_after(0.3)),
    "suspend guesses": Defect(
        6,
        lambda: instead_of(
            decision,
            "_until",
            lambda before, known, promise, mode: before(known, promise, "process" if mode == "suspend" else mode),
        ),
    ),
}


def _found_elsewhere(move: Callable[[Position], Position]) -> Callable[..., Any]:
    """Lets the fork of an operator without state go on from another place than the one that it has left."""

    def found(before: Callable[..., Any], step: Any, element: Any, caches: Any) -> Any:
        known = before(step, element, caches)
        if known is None or element.definition.keeps_state:
            return known
        place = move(known.position)
        known.operator.input_end = place.ordinal
        return known._replace(position=place)

    return found


WITHOUT_STATE = {
    "a fork without state says all again": Defect(
        3, lambda: instead_of(fork, "_found", _found_elsewhere(lambda place: replace(place, bound=None)))
    ),
    "a fork without state goes on one tuple further": Defect(
        3, lambda: instead_of(fork, "_found", _found_elsewhere(lambda place: replace(place, ordinal=place.ordinal + 1)))
    ),
}

IN_CHAINS = {
    "the stable lineage takes in guesses": Defect(
        1,
        lambda: instead_of(
            serialised_union.SerialisedUnion,
            "_streams",
            lambda before, intake, firsts: [
                replace(one, guesses=Guesses(0, END, None) if one.log.spec.is_stamped else None)
                for one in before(intake, firsts)
            ],
        ),
    ),
    "guesses that an undo has voided are taken in": Defect(
        3,
        lambda: instead_of(
            watch, "guesses_of", lambda before, *args: (found := before(*args)) and replace(found, first=0)
        ),
    ),
    "guesses are not taken in": Defect(4, lambda: mock.patch.object(Watch, "guesses_of", return_value=None)),
    "guesses are taken for complete no further than results": Defect(
        4, lambda: instead_of(Watch, "fork_reach", lambda _, own, taken: own.reach(taken))
    ),
    "corrections that come too late for the fork are forgotten": Defect(
        4, lambda: mock.patch.object(Watch, "late", return_value=frozenset())
    ),
    "a fork begins behind guesses that it has not taken in": Defect(
        4, lambda: mock.patch.object(watch, "_places_kept", lambda known, seen, needed: _at_the_end(seen))
    ),
}


OVER_ONE = {
    "over one stream, guesses reach the stable lineage": Defect(
        1,
        lambda: mock.patch.object(
            one_stream, "only_results", lambda table: table.filter(pc.not_equal(table.column("_kind"), Kind.UNDO))
        ),
    ),
    "over one stream, a fork outlives the failure": Defect(
        2, lambda: instead_of(availability_world, "decide", lambda before, *args: replace(before(*args), ends=False))
    ),
    "over one stream, the first undo is forgotten": Defect(3, lambda: mock.patch.object(tick.Tick, "_undo")),
    "over one stream, a fork takes in results a second time": Defect(
        3, lambda: instead_of(ForkStep, "input", lambda before, own, *over: before(replace(own, results_from=0), *over))
    ),
    "over one stream, a new fork lacks what came in its tick": Defect(
        3, lambda: instead_of(ForkStep, "behind", lambda before, *args: replace(before(*args), repeats=None))
    ),
    "over one stream, guesses are not taken in": Defect(
        4, lambda: mock.patch.object(Watch, "guesses_of", return_value=None)
    ),
    "over one stream, guesses are waited for": Defect(4, lambda: mock.patch.object(Watch, "missing", return_value=())),
}


ANOTHER_KEY = {
    "a partition keeps the tuples of another": Defect(
        1,
        lambda: instead_of(
            RekeyDefinition, "in_partition", lambda before, own, number: before(own, (number + 1) % own.partitions)
        ),
    ),
    "all partitions of the input are read as the first": Defect(
        1,
        lambda: instead_of(
            PartitionView, "blocks", lambda _, own, number, *span, **times: own.whole.blocks(0, *span, **times)
        ),
    ),
    "guesses of the first partition stand for those of all": Defect(
        3,
        lambda: instead_of(
            PartitionView,
            "_of",
            lambda before, own, now: replace(
                found := before(own, now),
                outage=found.outage
                and replace(found.outage, forks=(now.outage.forks[:1] if now.outage else ()) * own.readers),
            ),
        ),
    ),
}


def _at_the_end(place: Passed | None) -> tuple[Passed, ...]:
    return () if place is None else (Passed(place.offset, -(1 << 40)),)


FIRST = SimulatedAggregate(replace(TUMBLING, more_times=("t",)), is_compared_with_plain=False)
ONE = SimulatedAggregate(TUMBLING, is_compared_with_plain=False)
EVERY = {**ALONE, **IN_CHAINS, **OVER_ONE}


UNION = SimulatedStateless((ALL, ALL), OTHERS, ("k",))


@pytest.mark.parametrize("name", WITHOUT_STATE)
def test_a_defect_of_forks_without_state_is_found(name: str) -> None:
    run = partial(availability_world.run, operator=UNION)
    require_found(name, WITHOUT_STATE[name].plant, partial(run_with_tables, run), range(SEEDS))


REKEYED = [FIRST, SimulatedRekey(results_of(FIRST, 2), ("k",), 2)]


@pytest.mark.parametrize("name", ANOTHER_KEY)
def test_a_defect_of_another_key_is_found(name: str) -> None:
    run = partial(chain_world.run, operators=REKEYED, partitions=2)
    require_found(name, ANOTHER_KEY[name].plant, partial(run_with_tables, run), range(SEEDS))


@pytest.mark.long
@pytest.mark.parametrize("name", [*ALONE, *IN_CHAINS, *OVER_ONE])
def test_a_planted_defect_is_found(name: str) -> None:
    over = ONE if name in OVER_ONE else FIRST
    chain = [FIRST, OverResults(over, results_of(FIRST, 1))]
    alone = partial(availability_world.run, operator=FIRST)
    run = alone if name in ALONE else partial(chain_world.run, operators=chain)
    require_found(name, EVERY[name].plant, partial(run_with_tables, run), range(SEEDS))


def test_there_is_a_defect_against_every_property() -> None:
    assert {defect.against for defect in EVERY.values()} == {1, 2, 3, 4, 6}
    assert {defect.against for defect in OVER_ONE.values()} == {1, 2, 3, 4}
