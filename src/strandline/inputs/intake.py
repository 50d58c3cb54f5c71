"""Input tuples in pieces, each with the time before which nothing follows any more.

A window may close as soon as nothing that belongs to it can follow: neither in what is left of the commits at hand nor
in later ones. The first is known from the tuples and, for blocks not read yet, from what manifests say of them; the
second is the boundary of the last of these commits. So a month that comes in one commit is not a month of open windows,
and results do not depend on where it is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.log.index.leaf import Ints
from strandline.log.operator_state.beginning import Beginning
from strandline.log.operator_state.input_mark import InputMark, Position
from strandline.log.operator_state.standing import Standing
from strandline.log.stream.block import Block
from strandline.log.stream.kinds import only_results
from strandline.log.stream.listing import listed
from strandline.log.stream.log import Log
from strandline.operators.operator import Definition

PIECE_BYTES_MAX = 64 << 20
"""A piece has about so many bytes at most, or is a single tuple."""
_NEVER = np.iinfo(np.int64).max


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
    """Whether a step may end here."""
    edges: tuple[Position, ...] = ()
    """Of several inputs, places inside of it at which a replay can begin, in order."""

    @property
    def tuples(self) -> int:
        """How many, over all inputs."""
        return sum(len(table) for table in self.tables)

    @property
    def position(self) -> Position:
        """Where a step stands that ends here, over several inputs."""
        return Position(self.end, self.boundary)


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
        """What has to be replayed into the eventual checkpoint of a standing."""
        return cls(partition, standing.oldest, standing.replays_from, standing.stands, None, _needs(standing))

    @classmethod
    def since(cls, partition: int, before: Standing, now: Standing, boundary: int | None) -> Stretch:
        """What was taken in between two standings, or since the whole checkpoint of the first.

        Over one stream, windows were closed up to `boundary` then; over several the standing says it.
        """
        if now.marks is not None:
            boundary = now.stands.bound
        if before.is_whole:
            return cls(partition, before.oldest, before.replays_from, now.stands, boundary, _needs(before))
        return cls(partition, before.input, before.stands, now.stands, boundary, _needs(before))


def _needs(standing: Standing) -> tuple[InputMark, ...]:
    return () if standing.marks is None else standing.marks.inputs


class Intake(Protocol):
    """What an operator takes in: one stream, or several as one sequence."""

    def again(self, stretch: Stretch, rows: int) -> Iterator[Piece]:
        """Tuples that were taken in before, about `rows` at a time; raises if they are not there any more."""


IntakeOf = Callable[[Definition, Sequence[Log], Sequence[Standing], Beginning | None], Intake]
"""Makes the intake of an operator over these inputs, of which some standing says whether they are serialised, and which
begins there."""


@dataclass(frozen=True, slots=True)
class StreamIntake:
    """One stream: its tuples in the order of their offsets."""

    definition: Definition
    log: Log
    begins: Beginning | None = None
    """Where the operator began: what came later with a time before that is left out, too."""

    def again(self, stretch: Stretch, rows: int) -> Iterator[Piece]:
        """Tuples that were taken in before."""
        return self.ahead(stretch.partition, stretch.first, stretch.end.ordinal, stretch.boundary, rows)

    def ahead(self, partition: int, first: int, end: int, boundary: int | None, rows: int) -> Iterator[Piece]:
        """The tuples [first, end); behind them, nothing before the boundary follows."""
        since = None if self.begins is None else self.begins.time(partition)
        return pieces(self.log, self.definition, partition, first, end, boundary, rows, since)


def pieces(
    log: Log,
    definition: Definition,
    partition: int,
    first: int,
    end: int,
    boundary: int | None,
    rows: int,
    since: int | None = None,
) -> Iterator[Piece]:
    """The input tuples [first, end), about `rows` at a time. Behind `end`, nothing before `boundary` follows.

    Tuples with a time before `since` are left out.
    """
    if first >= end:
        return
    is_timed = definition.has_times and boundary is not None
    blocks = listed(log, partition, first, end) if is_timed or since is not None else []
    later = _Later(blocks) if is_timed else None
    columns = list(definition.reads[0])
    if since is not None and all(block.time_min >= since for block in blocks):
        since = None
    read = columns if since is None or log.spec.time in columns else [*columns, log.spec.time]
    for table in log.read(partition, first, end, read):
        behind = first + table.num_rows
        least = _least_after(table, definition.times[0], later.least(behind)) if later is not None else None
        many = piece_rows(table.num_rows, table.nbytes, rows)
        for begin in range(0, table.num_rows, many):
            part = table.slice(begin, many)
            until = begin + part.num_rows
            known = boundary
            if least is not None and boundary is not None and first + until < end:
                known = min(boundary, int(least[until]))
            results = only_results(part) if since is None else _not_before(only_results(part), log.spec.time, since)
            yield Piece((results if read is columns else results.drop_columns(log.spec.time),), first + until, known)
        first = behind


def _not_before(table: pa.Table, time: str, since: int) -> pa.Table:
    """The tuples with a time that is not before this one."""
    return table.filter(pc.greater_equal(table.column(time).cast(pa.int64()), since))


def piece_rows(tuples: int, nbytes: float, rows: int) -> int:
    """How many tuples make a piece if so many have these bytes: at most `rows`."""
    return max(1, min(rows, int(PIECE_BYTES_MAX * tuples / max(nbytes, 1))))


class _Later:
    """The least time in blocks that are not read yet."""

    def __init__(self, blocks: list[Block]) -> None:
        self._ends = np.array([b.end for b in blocks], np.int64)
        times = np.array([*(b.time_min for b in blocks), _NEVER], np.int64)
        self._least: Ints = np.minimum.accumulate(times[::-1])[::-1]

    def least(self, offset: int) -> int:
        """Of the blocks that hold this offset or a later one."""
        return int(self._least[np.searchsorted(self._ends, offset, side="right")])


def _least_after(table: pa.Table, time: str, later: int) -> Ints:
    """For each number of tuples taken of the table, the least time of what is left, `later` being that behind it."""
    times = table.column(time).cast(pa.int64()).to_numpy()
    least: Ints = np.minimum.accumulate(np.append(times, later)[::-1])[::-1]
    return least
