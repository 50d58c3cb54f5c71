"""Defects that are planted in readers of replicas, and in operators over them, are found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import pytest

from strandline.checkpoint.policy import cec
from strandline.inputs import input_marks, serialised_union
from strandline.inputs.replicas import numbered_results, replica_reader
from strandline.inputs.replicas.replica_changes import ReplicaChanges
from strandline.inputs.replicas.replica_choice import ReplicaSight
from strandline.inputs.replicas.replica_set import ReplicaSet
from strandline.inputs.replicas.replica_story import Heard, Story
from strandline.inputs.replicas.replica_watch import ReplicaWatch
from strandline.log.operator_state.input_mark import InputMark
from strandline.log.stream.log import Log
from tests.simulation import replica_input_world, written_query_world, written_replicas_world
from tests.simulation.catalogue import run_bounded_replica_input, run_with_tables
from tests.simulation.planted import Plant, instead_of, require_found


@contextmanager
def both(one: AbstractContextManager[Any], other: AbstractContextManager[Any]) -> Iterator[None]:
    """The two at once: one alone is caught by the other."""
    with one, other:
        yield


def lowered(story: Story) -> None:
    """Forgets up to which time another replica has guessed, but not that it has."""
    if story.place.floor is not None:
        story.place = replace(story.place, floor=-(1 << 40))


DEFECTS: dict[str, Plant] = {
    "a replica that lacks what was read is used": lambda: both(
        mock.patch.object(ReplicaSight, "has", return_value=True), mock.patch.object(replica_reader, "require_result")
    ),
    "results go on one too late": lambda: instead_of(
        replica_reader, "offset_of_result", lambda before, log, p, n: before(log, p, n + (n > 0))
    ),
    "results before the fork of another are shown again": lambda: instead_of(
        Heard, "of", lambda before, state, p, _: before(state, p, 0)
    ),
    "guesses of another count, whatever this one knows": lambda: mock.patch.object(
        Story, "change_over", return_value=None
    ),
    "guesses go back in time": lambda: instead_of(
        Story,
        "change_over",
        lambda before, story, **facts: (before(story, **facts), lowered(story)),
    ),
    "guesses of another are never undone": lambda: mock.patch.object(Story, "settle", return_value=None),
    "a dead replica is waited for": lambda: mock.patch.object(ReplicaWatch, "is_behind", return_value=False),
    "a lost disk goes unnoticed": lambda: instead_of(
        ReplicaSet, "_require_unchanged", lambda before, own, n, log, *, has_moved: before(own, n, log, has_moved=True)
    ),
}


IN_QUERIES: dict[str, Plant] = {
    "guesses of a batch that was repeated are told twice": lambda: instead_of(
        ReplicaChanges, "_undone", lambda before, own, place: (before(own, place)[0], [])
    ),
    "a repeated batch undoes nothing": lambda: instead_of(
        ReplicaChanges,
        "between",
        lambda before, own, start, end: [
            one if own._batch is not None else replace(one, before=()) for one in before(own, start, end)
        ],
    ),
    "a repeated batch is not reconciled": lambda: instead_of(
        ReplicaChanges,
        "between",
        lambda before, own, start, end: [replace(one, after=()) for one in before(own, start, end)],
    ),
    "a reader that goes on begins one too late": lambda: instead_of(
        numbered_results, "offset_of_result", lambda before, log, p, n: before(log, p, n + (n > 0))
    ),
}


def renamed(_before: Any, mark: InputMark, log: Log, _partition: int) -> InputMark:
    """The mark of another replica as if it were of this one."""
    replica = None if mark.replica is None else replace(mark.replica, stream=log.spec.id)
    return InputMark(mark.first, mark.oldest, replica=replica)


IN_INPUTS: dict[str, Plant] = {
    "offsets of one replica are used in another": lambda: instead_of(input_marks, "_in_log", renamed),
    "a replay begins at the offset of another replica": lambda: instead_of(
        serialised_union, "oldest_in", lambda _before, _log, _partition, mark: mark.oldest
    ),
    "results are counted one too many": lambda: instead_of(
        input_marks, "results_between", lambda before, *asked: (found := before(*asked)) + (found > 0)
    ),
}


UNDER_A_BOUND: dict[str, Plant] = {
    "results are counted one too many": lambda: instead_of(
        input_marks, "results_between", lambda before, *asked: (found := before(*asked)) + (found > 0)
    ),
    "the place of one replica is used in another": lambda: instead_of(
        serialised_union, "in_logs", lambda _before, marks, *_: marks
    ),
}


class RecoversOften(replica_input_world.Life):
    """An operator that may replay much, and has to, whenever it is given another replica."""

    def __init__(self, world: replica_input_world.ReplicaInputWorld) -> None:
        super().__init__(world)
        if not world.behind.definition.lives_in_process:
            world.policy = cec()

    def chosen(self) -> Log | None:
        before, log = self.input.log, super().chosen()
        if log is not None and (before is None or log.spec.id != before.spec.id):
            for machine in self.world.own_machines:
                machine.lose()
        return log


def run_of_operator(name: str) -> Callable[[int], object]:
    """Returns the simulation that finds a defect of operators; the defect of replays needs one in which many happen."""
    if "replay" in name:
        return partial(replica_input_world.run, begin=RecoversOften)
    return replica_input_world.run


WHERE: dict[str, tuple[dict[str, Plant], Callable[[str], Callable[[int], object]], int]] = {
    "": (DEFECTS, lambda _: written_replicas_world.run, 60),
    "in a query, ": (IN_QUERIES, lambda name: partial(written_query_world.run, tentative="batch" in name), 100),
    "in an operator, ": (IN_INPUTS, run_of_operator, 150),
    "with a bound, ": (UNDER_A_BOUND, lambda _: run_bounded_replica_input, 60),
}
"""Defects, the function that runs a seed of the simulation that finds them, and the largest number of seeds tried."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("where", "name"), [(where, name) for where, (defects, *_) in WHERE.items() for name in defects]
)
def test_a_planted_defect_is_found(where: str, name: str) -> None:
    defects, run_of, seeds = WHERE[where]
    require_found(f"{where}{name}", defects[name], partial(run_with_tables, run_of(name)), range(seeds))
