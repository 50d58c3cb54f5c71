"""The specification of barriers in plain Python: results, footprints, extent and what a recovery gives."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from strandline.operators.barrier.definition import TIME, BarrierDefinition
from strandline.operators.operator import Extent, Limits


class BarrierTuple(NamedTuple):
    """A tuple where it stands in the serialised input."""

    place: int
    input: int
    key: Hashable
    values: Any


@dataclass
class PlainBarrier:
    """Tuples that wait, by key and input, in the order in which they came."""

    inputs: int
    at_most: int | None = None
    queues: dict[Hashable, list[list[BarrierTuple]]] = field(default_factory=dict)
    end: int = 0
    prints: dict[int, int] = field(default_factory=dict)
    """By place, where in the output the newest footprint of a tuple that waits is."""
    since: dict[int, int] = field(default_factory=dict)
    """By place, where the output stood when the step began in which it came."""
    dropped: list[tuple[BarrierTuple, int]] = field(default_factory=list)

    def feed(self, tuples: Iterable[BarrierTuple]) -> Iterator[list[BarrierTuple]]:
        """The sets that are completed, a tuple of each input."""
        for one in tuples:
            self.end = one.place + 1
            queues = self.queues.setdefault(one.key, [[] for _ in range(self.inputs)])
            queues[one.input].append(one)
            if all(queues):
                yield [queue.pop(0) for queue in queues]
            elif self.at_most is not None and sum(map(len, queues)) > self.at_most:
                oldest = min((queue for queue in queues if queue), key=lambda queue: queue[0].place)
                self.dropped.append((oldest.pop(0), one.place))

    @property
    def waiting(self) -> list[BarrierTuple]:
        """All that wait, in order."""
        return sorted(one for queues in self.queues.values() for queue in queues for one in queue)

    def save(self, position: int, began: int, limits: Limits) -> list[int]:
        """The places of tuples that get footprints; the step began when the output stood at `began`."""
        places = [one.place for one in self.waiting]
        self.prints = {place: pos for place, pos in self.prints.items() if place in places}
        self.since = {place: self.since.get(place, began) for place in places}
        written = self._save_oldest([], places, position, limits)
        written += self._save_slow(places, position, position + len(written), limits, len(written))
        return self._save_oldest(written, places, position, limits)  # of a longer output

    def _save_oldest(self, written: list[int], places: list[int], position: int, limits: Limits) -> list[int]:
        while len(written) < min(len(places), limits.budget):
            unsaved = next((place for place in places if place not in self.prints), None)
            saved = min(self.prints, key=lambda place: self.prints[place], default=None)
            at = position + len(written)
            replay = 0 if unsaved is None else self.end - unsaved
            since = at if unsaved is None else self.since[unsaved]
            first = at if saved is None else self.prints[saved]
            read_cost, replay_cost = (at - min(since, first)) * limits.extent_cost, replay * limits.replay_cost
            chosen = None
            if replay > limits.replay:
                chosen = unsaved
            elif first < position and at - first > limits.extent:
                chosen = saved
            elif read_cost + replay_cost > limits.cost:
                prefers = unsaved is not None and (since <= first or replay_cost >= read_cost)
                chosen = unsaved if prefers else saved if first < position else None
            if chosen is None:
                break
            written.append(chosen)
            self.prints[chosen] = at
        return written

    def _save_slow(self, places: list[int], began: int, position: int, limits: Limits, written: int) -> list[int]:
        """The places of tuples that get footprints because they have waited for long, after so many others."""
        found: list[int] = []
        if limits.slow is None:
            return found
        while len(found) < limits.slow_budget(written):
            unsaved = [place for place in places if place not in self.prints]
            chosen = min(unsaved, default=None)
            if chosen is None or chosen >= limits.slow.opened_before:
                chosen = min(self.prints, key=lambda place: self.prints[place], default=None)
                is_due = chosen is not None and self.prints[chosen] < min(limits.slow.written_before, began)
                if chosen is None or not is_due or chosen >= limits.slow.opened_before:
                    break
            self.prints[chosen] = position + len(found)
            found.append(chosen)
        return found

    def extent(self, position: int) -> Extent:
        """Where recovery would begin."""
        places = [one.place for one in self.waiting]
        unsaved = next((place for place in places if place not in self.prints), None)
        first = min([position, *(self.prints[place] for place in places if place in self.prints)])
        if unsaved is None:
            return Extent(len(places), self.end, first)
        return Extent(len(places), unsaved, min(first, self.since[unsaved]))


def result_row(definition: BarrierDefinition, members: Sequence[BarrierTuple]) -> dict[str, Any]:
    """A set as its result has it, or a single tuple as a footprint has it; keys are tuples, values rows."""
    last = max(members, key=lambda one: one.place)
    row: dict[str, Any] = dict(zip((name for name, _ in definition.key), last.key, strict=True))  # type: ignore[call-overload]
    row[TIME] = last.values[definition.times[last.input]]
    by_input = {one.input: one for one in members}
    for i, one in enumerate(definition.inputs):
        for name, _ in one.columns:
            row[f"{one.name}_{name}"] = by_input[i].values[name] if i in by_input else None
        row[definition.at_columns[i]] = by_input[i].place if i in by_input else None
    return row
