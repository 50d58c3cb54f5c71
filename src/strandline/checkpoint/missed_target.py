"""Targets that no footprints can meet, and what the operator holds instead.

A target below the number of open windows, or below the tuples of a batch, would have every window saved in every batch,
and still not be met, or be met to no avail: a batch that dies is taken in again in any case. The operator holds the
nearest target that leaves it time for its work.
"""

from __future__ import annotations

from dataclasses import dataclass

_TIMES = 2.0
"""The extent that is held instead of one below the number of windows, in such numbers: G-checks are few from there."""


@dataclass(frozen=True, slots=True)
class MissedTarget:
    """A target that was not held at the end of a step."""

    option: str
    text: str


def nearest_extent(asked: int, footprints: int) -> tuple[float, MissedTarget | None]:
    """Returns the extent to hold when a recovery needs so many footprints in any case.

    >>> nearest_extent(100, 60)[0], nearest_extent(100, 101)[0]
    (100.0, 202.0)
    """
    if asked >= footprints:
        return float(asked), None
    held = _TIMES * footprints
    text = (
        f"extent={asked:_} cannot be met: the footprints of what is open are {footprints:,} tuples. The operator holds "
        f'{round(held):,}, as with extent="2x"; an extent of {footprints:_} or more can be met, and from twice as many '
        "on it costs little"
    )
    return held, MissedTarget("extent", text)


def nearest_replay(asked: int, tuples: int) -> tuple[float, MissedTarget | None]:
    """Returns how many tuples a recovery may replay after a step that took in so many.

    >>> nearest_replay(100, 60)[0], nearest_replay(100, 101)[0]
    (100.0, 101.0)
    """
    if asked >= tuples:
        return float(asked), None
    text = (
        f"replay={asked:_} cannot be met by batches of {tuples:,} tuples a partition: every window would be saved in "
        "every batch. The operator holds the tuples of one batch; use replay= of a batch or more, or smaller batches: "
        "a shorter trigger, or max_tuples_per_batch="
    )
    return float(tuples), MissedTarget("replay", text)


def nearest_cost(
    target_us: int, allowed_ns: float, footprints: int, unit_costs: tuple[float, float], tuples: int
) -> tuple[float, MissedTarget | None]:
    """Returns the nanoseconds that reading and replaying may take if so many footprints are read in any case."""
    extent_ns, replay_ns = unit_costs
    least_ns = footprints * extent_ns
    if allowed_ns >= least_ns:
        return allowed_ns, None
    held_ns = _TIMES * least_ns + tuples * replay_ns
    text = (
        f"recover_within={target_us / 1e6:g} s cannot be met: to read the {footprints:,} footprints of what is open "
        f"takes {least_ns / 1e9:.2g} s (as measured), and {allowed_ns / 1e9:.2g} s are left for it. The operator "
        f"holds {held_ns / 1e9:.2g} s; more partitions, each with fewer windows, recover at the same time"
    )
    return held_ns, MissedTarget("recover_within", text)
