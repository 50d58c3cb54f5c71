"""Defects that are planted on purpose are found: a simulation that cannot fail proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import count, islice
from random import Random
from typing import Any
from unittest import mock

import numpy as np
import pytest

from strandline.inputs import serialised_input, serialised_union
from strandline.inputs.edges import Edges
from strandline.inputs.input import Stretch
from strandline.log.operator_state.loss import Loss
from strandline.log.stream.commits import Commits
from strandline.operators import one_table
from strandline.operators.aside_tables import OneTableAside
from strandline.operators.barrier.barrier_operator import BarrierOperator
from strandline.operators.barrier.consumed import Consumed
from strandline.operators.join import join_operator, window_meeting
from strandline.operators.join.join_operator import JoinOperator
from strandline.operators.join.meeting_kernels import NEXT
from strandline.operators.join.saved_groups import SavedGroup, SavedGroups
from strandline.operators.join.tuple_record import FULL
from strandline.operators.join.window_meeting import WindowMeeting
from strandline.operators.operator import Saved
from strandline.operators.partition_wide.object_at_work import ObjectAtWork
from strandline.operators.stateless.definition import StatelessDefinition
from strandline.recovery import eventual_checkpoint, without_replay
from strandline.recovery.recover import Recovery
from strandline.running import step as steps_
from tests.simulation.catalogue import SIMULATIONS
from tests.simulation.planted import Plant, instead_of, require_found
from tests.simulation.seeded_runs import run_seeds
from tests.simulation.simulated_operators import some_operator_over_several
from tests.support.user_operators import Running

SEEDS = 300
"""So many at the most until a planted defect is found: of those whose operator has the defect."""
FEW = 40
"""So many at the most of classes, and of policies that lose tuples."""

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
        return before(definition)._replace(keep=definition.windows.reach)

    return instead_of(join_operator, "rules_of", rules)


@planted("tuples of a join expire a moment late", of="join")
def _late_expiry() -> AbstractContextManager[Any]:
    return instead_of(JoinOperator, "advance", lambda before, self, boundary: before(self, boundary - 1))


@planted("a theta join takes the times of new tuples for those of kept ones", of="join")
def _overwritten_times() -> AbstractContextManager[Any]:
    return instead_of(
        window_meeting, "_kept_times", lambda before, join, side, is_met: 0 * before(join, side, is_met=is_met)
    )


@planted("a theta join passes a pair over where its room ends", of="join")
def _pair_passed_over() -> AbstractContextManager[Any]:
    def kernel_and_rows(before: Any, self: WindowMeeting, emits: bool) -> Any:
        kernel, rows = before(self, emits=emits)

        def forgetful(*arguments: Any) -> Any:
            code = kernel(*arguments)
            if code == FULL:
                arguments[-1][NEXT] += 1
            return code

        return forgetful, rows

    return instead_of(WindowMeeting, "_kernel_and_rows", kernel_and_rows)


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

    return instead_of(serialised_union, "moved", moved)


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
def test_a_planted_defect_is_found(name: str) -> None:
    plant, kind = _PLANTED[name]
    require_found(name, plant, run_of("several"), islice(seeds_with(kind), SEEDS))


def run_of(simulation: str) -> Callable[[int], None]:
    """Returns a function that runs a seed; whatever goes wrong is an `AssertionError`."""
    return lambda seed: run_seeds(SIMULATIONS[simulation], [seed])


def test_a_log_that_takes_a_lost_commit_for_the_end_is_found() -> None:
    name = "a lost commit is taken for the end"
    require_found(name, lambda: mock.patch.object(Commits, "has_later", _no_later), run_of("lost-file"), range(FEW))


def _no_later(_commits: Commits, _seq: int, **_options: bool) -> bool:
    return False


def _half_a_state(self: Running, state: dict[str, Any]) -> None:
    self.n = state["n"]


IN_CLASSES = {
    "half of a state is restored": (Running, "restore_checkpoint", _half_a_state),
    "a step forgets the calls to repeat": (ObjectAtWork, "_note", lambda self, call, is_noted: None),
}


def _one_further(before: Any, step: Any, *rest: Any) -> Any:
    operator, recovery = before(step, *rest)
    operator.input_end += step.before is not None
    return operator, recovery


IN_STATELESS: dict[str, Plant] = {
    "a step without state begins one tuple further": lambda: instead_of(steps_, "operator_before", _one_further),
    "a union without state writes one input after the other": lambda: mock.patch.object(
        one_table.np, "argsort", lambda places, **_options: np.arange(len(places))
    ),
    "tuples that cannot be computed are forgotten": lambda: mock.patch.object(OneTableAside, "add_tuples"),
    "time does not pass through an operator without state": lambda: mock.patch.object(
        StatelessDefinition, "keeps_time", False
    ),
}


@pytest.mark.parametrize("name", IN_STATELESS)
def test_a_defect_of_operators_without_state_is_found(name: str) -> None:
    require_found(name, IN_STATELESS[name], run_of("stateless"), range(FEW))


@pytest.mark.long
@pytest.mark.parametrize("name", IN_CLASSES)
def test_a_defect_that_is_planted_in_a_class_is_found(name: str) -> None:
    require_found(name, lambda: mock.patch.object(*IN_CLASSES[name]), run_of("class"), range(FEW))


def _closings_are_overlooked(salvage: Any) -> Iterator[Saved]:
    for saved in NEWEST_FIRST(salvage):
        yield Saved(saved.closed.slice(0, 0), saved.footprints)


def _from_one_later(*given: Any) -> Iterator[Loss]:
    return (replace(loss, first=loss.first + 1) if loss.tuples else loss for loss in LOSSES(*given))


NEWEST_FIRST, LOSSES = without_replay._Salvage._newest_first, without_replay._losses
UNDER_LOSSES = {
    "windows that have closed go on": (without_replay._Salvage, "_newest_first", _closings_are_overlooked),
    "state is not saved anew": (Recovery, "is_other", property(lambda recovery: recovery.is_older)),
    "time does not pass": (without_replay, "_pass_time", lambda *_given, **_options: None),
    "the record is one tuple short": (without_replay, "_losses", _from_one_later),
}


@pytest.mark.long
@pytest.mark.parametrize("name", UNDER_LOSSES)
def test_a_defect_of_policies_that_lose_tuples_is_found(name: str) -> None:
    require_found(name, lambda: mock.patch.object(*UNDER_LOSSES[name]), run_of("lossy"), range(FEW))
