"""Defects that are planted in the reader of replicas on purpose are found by `written_replicas_world`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from strandline.availability import replica_reader
from strandline.availability.replica_choice import ReplicaSight
from strandline.availability.replica_set import ReplicaSet
from strandline.availability.replica_story import Heard, Story
from strandline.availability.replica_watch import ReplicaWatch
from tests.simulation import written_replicas_world
from tests.simulation.planted import Plant, instead_of, require_found

SEEDS = 60
"""So many at the most until a planted defect is found."""


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


@pytest.mark.long
@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found(name: str) -> None:
    require_found(DEFECTS[name], written_replicas_world.run, SEEDS)
