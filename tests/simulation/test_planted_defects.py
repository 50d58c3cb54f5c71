"""Defects that are planted on purpose are found: a simulation that cannot fail proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest

from strandline.operators.barrier.barrier_operator import BarrierOperator
from strandline.operators.barrier.consumed import Consumed
from strandline.operators.join import join_operator
from strandline.operators.join.join_operator import JoinOperator
from strandline.operators.join.join_windows import SIDES
from strandline.operators.join.saved_groups import SavedGroup, SavedGroups
from strandline.operators.join.tuple_record import KEEP
from strandline.processing import serialised_input, time_slices
from strandline.processing.edges import Edges
from strandline.recovery import eventual_checkpoint
from strandline.recovery.intake import Stretch
from tests.simulation.operator_runs import run
from tests.simulation.planted import Plant, instead_of
from tests.simulation.simulated_operators import some_operator_over_several

SEEDS = 300
"""So many at the most until a planted defect is found: of those whose operator has the defect."""

_PLANTED: dict[str, tuple[Plant, str]] = {}


def planted(name: str, of: str = "") -> Callable[[Plant], Plant]:
    """A defect of all operators, or of those of one kind."""

    def plant(made: Plant) -> Plant:
        _PLANTED[name] = made, of
        return made

    return plant


def seeds_with(kind: str) -> Iterator[int]:
    """Seeds whose operator is of this kind; without one, all."""
    return (s for s in count() if not kind or some_operator_over_several(Random(s), False).definition.kind == kind)


@planted("what an outer join has matched is kept too short", of="join")
def _matched_tuples_go_early() -> AbstractContextManager[Any]:
    def rules(before: Any, definition: Any) -> Any:
        found = before(definition)
        for side in SIDES:
            found[KEEP + side] = definition.windows.reach[side]
        return found

    return instead_of(join_operator, "_rules", rules)


@planted("tuples of a join expire a moment late", of="join")
def _late_expiry() -> AbstractContextManager[Any]:
    return instead_of(JoinOperator, "advance", lambda before, self, boundary: before(self, boundary - 1))


@planted("one group of footprints of a join in five is forgotten", of="join")
def _forgotten_group() -> AbstractContextManager[Any]:
    numbers = iter(range(1 << 30))

    def add(before: Any, self: SavedGroups, group: SavedGroup) -> None:
        if next(numbers) % 5 != 4:
            before(self, group)

    return instead_of(SavedGroups, "add", add)


@planted("a replay begins one tuple too late")
def _late_replay() -> AbstractContextManager[Any]:
    before = Stretch.replayed
    return mock.patch.object(
        Stretch,
        "replayed",
        lambda partition, standing: replace(
            before(partition, standing), first=min(standing.oldest + 1, standing.stands.ordinal)
        ),
    )


@planted("a replay begins behind the place that it needs")
def _late_edge() -> AbstractContextManager[Any]:
    def later(before: Any, self: Edges, ordinal: int) -> Any:
        before(self, ordinal)
        positions = list(self)
        return positions[min(1, len(positions) - 1)]

    return instead_of(Edges, "before", later)


@planted("inputs are kept only from where the operator stands")
def _inputs_let_go() -> AbstractContextManager[Any]:
    def moved(before: Any, marks: Any, inputs: Any, partition: int, stands: Any, oldest: Any, seen: Any) -> Any:
        return replace(before(marks, inputs, partition, stands, stands, seen), oldest=oldest)

    return instead_of(time_slices, "moved", moved)


@planted("of two tuples of one time, the later input comes first")
def _other_ties() -> AbstractContextManager[Any]:
    def ranks(before: Any, times: Sequence[Any]) -> list[Any]:
        return list(before(times[::-1])[::-1])

    return instead_of(serialised_input, "_ranks", ranks)


@planted("the newest result of a barrier is overlooked in a recovery", of="barrier")
def _overlooked_result() -> AbstractContextManager[Any]:
    before = Consumed.of

    def of(definition: Any, closed: Sequence[Any]) -> Consumed:
        found = before(definition, closed)
        return replace(found, places=tuple(at[:-1] for at in found.places))

    return mock.patch.object(Consumed, "of", of)


@planted("a barrier lets one more wait than it may", of="barrier")
def _one_more_waits() -> AbstractContextManager[Any]:
    def run_(before: Any, self: BarrierOperator, incoming: Any, kernel: Any, *options: int) -> Any:
        return before(self, incoming, kernel, *(option + (option > 0) for option in options))

    return instead_of(BarrierOperator, "_run", run_)


@planted("the oldest tuple of a checkpoint is not read")
def _short_checkpoint() -> AbstractContextManager[Any]:
    def newest_first(before: Any, log: Any, definition: Any, p: int, first: int, *rest: Any) -> Iterator[Any]:
        return before(log, definition, p, first + 1, *rest)  # type: ignore[no-any-return]

    return instead_of(eventual_checkpoint, "_newest_first", newest_first)


@pytest.mark.long
@pytest.mark.parametrize("name", _PLANTED)
def test_a_planted_defect_is_found(name: str, tmp_path: Path) -> None:
    plant, kind = _PLANTED[name]
    with plant(), pytest.raises(AssertionError, match=r"seed \d+, "):
        for seed in islice(seeds_with(kind), SEEDS):
            run(seed, tmp_path / str(seed), "several")
