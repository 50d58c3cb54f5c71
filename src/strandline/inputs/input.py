"""The input of an operator: one protocol for one stream, for several as one, and for replicas.

A driver asks an input for the next batch: a slice of each partition. Steps are given the pieces of a slice, recoveries
the pieces of a stretch that was taken in before. Neither asks what kind of input it has: positions are the input's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from strandline.log.index.leaf import Ints
from strandline.log.operator_state.beginning import Beginning
from strandline.log.operator_state.input_mark import InputMark, Marks, Position
from strandline.log.operator_state.standing import Mode, Standing
from strandline.log.stream.block import Block
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState
from strandline.units import latest


@dataclass(frozen=True, slots=True)
class Piece:
    """Some tuples that follow each other."""

    tables: tuple[pa.Table, ...]
    """One an input. Results only: control tuples of the input's own operator are left out."""
    end: int
    """The place behind the last of them."""
    boundary: int | None
    """No tuple before this time follows; None if that cannot be said."""
    is_edge: bool = True
    """True if a step may end here."""
    edges: tuple[Position, ...] = ()
    """Of several inputs, places inside of it at which a replay can begin, in order."""

    @property
    def tuples(self) -> int:
        """How many, over all inputs."""
        return sum(len(table) for table in self.tables)

    @property
    def position(self) -> Position:
        """The place at which a step stands that ends here."""
        return Position(self.end, self.boundary)


