"""What a driver remembers of its inputs' guesses, so that a step of a fork looks at those that are new.

An input's appends say the latest time of its tentative tuples. Whoever has seen an end of the log, and asks later for
times behind that one, begins there: however long a failure lasts, what lies before is not looked through again.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.log.operator_state.guesses import Passed

KEPT = 16
"""Of a partition so many places are remembered at most; if it is more, every second one is forgotten."""

Places = tuple[Passed, ...]
"""Places in a partition, by offset and by time."""


def looked_past(known: Sequence[Places], seen: Sequence[Passed | None], needed: Sequence[int | None]) -> list[Places]:
    """The places that are of use after one more look, per partition; `known` is empty if what is known was undone.

    `needed` are the times from which on guesses are asked for from now on, unless a fork is made anew.
    """
    before = known or ((),) * len(seen)
    return [_kept(own, place, time) for own, place, time in zip(before, seen, needed, strict=True)]


def _kept(known: Places, seen: Passed | None, needed: int | None) -> Places:
    if seen is not None:
        known = (*(one for one in known if one.time < seen.time), seen)
    used = [one for one in known if needed is not None and one.time <= needed]
    kept = (*used[-1:], *known[len(used) :])
    return kept if len(kept) <= KEPT else (*kept[:-1:2], kept[-1])
