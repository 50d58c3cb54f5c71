"""The results of replicas by their numbers, as the driver of a query sees them, and where to read them.

A place here knows nothing of any replica, so a batch between two places is the same for any reader, from any replica.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from strandline.inputs.replicas.replica_check import require_result, result_checksum
from strandline.inputs.replicas.replica_choice import choose
from strandline.inputs.replicas.replica_place import ReplicaPlace, ResultPlace
from strandline.inputs.replicas.replica_set import ReplicaSet, ReplicaUser
from strandline.inputs.replicas.replica_watch import results_of
from strandline.inputs.replicas.result_span import Held, ResultSpan
from strandline.log.index.seek import offsets_at
from strandline.log.operator_state.upstream import group_of
from strandline.log.reading.result_ordinals import first_kept_result, offset_of_result, results_before
from strandline.log.stream.listing import listed
from strandline.log.stream.log import Log
from strandline.log.upkeep import consumer_registry

Found = TypeVar("Found")


class NumberedResults(ReplicaUser):
    """The results of replicas, from any replica that can be read."""

    def __init__(self, replicas: ReplicaSet) -> None:
        super().__init__(replicas)
        self._offsets: dict[int, tuple[int, int]] = {}
        """Per partition of the replica that is read: a number of results, and an offset up to which there are so many.
        A reader goes on where it was, so it need not be looked for."""

    @property
    def group(self) -> str:
        """Of which replicas these are the results."""
        return group_of(self._set.spec)

    # ------------------------------------------------------------------ places

    def oldest(self) -> ReplicaPlace:
        """Returns the place before the first result that the best replica keeps."""
        return self._begun(lambda log: [first_kept_result(log, p) for p in range(log.spec.partitions)])

    def newest(self) -> ReplicaPlace:
        """Returns the place behind the last result of the best replica."""
        return self._begun(lambda log: results_of(log.state))

    def at(self, time: int) -> ReplicaPlace:
        """Returns the place before the first result of this time or later in the best replica, in each partition."""
        return self._begun(lambda log: [results_before(log, p, o) for p, o in enumerate(offsets_at(log, time))])

    def _begun(self, numbers: Callable[[Log], Sequence[int]]) -> ReplicaPlace:
        def found(log: Log) -> ReplicaPlace:
            places = tuple(ResultPlace(n, _checksum(log, p, n)) for p, n in enumerate(numbers(log)))
            return ReplicaPlace(places, self.group)

        place = self._asked((0,) * self._set.spec.partitions, None, found)
        if place is None:
            raise self._set.none_readable()
        return place

    def after(self, place: ReplicaPlace, taken: Callable[[Sequence[int]], Sequence[int]]) -> ReplicaPlace:
        """Returns the place behind the next results: `taken` says how many to take of each partition, if there are so
        many.

        The place itself if there is nothing, or no replica that has what was read.
        """

        def found(log: Log) -> ReplicaPlace:
            there = [has - own for has, own in zip(results_of(log.state), place.results, strict=True)]
            moved = zip(place.partitions, taken(there), strict=True)
            ends = enumerate((own, own.results + many) for own, many in moved)
            places = (own if n == own.results else ResultPlace(n, _checksum(log, p, n)) for p, (own, n) in ends)
            return replace(place, partitions=tuple(places))

        return self._asked(place.results, place, found) or place

    # ------------------------------------------------------------------ reading

    def spans(self, start: ReplicaPlace, end: ReplicaPlace) -> list[ResultSpan]:
        """Returns the results between two places, per partition; leaves out partitions without any.

        If no replica has all of them now, as may be after a restart, the spans do not say where they are.
        """
        both = enumerate(zip(start.partitions, end.partitions, strict=True))
        spans = [
            ResultSpan(p, first.results, last.results, first.last, start.group)
            for p, (first, last) in both
            if first.results < last.results
        ]
        return self._asked(end.results, start, lambda log: [self._held(span, log) for span in spans]) or spans

    def _held(self, span: ResultSpan, log: Log) -> ResultSpan:
        assert self.current is not None
        p = span.partition
        number, offset = self._offsets.get(p, (-1, -1))
        first = offset if number == span.first else offset_of_result(log, p, span.first)
        log.require_kept(p, first)
        end = offset_of_result(log, p, span.end)
        self._offsets[p] = span.end, end
        blocks = tuple(listed(log, p, first, end))
        return replace(span, held=Held(self.current, log.spec.to_json(), first, end, blocks))

    def _asked(self, results: Sequence[int], place: ReplicaPlace | None, ask: Callable[[Log], Found]) -> Found | None:
        """Returns what is found in the best replica that has so many results; None if there is none.

        A replica that was not asked before must have the same results up to the place. One that fails is left out.
        """
        for attempt in self._attempts(lambda sights: choose(sights, results, self.current)):
            with attempt as (number, log):
                if log is not self.log:
                    for p, own in enumerate(place.partitions if place else ()):
                        require_result(log, p, own.results, own.last)
                    self.current, self.log, self._offsets = number, log, {}
                return ask(log)
        return None

    # ------------------------------------------------------------------ a consumer

    def register(self, name: str, place: ReplicaPlace) -> None:
        """Registers a consumer of the results from a place on at all replicas that can be reached; raises if none can.

        At a replica that comes back later the next call registers it.
        """

        def keep(log: Log) -> None:
            offsets = [offset_of_result(log, p, number) for p, number in enumerate(place.results)]
            consumer_registry.register(log, name, offsets)

        reached, problems = self._set.at_each(keep)
        if not reached:
            raise problems[-1] if problems else self._set.none_readable()


def _checksum(log: Log, partition: int, results: int) -> str:
    """Returns the checksum of the last of so many results; empty if there is none, or it was dropped."""
    return result_checksum(log, partition, results - 1) or "" if results else ""