@dataclass(frozen=True, slots=True)
class InputSlice:
    """The tuples of one partition that a step takes in. It travels to the task; the input knows how to read it."""

    begin: Position
    """Where the operator stands, and up to which time its windows are closed."""
    end: int | None
    """The place behind the last tuple; None if only reading tells."""
    until: int | None
    """Behind the last tuple, nothing before this time follows. None: nothing is known, or the time does not matter."""
    tuples_max: int
    """The step may stop when it has taken in so many tuples."""
    time: int | None = None
    """The largest time in the input as of this slice, if the input knows it without reading."""
    inputs: tuple[InputMark, ...] = ()
    """Of a serialised input, where to look for the tuples in each stream."""

    @property
    def reaches(self) -> int | None:
        """The later of the time up to which windows are closed and that which the slice reaches."""
        return latest(self.begin.bound, self.until)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Tuples of one partition that an operator has taken in before."""

    partition: int
    first: int
    """The place of the first of them."""
    begin: Position
    """Where to look for that one: not behind it."""
    end: Position
    boundary: int | None = None
    """Behind the end, nothing before this time follows."""
    needs: tuple[InputMark, ...] = ()
    """Of a serialised input, the marks before whose oldest offsets none of these tuples lies."""

    @classmethod
    def replayed(cls, partition: int, standing: Standing) -> Stretch:
        """Returns what has to be replayed into the eventual checkpoint of a standing."""
        return cls(partition, standing.oldest, standing.replays_from, standing.stands, None, standing.input_marks)

    @classmethod
    def since(cls, partition: int, before: Standing, now: Standing, boundary: int | None) -> Stretch:
        """Returns what was taken in between two standings, or since the whole checkpoint of the first.

        Windows were closed up to `boundary` then.
        """
        if before.is_whole:
            return cls(partition, before.oldest, before.replays_from, now.stands, boundary, before.input_marks)
        return cls(partition, before.input, before.stands, now.stands, boundary, before.input_marks)


class ReplayPlaces:
    """The places, known to one step or recovery, at which a later replay can begin.

    Of one stream these are all offsets, and none has to be noted. Several streams note theirs (see `Edges`).
    """

    @property
    def words(self) -> Ints | None:
        """The places as the next step gets them, beside the state of the operator; None if none has to be kept."""
        return None

    def begin(self, position: Position) -> None:
        """Notes where the input is read from."""

    def passed(self, piece: Piece) -> None:
        """Notes the places in a piece that was taken in, and that behind it."""

    def restored(self, words: Ints | None, before: Standing) -> bool:
        """Notes what the step before has left, and where it stood: time may have passed without a step.

        Returns False if another kind of input has left that.
        """
        return words is None

    def reached(self, boundary: int | None, time: int | None) -> tuple[int | None, int | None]:
        """Returns the time up to which tuples were taken in, and the largest time in the input, at most.

        `boundary` is the time up to which windows are closed, `time` what the slice says.
        """
        return boundary, time

    def noted(self, standing: Standing, taken: InputSlice) -> Standing:
        """Returns the standing after a slice, with the place at which a replay begins now."""
        return standing


class InputBatch(Protocol):
    """The slice of each partition that a batch takes in."""

    @property
    def slices(self) -> Sequence[InputSlice]:
        """One a partition."""

    @property
    def takes_all(self) -> bool:
        """True if the batch goes as far as the input can be taken in now."""

    def complete_until(self, partition: int) -> int | None:
        """Returns the time before which the operator has all tuples behind the slice; None if there is none."""

    def is_done(self, standings: Sequence[Standing]) -> bool:
        """Returns whether the steps have come to the ends of their slices."""

    def noted(self, standings: Sequence[Standing]) -> list[Standing]:
        """Returns the standings behind the steps with how far into the input all of them came."""

    def is_last(self, standings: Sequence[Standing]) -> bool:
        """Returns whether nothing follows behind these standings."""


class Input(Protocol):
    """The streams that an operator takes in, as its driver, its tasks and its recoveries see them."""

    @property
    def logs(self) -> tuple[Log, ...]:
        """The streams; of replicas, those that are read now."""

    # ------------------------------------------------------------------ in the driver

    def next(self, output: LogState, tuples_max: int) -> InputBatch | None:
        """Returns what to take in next, about so many tuples; None if nothing is new."""

    def nothing(self, output: LogState, tuples_max: int) -> InputBatch:
        """Returns a batch that takes in nothing: its steps only save."""

    def has_news(self, output: LogState) -> bool:
        """Returns False if `next` would return nothing, or only a batch that changes nothing. Costs little."""

    def is_behind(self, output: LogState) -> bool:
        """Returns whether results, or time, can be taken in, as of the last refresh; guesses do not count."""

    def places(self, output: LogState, but: Set[int] = frozenset()) -> list[Marks]:
        """Returns where a fork of the operator begins to read, per partition.

        Streams with the numbers in `but` cannot be read: their marks are as they were noted.
        """

    def taken_until(self, output: LogState) -> int | None:
        """Returns the time before which the operator has taken in all tuples; None if there is none."""

    def beginning(self, mode: Mode) -> list[Standing]:
        """Returns the standings of an operator that has taken in nothing, under a policy with this mode."""

    def blocks(self, taken: InputSlice, partition: int) -> list[list[Block]]:
        """Returns the blocks of each stream that hold the tuples of a slice."""

    def needs(self, number: int, standings: Sequence[Standing], begins: Beginning | None) -> list[int]:
        """Returns the first offset, per partition, that the stream with this number has to keep for a recovery."""

    def commits(self, standings: Sequence[Standing]) -> int | list[int]:
        """Returns the last commit that was taken in; of several streams, the last of each that was known then."""

    def waiting(self, standings: Sequence[Standing]) -> int:
        """Returns how many tuples are not taken in; of several streams, at most how many."""

    def require_same(self, standings: Sequence[Standing], but: Set[int] = frozenset()) -> None:
        """Raises `InputWentBackError` if a stream is not what was taken in: if it was put back.

        Streams whose numbers are in `but` are not looked at.
        """

    def latest(self) -> Beginning:
        """Returns the place behind all tuples that are there: where an output with `since="latest"` begins."""

    # ------------------------------------------------------------------ in a task

    def edges(self) -> ReplayPlaces:
        """Returns the places at which a replay can begin, of which none is known yet."""

    def ahead(self, taken: InputSlice, partition: int, first: int, rows: int) -> Iterator[Piece]:
        """Yields the tuples of a slice from the place `first` on, about `rows` at a time."""

    def again(self, stretch: Stretch, rows: int) -> Iterator[Piece]:
        """Yields tuples that were taken in before, about `rows` at a time; raises if they are not there any more."""
