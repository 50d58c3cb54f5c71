"""The places in its inputs' guesses that a driver remembers, so that a step of a fork reads only new guesses.

An input's appends say the latest time of its tentative tuples. A reader that has seen an end of the log, and later asks
for times behind that time, begins there. However long a failure lasts, it does not look through earlier guesses again.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.log.operator_state.guesses import Passed

KEPT = 16
"""The greatest number of places that the driver remembers per partition; of more it forgets every second one."""

Places = tuple[Passed, ...]
"""Places in a partition, by offset and by time."""


def looked_past(known: Sequence[Places], seen: Sequence[Passed | None], needed: Sequence[int | None]) -> list[Places]:
    """Returns the places that are of use after one more look, per partition.

    `known` is empty if an undo has voided the known guesses. `needed` are the times from which the fork will ask for
    guesses, unless it is made anew.
    """
    before = known or ((),) * len(seen)
    return [_kept(own, place, time) for own, place, time in zip(before, seen, needed, strict=True)]


def _kept(known: Places, seen: Passed | None, needed: int | None) -> Places:
    if seen is not None:
        known = (*(one for one in known if one.time < seen.time), seen)
    used = [one for one in known if needed is not None and one.time <= needed]
    kept = (*used[-1:], *known[len(used) :])
    return kept if len(kept) <= KEPT else (*kept[:-1:2], kept[-1])
