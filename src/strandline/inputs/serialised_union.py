"""Several streams as one input of an operator: its tuples in the order of time, input and offset.

A batch goes in each partition up to a time before which all streams are known. A place is a number of tuples and a
time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace

from strandline.errors import StrandlineError
from strandline.inputs import serialised_input
from strandline.inputs.edges import Edges
from strandline.inputs.input import InputBatch, InputSlice, Piece, Stretch
from strandline.inputs.input_marks import (
    first_needed,
    fresh_marks,
    in_logs,
    last_seen,
    moved,
    needs,
    oldest_in,
    require_same_inputs,
)
from strandline.inputs.input_stream import InputStream, blocks_between
from strandline.inputs.next_bounds import next_bounds, reachable
from strandline.log.operator_state.beginning import Beginning, Since, firsts_of
from strandline.log.operator_state.guesses import Guesses
from strandline.log.operator_state.input_lag import taken_in_until
from strandline.log.operator_state.input_mark import Marks
from strandline.log.operator_state.standing import Mode, Standing, marks_in
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.block import Block
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState
from strandline.log.stream.partial_log import PartialLog
from strandline.operators.operator import Definition
from strandline.units import END_OF_TIME, is_before


@dataclass(slots=True)
class SerialisedUnion:
    """Several streams as one sequence of tuples."""

    definition: Definition
    logs: tuple[Log, ...]
    replicas: frozenset[int] = frozenset()
    """The numbers of inputs that are several replicas: offsets mean nothing in another of them."""
    begins: Beginning | None = None
    """Where the operator began; None: with all that the inputs hold."""
    guesses: tuple[Guesses | None, ...] = ()
    """Of each input the tentative tuples that are taken in beside results; none, for all but forks."""

    results_from: tuple[int, ...] = ()
    """Of each input the offset before which no result is taken in; none, for all but forks of an operator over one."""

    # ------------------------------------------------------------------ in the driver

    def marks(self, standings: Sequence[Standing], but: Set[int] = frozenset()) -> list[Marks]:
        """Returns where the operator stands in the streams that are read now, per partition.

        Those with the numbers in `but` cannot be read: their marks are as they were noted.
        """
        found = [in_logs(marks, self.logs, p, but) for p, marks in enumerate(marks_in(standings))]
        return found or fresh_marks(self.logs, self.replicas, self.begins)

    def next(self, output: LogState, tuples_max: int) -> TimeSlices | None:
        marks = self.marks(output.standings)
        bounds = next_bounds(self.logs, marks, tuples_max)
        if all(bound is None for bound in bounds):
            return None
        filled = [self._has_tuples(p, marks[p], bound) for p, bound in enumerate(bounds)]
        seen = tuple(last_seen(log) for log in self.logs)
        found = TimeSlices(self.logs, tuple(marks), _slices(marks, bounds, filled, tuples_max), seen)
        # Where only tuples matter, time alone is no reason for a commit, but for the last one.
        is_news = any(filled) or END_OF_TIME in bounds or found.moves_results(self.definition)
        return found if is_news else None

    def _has_tuples(self, partition: int, marks: Marks, until: int | None) -> bool:
        """Returns whether there may be tuples before a time."""
        if until is None:
            return False
        pairs = zip(self.logs, marks.inputs, strict=True)
        return any(blocks_between(log, partition, mark.first, marks.stands.bound, until) for log, mark in pairs)

    def nothing(self, output: LogState, tuples_max: int) -> InputBatch:
        marks = self.marks(output.standings)
        slices = _slices(marks, [None] * len(marks), [False] * len(marks), tuples_max)
        return TimeSlices(self.logs, tuple(marks), slices, (None,) * len(self.logs))

    def has_news(self, output: LogState) -> bool:
        """Returns True: only `next` can tell."""
        return True

    def is_behind(self, output: LogState) -> bool:
        """Returns whether all streams are complete up to a time that the operator has not reached."""
        stands = [s.stands.bound for s in output.standings] or [None] * self.logs[0].spec.partitions
        reach = [reachable(self.logs, p) for p in range(len(stands))]
        return any(map(is_before, stands, reach))

    def places(self, output: LogState, but: Set[int] = frozenset()) -> list[Marks]:
        return self.marks(output.standings, but)

    def taken_until(self, output: LogState) -> int | None:
        """Returns the least time that a partition has reached; None before that."""
        return taken_in_until(output.standings)

    def beginning(self, mode: Mode) -> list[Standing]:
        """Returns standings at the oldest tuples of all streams, or where the operator begins in them."""
        return [Standing(0, -1, 0, 0, 0, 0, mode=mode, marks=marks, results=0) for marks in self.marks(())]

    def blocks(self, taken: InputSlice, partition: int) -> list[list[Block]]:
        if taken.until is None:
            return [[] for _ in self.logs]
        pairs = zip(self.logs, taken.inputs, strict=True)
        return [blocks_between(log, partition, mark.first, taken.begin.bound, taken.until) for log, mark in pairs]

    def needs(self, number: int, standings: Sequence[Standing], begins: Beginning | None) -> list[int]:
        log, marks = self.logs[number], marks_in(standings)
        starts = log.state.starts[: log.spec.partitions]
        if not marks:
            return list(firsts_of(begins, starts, number))
        return [max(first, start) for first, start in zip(needs(marks, number), starts, strict=True)]

    def commits(self, standings: Sequence[Standing]) -> int | list[int]:
        """Returns the last commit of each stream that was known when tuples were taken in."""
        return [mark.seen for mark in standings[0].input_marks]

    def waiting(self, standings: Sequence[Standing]) -> int:
        found = 0
        for p, s in enumerate(standings):
            ends = sum(log.state.ends[p] for log in self.logs)
            found += max(0, min(ends - s.input, ends - sum(mark.first for mark in s.input_marks)))
        return -(-found // self.logs[0].readers)

    def require_same(self, standings: Sequence[Standing], but: Set[int] = frozenset()) -> None:
        if standings:
            require_same_inputs(self.logs, self.marks(standings, but), but)

    def latest(self) -> Beginning:
        """Returns the times behind all tuples that are known in every stream."""
        times = tuple(_latest(self.logs, p) for p in range(self.logs[0].spec.partitions))
        return beginning_at("latest", self.logs, self.replicas, times, times)

    # ------------------------------------------------------------------ in a task

    def edges(self) -> Edges:
        """Returns the places at which a replay can begin: some of those between two times."""
        return Edges()

    def ahead(self, taken: InputSlice, partition: int, first: int, rows: int) -> Iterator[Piece]:
        """Yields the tuples of a slice; none if the time that it reaches is not known."""
        if taken.until is None:
            return
        firsts = [_known(log, partition, mark.first) for log, mark in zip(self.logs, taken.inputs, strict=True)]
        yield from serialised_input.pieces(self._streams(firsts), partition, taken.begin, taken.until, rows)

    def again(self, stretch: Stretch, rows: int) -> Iterator[Piece]:
        pairs = zip(self.logs, stretch.needs, strict=True)
        streams = self._streams([oldest_in(log, stretch.partition, mark) for log, mark in pairs])
        return serialised_input.replayed(streams, stretch.partition, stretch.first, stretch.begin, stretch.end, rows)

    def _streams(self, firsts: Sequence[int]) -> list[InputStream]:
        guesses = self.guesses or (None,) * len(self.logs)
        results_from = self.results_from or (0,) * len(self.logs)
        wanted = zip(self.logs, self.definition.reads, firsts, guesses, results_from, strict=True)
        return [InputStream(*one) for one in wanted]


def _slices(
    marks: Sequence[Marks], bounds: Sequence[int | None], filled: Sequence[bool], tuples_max: int
) -> tuple[InputSlice, ...]:
    return tuple(
        InputSlice(m.stands, None if filled[p] else m.stands.ordinal, bounds[p], tuples_max, inputs=m.inputs)
        for p, m in enumerate(marks)
    )


def _known(log: Log, partition: int, first: int) -> int:
    """Returns the first offset to look at: a share knows no block before those that the driver has chosen."""
    return max(first, log.state.starts[partition]) if isinstance(log, PartialLog) else first


def _latest(logs: Sequence[Log], partition: int) -> int | None:
    """Returns the time before which nothing can follow in any stream that has one; None if none of them has."""
    bound = min((b for log in logs if (b := log.state.boundaries[partition]) is not None), default=None)
    if bound != END_OF_TIME:
        return bound
    # All are finished. The output begins behind the last tuple, and so takes in that there is no other.
    return max((log.state.time_max for log in logs if log.state.time_max is not None), default=-1) + 1


def beginning_at(
    since: Since, logs: Sequence[Log], replicas: Set[int], bounds: Sequence[int | None], times: tuple[int | None, ...]
) -> Beginning:
    """Returns the beginning at these times, one a partition: in each stream the first offset that may be needed."""
    offsets = tuple(
        None if n in replicas else tuple(first_needed(log, p, b, log.state.starts[p]) for p, b in enumerate(bounds))
        for n, log in enumerate(logs)
    )
    return Beginning(since, offsets, times)


@dataclass(frozen=True, slots=True)
class TimeSlices:
    """A batch of several streams: in each partition the tuples before a time, up to which all streams are known.

    A slice that reaches no time takes in nothing: its step only saves.
    """

    logs: tuple[Log, ...]
    marks: tuple[Marks, ...]
    """Where the operator stands before."""
    slices: tuple[InputSlice, ...]
    seen: tuple[AppendCommit | None, ...]
    """The last append of each stream that was known when the batch was chosen."""

    @property
    def takes_all(self) -> bool:
        """True if the slices go as far as all streams are complete."""
        return all(reachable(self.logs, p) == one.reaches for p, one in enumerate(self.slices))

    def complete_until(self, partition: int) -> int | None:
        """Returns the time that the slice reaches."""
        return self.slices[partition].reaches

    def is_done(self, standings: Sequence[Standing]) -> bool:
        pairs = zip(standings, self.slices, strict=True)
        return all(one.until is None or s.stands.bound == one.until for s, one in pairs)

    def moves_results(self, definition: Definition) -> bool:
        """Returns whether time alone says something to those who read the results."""
        told = definition.result_boundary
        return any(
            one.until is not None and told(one.until, one.begin.ordinal) != told(one.begin.bound, one.begin.ordinal)
            for one in self.slices
        )

    def noted(self, standings: Sequence[Standing]) -> list[Standing]:
        """Returns the standings with what each stream has to keep from now on."""
        pairs = enumerate(zip(standings, self.marks, strict=True))
        found = [
            replace(s, marks=moved(marks, self.logs, p, s.stands, s.replays_from, self.seen)) for p, (s, marks) in pairs
        ]
        stays = all(s.stands.bound == one.begin.bound for s, one in zip(found, self.slices, strict=True))
        if stays and any(one.until is not None for one in self.slices):
            raise StrandlineError(
                "a batch would take in nothing of its inputs, and neither would the next one",
                where=f"bounds {[one.until for one in self.slices]}, stands {[one.begin for one in self.slices]}",
                todo="this is a defect of Strandline; please report it",
            )
        return found

    def is_last(self, standings: Sequence[Standing]) -> bool:
        """Returns whether nothing follows: all streams are finished and taken in."""
        return all(log.state.finished for log in self.logs) and all(s.stands.bound == END_OF_TIME for s in standings)
