"""For how long the oldest tuple has waited for results: from the sources of a graph to its last results.

A tuple has arrived when the boundary of its stream has passed it, as for a bound. It waits until the last results are
complete up to its time, tentative ones included. All of this is in the states of the streams: nothing is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from strandline.clock import Clock
from strandline.log.operator_state.guesses import guessed_until
from strandline.log.stream.log_state import LogState
from strandline.units import latest

_ARRIVALS_MAX = 64
"""Beyond so many arrivals of a stream, each two neighbours count as one: a tuple may seem to wait a little longer."""


class Passage(NamedTuple):
    """An operator of the graph, as tuples pass it."""

    output: str
    inputs: Sequence[str]
    result_boundary: Callable[[int], int | None]
    """Returns up to which time results are complete when the inputs are complete up to a time."""


class _Arrival(NamedTuple):
    """Some tuples of a stream that arrived together."""

    latest: int
    """No tuple among them has a later time."""
    since_us: int
    """When the boundary passed them, by the steady clock."""


class OldestWaiting:
    """The tuples that have arrived and are in no result yet, as far as needed to know the oldest one."""

    def __init__(self, sources: Sequence[str], passages: Sequence[Passage], clock: Clock) -> None:
        """Takes the names of streams, and the operators, each behind its inputs."""
        self._passages = passages
        self._clock = clock
        self._waiting: dict[str, list[_Arrival]] = {source: [] for source in sources}
        self._boundaries: dict[str, int] = {}
        self._since_us: int | None = None
        """Since when the oldest tuple waits."""

    def look(self, states: Mapping[str, LogState], own: frozenset[str] = frozenset()) -> None:
        """Notes what has arrived in the sources, and drops what is in results by now.

        A tuple of a stream of this program's `own` waits since the commit; of others, whose clocks may differ, since
        the look.
        """
        for source, waiting in self._waiting.items():
            if source in states:
                waiting.extend(self._arrived(source, states[source], is_own=source in own))
            while waiting and self._is_in_results(source, waiting[0].latest, states):
                del waiting[0]
            if len(waiting) > _ARRIVALS_MAX:
                pairs = zip(waiting[:-1:2], waiting[1::2], strict=True)
                waiting[:-1] = [_Arrival(later.latest, earlier.since_us) for earlier, later in pairs]
        self._since_us = min((waiting[0].since_us for waiting in self._waiting.values() if waiting), default=None)

    @property
    def seconds(self) -> float:
        """For how long the oldest tuple has waited, as of the last look; 0 if none waits. Any thread may ask."""
        since_us = self._since_us
        return 0.0 if since_us is None else max(0, self._clock.steady_us() - since_us) / 1e6

    def _arrived(self, source: str, state: LogState, *, is_own: bool) -> list[_Arrival]:
        """Returns the tuples that have arrived since the last look, if any have."""
        boundary, before = state.boundary, self._boundaries.get(source)
        if boundary is None or (before is not None and boundary <= before):
            return []
        self._boundaries[source] = boundary
        if state.time_max is None or (before is not None and state.time_max < before):
            return []  # time has passed, and no tuple has come
        now_us = self._clock.steady_us()
        age_us = max(0, self._clock.now_us() - state.published_us) if is_own else 0
        return [_Arrival(min(state.time_max, boundary - 1), now_us - age_us)]

    def _is_in_results(self, source: str, latest: int, states: Mapping[str, LogState]) -> bool:
        """Returns whether all tuples of a source up to a time have come through to the last results."""
        passed = {source: latest + 1}
        for output, inputs, result_boundary in self._passages:
            taken = [passed[one] for one in inputs if one in passed]
            until = result_boundary(max(taken)) if taken else None
            if until is None:
                continue
            if (state := states.get(output)) is None:
                return False
            if not any(time is not None and time >= until for time in (state.boundary, guessed_until(state))):
                return False  # results, tentative ones included, are not complete up to that time
            if (last := _latest(state)) is not None:  # behind the last result there is nothing to take in
                passed[output] = min(until, last + 1)
        return True


def _latest(state: LogState) -> int | None:
    """Returns the latest time of a result, tentative ones included; None if there is none."""
    forks = state.outage.forks if state.outage else ()
    return latest(state.time_max, *(fork.latest for fork in forks))
