"""A reader of whatever replica is there: all results once and in order, and guesses that never go back in time.

What is stable goes by number: the n-th result is the same in all replicas. What is tentative is each replica's own
guess. A reader that comes from another replica keeps what it has shown if the new one is failing, too, and leaves out
of its guesses what lies before (DPC's t_max); if the new one knows better, it says undo first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.control_columns import KIND, PARTITION
from strandline.errors import StreamMismatchError
from strandline.inputs.replicas.replica_check import require_result
from strandline.inputs.replicas.replica_choice import ReplicaSight, choose
from strandline.inputs.replicas.replica_place import ReplicaPlace, ResultPlace
from strandline.inputs.replicas.replica_set import ReplicaSet, ReplicaUser
from strandline.inputs.replicas.replica_story import RESULT, Heard, Story
from strandline.inputs.replicas.replica_watch import results_of
from strandline.log.operator_state.upstream import group_of
from strandline.log.reading.result_ordinals import first_kept_result, offset_of_result
from strandline.log.reading.tentative_results import CHANGES, TENTATIVE
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log

LOOK_EVERY_S = 0.1
_NOWHERE = -1


class ReplicaReader(ReplicaUser):
    """Reads replicas from the oldest result on, or from where another reader stood."""

    def __init__(self, replicas: ReplicaSet, place: ReplicaPlace | None = None) -> None:
        if place is not None and place.group != group_of(replicas.spec):
            raise StreamMismatchError(
                "this place is in other streams: their operator or its inputs differ",
                where=f"a place in {place.stream}, replicas such as {replicas.spec.id}",
                todo="pass a place that a reader of these replicas has returned, or no place",
            )
        super().__init__(replicas)
        self._place = place
        self._stable_from: list[int] = []
        """Per partition, in the replica that is read: results before this offset were shown."""

    @property
    def place(self) -> ReplicaPlace | None:
        """Behind the last table that was taken: to be kept with what was made of it. None before the first look."""
        return self._place

    @property
    def is_done(self) -> bool:
        """True if all was shown, and nothing will follow."""
        if self.log is None or self._place is None or not self.log.state.finished:
            return False
        is_open = any(own.is_open for own in self._place.partitions)
        return not is_open and self._place.offsets == self.log.state.ends[: len(self._place.offsets)]

    def follow(self, every_s: float = LOOK_EVERY_S) -> Iterator[pa.Table]:
        """Yields changes until the stream is finished, see `poll`. Waits while there is nothing, or no replica, to
        read."""
        while True:
            yield from self.poll()
            if self.is_done:
                return
            self._set.clock.sleep(every_s)

    def poll(self) -> Iterator[pa.Table]:
        """Yields the changes since the last table; none if there is nothing new, or no replica to read.

        Tables have the columns of the results, `_kind` ("stable", "tentative", "undo", "rec_done"), `_partition`, and
        `_result`: how many stable results of the partition come before. Guesses that are void already are left out.
        """
        for attempt in self._attempts(self._best):
            with attempt as (number, log):
                if log is not self.log:
                    self.current = self.log = None  # a reader that stops in between has left the old one, too
                    yield from self._begin(log)
                self.current, self.log = number, log
                yield from self._go_on(log)
                return

    def _best(self, sights: Sequence[ReplicaSight | None]) -> int | None:
        read = (0,) * self._set.spec.partitions if self._place is None else self._place.results
        return choose(sights, read, self.current)

    # ------------------------------------------------------------------ changing over

    def _begin(self, log: Log) -> Iterator[pa.Table]:
        """Finds the place in another replica, and says undo where that one knows better than what was guessed."""
        place = self._place or _oldest(log)
        stable_from, offsets, stories = [], [], []
        for p, own in enumerate(place.partitions):
            require_result(log, p, own.results, own.last)
            stable_from.append(offset_of_result(log, p, own.results))
            story = Story(log.spec, p, own)
            if place.stream == log.spec.id and log.state.starts[p] <= place.offsets[p] <= stable_from[p]:
                offsets.append(place.offsets[p])
            else:
                offsets.append(_offset(log, p, stable_from[p]))
                story.change_over(goes_on=_goes_on(log, p, own), boundary=log.state.boundaries[p])
            stories.append(story)
        self._stable_from = stable_from
        # Who goes on from here before all of it was told must not take the rest for told.
        self._place = replace(place, stream=log.spec.id, offsets=(_NOWHERE,) * len(offsets))
        for story, offset in zip(stories, offsets, strict=True):
            yield from self._told(story, offset)

    # ------------------------------------------------------------------ going on

    def _go_on(self, log: Log) -> Iterator[pa.Table]:
        """Yields the changes of the replica up to where it is now."""
        state, names = log.state, list(log.spec.columns)
        for p in range(log.spec.partitions):
            assert self._place is not None
            heard = Heard.of(state, p, self._stable_from[p])
            first, end = self._place.offsets[p], state.ends[p]
            for table in log.read(p, first, end, names) if first < end else ():
                first += len(table)
                story = Story(log.spec, p, self._place.partitions[p])
                story.hear(table, heard)
                yield from self._told(story, first)
            story = Story(log.spec, p, self._place.partitions[p])
            story.settle(heard)
            yield from self._told(story, first)

    def _told(self, story: Story, offset: int) -> Iterator[pa.Table]:
        """Notes that so much was told, as soon as it is taken."""
        assert self._place is not None
        partitions, offsets = list(self._place.partitions), list(self._place.offsets)
        partitions[story.partition], offsets[story.partition] = story.place, offset
        self._place = replace(self._place, partitions=tuple(partitions), offsets=tuple(offsets))
        yield from story.told()


def _oldest(log: Log) -> ReplicaPlace:
    """Returns the place before the first result of a replica."""
    places = (ResultPlace(first_kept_result(log, p)) for p in range(log.spec.partitions))
    return ReplicaPlace(tuple(places), group_of(log.spec))


def _offset(log: Log, partition: int, stable_from: int) -> int:
    """Returns where to begin in a replica: at the first result to come, or at the first guess that counts."""
    forks = log.state.outage.forks if log.state.outage else ()
    if not forks or not forks[partition].tuples:
        return stable_from
    return min(stable_from, max(forks[partition].first, log.state.starts[partition]))


def _goes_on(log: Log, partition: int, place: ResultPlace) -> bool:
    """Returns whether a replica has only guesses to add to what was shown."""
    outage = log.state.outage
    is_failing = outage is not None and outage.state == "UP_FAILURE" and bool(outage.forks)
    return is_failing and results_of(log.state)[partition] == place.results


def snapshot(replicas: ReplicaSet, *, tentative: bool = False) -> Iterator[pa.Table]:
    """Yields the results that the best replica has now, partition by partition, with `_partition` and `_result`.

    With `tentative` the tentative ones that count follow behind all others, and a column `_tentative` tells them apart.
    Should the replica be lost on the way, another goes on. Raises if there is none to be read.
    """
    reader = ReplicaReader(replicas)
    guesses: dict[int, list[pa.Table]] = {}
    for table in reader.poll():
        if len(stable := _of_kind(table, Kind.RESULT)):
            yield _shown(stable, tentative=tentative, is_guess=False)
        own = guesses.setdefault(table.column(PARTITION)[0].as_py(), [])
        undone = np.flatnonzero(pc.equal(table.column(KIND), CHANGES[Kind.UNDO]).to_numpy())
        if len(undone):  # another replica knew better
            own.clear()
        own.append(_of_kind(table.slice(int(undone[-1]) + 1 if len(undone) else 0), Kind.TENTATIVE))
    if reader.current is None:
        raise replicas.none_readable()
    if tentative:
        found = (guess for own in guesses.values() for guess in own if len(guess))
        yield from (_shown(guess, tentative=True, is_guess=True) for guess in found)


def snapshot_schema(replicas: ReplicaSet, *, tentative: bool = False) -> pa.Schema:
    """Returns the columns of these tables."""
    found = replicas.spec.arrow.append(pa.field(PARTITION, pa.int32())).append(pa.field(RESULT, pa.int64()))
    return found.append(pa.field(TENTATIVE, pa.bool_())) if tentative else found


def _of_kind(table: pa.Table, kind: Kind) -> pa.Table:
    return table.filter(pc.equal(table.column(KIND), CHANGES[kind]))


def _shown(table: pa.Table, *, tentative: bool, is_guess: bool) -> pa.Table:
    table = table.drop_columns([KIND])
    return table.append_column(TENTATIVE, pa.repeat(pa.scalar(is_guess), len(table))) if tentative else table
