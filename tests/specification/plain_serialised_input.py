"""The serialised input in plain Python: what `serialised_input` has to give, in a few lines and with all in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class SerialisedTuple(NamedTuple):
    """A tuple where it stands; these compare as the serialised order has them."""

    time: int
    input: int
    offset: int


def plain_serialised(times: Sequence[Sequence[int]], until: int) -> list[SerialisedTuple]:
    """The tuples of several inputs with a time before `until`; `times` has those of each input by offset."""
    every = (SerialisedTuple(t, i, offset) for i, own in enumerate(times) for offset, t in enumerate(own))
    return sorted(found for found in every if found.time < until)
