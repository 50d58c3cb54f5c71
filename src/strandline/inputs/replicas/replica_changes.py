"""All that happens to the results of replicas, cut into batches that may have to be repeated.

Changes cannot be shown twice: guesses are void by then, or their replica is gone. So a repeated batch has its stable
results, the same from any replica, and no guesses. An undo comes first; another one follows with all that counts behind
the batch. A reader that folds by `_kind` gets the same table, whether it replaces the first batch or skips the second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from strandline.control_columns import PARTITION
from strandline.inputs.replicas.numbered_results import NumberedResults
from strandline.inputs.replicas.replica_place import ReplicaPlace
from strandline.inputs.replicas.replica_reader import ReplicaReader
from strandline.inputs.replicas.replica_set import ReplicaSet
from strandline.inputs.replicas.replica_story import Heard, Story
from strandline.inputs.replicas.result_span import ResultSpan

ROWS_MAX = 1 << 18
"""A batch that has so many rows ends: they pass through the driver."""

_SETTLED = Heard(stable_from=0, tentative_from=0, boundary=None, is_settled=True)


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of one partition in a batch: what comes first, results, and what comes last."""

    partition: int
    before: tuple[pa.Table, ...] = ()
    results: ResultSpan | None = None
    after: tuple[pa.Table, ...] = ()


class ReplicaChanges:
    """Batches of what happens, one behind the other."""

    def __init__(self, replicas: ReplicaSet, results: NumberedResults) -> None:
        self._set = replicas
        self._results = results
        self._reader: ReplicaReader | None = None
        self._stands_at: ReplicaPlace | None = None
        """The end of the last batch: the reader has gone on from there, past what no reader is shown."""
        self._batch: tuple[ReplicaPlace, ReplicaPlace, tuple[pa.Table, ...]] | None = None
        self._repeated_until: ReplicaPlace | None = None
        """The end of a batch that was repeated."""
        self.is_all_told = False
        """True if the last look was taken in to its end."""

    def after(self, place: ReplicaPlace, rows_max: int = ROWS_MAX) -> ReplicaPlace:
        """Looks what has happened since a place, and returns the one behind it, or behind `rows_max` rows of it.

        The place itself if nothing has.
        """
        told: list[pa.Table] = []
        if place != self._stands_at or self._reader is None:
            begins_at = place
            if place == self._repeated_until:
                begins_at, told = self._undone(place)
            self._reader = ReplicaReader(self._set, begins_at)
        self.is_all_told = False
        many = 0
        for table in self._reader.poll():
            told.append(table)
            many += len(table)
            if many >= rows_max:
                break
        else:
            self.is_all_told = True
        end = self._reader.place if told else None
        if end is None:
            self._stands_at = place
            return place
        self._batch, self._stands_at, self._repeated_until = (place, end, tuple(told)), end, None
        return end

    def between(self, start: ReplicaPlace, end: ReplicaPlace) -> list[Changes]:
        """Returns the changes between two places, per partition; after a restart, what is left of them."""
        if self._batch is not None and self._batch[:2] == (start, end):
            return list(_by_partition(self._batch[2]))
        self._batch, self._repeated_until = None, end
        self._reader = None
        spans = {span.partition: span for span in self._results.spans(start, end)}
        found = []
        for p, (own, last) in enumerate(zip(start.partitions, end.partitions, strict=True)):
            before, after = Story(self._set.spec, p, own), Story(self._set.spec, p, replace(last, is_open=own.is_open))
            before.change_over(goes_on=False, boundary=None)
            if not last.is_open:
                after.settle(_SETTLED)
            found.append(Changes(p, tuple(before.told()), spans.get(p), tuple(after.told())))
        return [one for one in found if one.before or one.results or one.after]

    def _undone(self, place: ReplicaPlace) -> tuple[ReplicaPlace, list[pa.Table]]:
        """Returns the place from which all that counts is shown anew, and the undo of what may have been shown."""
        stories = [Story(self._set.spec, p, own) for p, own in enumerate(place.partitions)]
        for story in stories:
            story.change_over(goes_on=False, boundary=None)
        told = [table for story in stories for table in story.told()]
        places = tuple(story.place for story in stories)
        return replace(place, partitions=places, stream="", offsets=(), retold=place.retold + 1), told


def _by_partition(tables: tuple[pa.Table, ...]) -> Iterator[Changes]:
    found: dict[int, list[pa.Table]] = {}
    for table in tables:  # a story is of one partition
        found.setdefault(table.column(PARTITION)[0].as_py(), []).append(table)
    return (Changes(p, tuple(told)) for p, told in sorted(found.items()))
