"""Several streams as one sequence of tuples that everybody agrees on: by time, then by input, then by offset.

Nothing before the least of the inputs' boundaries will follow, so the tuples before it stand in their final order;
what is not before it waits where it is, in its stream. Blocks are read in the order of their least times, and tuples
are handed on as soon as no block that is left can hold an earlier one: memory holds what overlaps, however much
there is to read.

    input 0   ▐▀▀▀▀▀▌  ▐▀▀▀▀▌            read ─► sorted ─►│ handed on │ overlap │ not read yet
    input 1      ▐▀▀▀▀▀▀▌   ▐▀▀▀▀▀▌                                   ▲ the least time that is not read
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from strandline.errors import CorruptManifestError
from strandline.log.column_types import OFFSET
from strandline.log.input_mark import Position
from strandline.log.leaf import Ints
from strandline.processing.input_stream import InputStream, WaitingTuples, total
from strandline.units import END_OF_TIME
from strandline.wording import plural

_EDGE_EVERY = 1 << 14
"""A replay may have to begin so many tuples before the first one that it needs."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some tuples that follow each other in the serialised order."""

    tables: tuple[pa.Table, ...]
    """One an input, in the columns that were asked for and `_offset`, the place in the serialised order."""
    end: int
    """The place behind the last of them."""
    bound: int | None
    """All tuples before this time, and no others, come before `end`; None if it stands between two of one time."""
    edges: tuple[Position, ...] = ()
    """Places inside of it at which a reader may begin, in order."""

    @property
    def tuples(self) -> int:
        """How many, over all inputs."""
        return sum(len(table) for table in self.tables)

    @property
    def position(self) -> Position | None:
        """Where a step may end; None if it may not end here."""
        return None if self.bound is None else Position(self.end, self.bound)


def pieces(inputs: Sequence[InputStream], partition: int, begin: Position, until: int, rows: int) -> Iterator[Piece]:
    """The tuples from `begin` on with a time before `until`, at most `rows` at a time; the last piece has that bound.

    Nothing before `until` may follow in any input. The end of time is after every tuple there is.
    """
    streams = [WaitingTuples(stream, partition, begin.bound, until) for stream in inputs]
    first = begin.ordinal
    while True:
        horizon = _read(streams, rows)
        taken = [stream.take(horizon) for stream in streams]
        run = _Run([table for table, _ in taken], [times for _, times in taken], first)
        if horizon is None:
            yield from run.pieces(rows, until)
            return
        # Of the last time that there is, none may be left behind: no later bound would lead to them.
        yield from run.pieces(rows, None if horizon == END_OF_TIME else horizon)
        first = run.end


def _read(streams: Sequence[WaitingTuples], rows: int) -> int | None:
    """Reads blocks until the tuples before some time are complete, and at least `rows`: that time, None if all are."""
    room = total(streams) + rows
    while unread := [stream for stream in streams if stream.least is not None]:
        min(unread, key=_least).read()
        held = total(streams)
        if held < room:
            continue
        horizon = min((stream.least for stream in streams if stream.least is not None), default=None)
        ready = held if horizon is None else sum(stream.count_before(horizon) for stream in streams)
        if ready >= rows:
            return horizon
        # Look again when there is enough more to be worth it, not after every small block.
        room = held + max(rows - ready, held // 8)
    return None


def _least(stream: WaitingTuples) -> int:
    assert stream.least is not None
    return stream.least


def replayed(
    inputs: Sequence[InputStream], partition: int, first: int, begin: Position, end: Position, rows: int
) -> Iterator[Piece]:
    """The tuples from the place `first` on, which is not before `begin`, up to `end`: they were taken in before.

    Raises `CorruptManifestError` if between `begin` and `end` there are not as many as there were.
    """
    stands = begin.ordinal
    if end.bound is not None and end != begin:
        for piece in pieces(inputs, partition, begin, end.bound, rows):
            stands = piece.end
            yield _from(piece, first)
    if stands != end.ordinal:
        raise CorruptManifestError(
            f"the inputs hold {plural(stands - begin.ordinal, 'tuple')} with a time from {begin.bound} up to "
            f"{end.bound}, the operator has taken in {end.ordinal - begin.ordinal:,} of them",
            where=f"partition {partition} of {', '.join(stream.log.storage.url for stream in inputs)}",
            todo="restore the inputs as the operator has seen them, or let it begin anew with a new output stream",
        )


def _from(piece: Piece, first: int) -> Piece:
    """The piece without the tuples before a place."""
    if piece.end - piece.tuples >= first:
        return piece
    tables = (t.slice(int(np.searchsorted(t.column(OFFSET).to_numpy(), first))) for t in piece.tables)
    return replace(piece, tables=tuple(tables))


class _Run:
    """Tuples of all inputs that come next, those of each input in order."""

    def __init__(self, tables: Sequence[pa.Table], times: Sequence[Ints], first: int) -> None:
        self._times = times
        self._places = [ranks + first for ranks in _ranks(times)]
        self._tables = [t.append_column(OFFSET, pa.array(at)) for t, at in zip(tables, self._places, strict=True)]
        self._first = first
        self.end = first + sum(map(len, times))

    def pieces(self, rows: int, bound: int | None) -> Iterator[Piece]:
        """All of them, in pieces that end between two times wherever that is possible; behind the last is `bound`."""
        begin = self._first
        while self.end - begin > rows:
            end, edge = self._edge(begin, rows)
            yield Piece(self._slices(begin, end), end, edge, self._edges(begin, end))
            begin = end
        yield Piece(self._slices(begin, self.end), self.end, bound, self._edges(begin, self.end))

    def _edges(self, begin: int, end: int) -> tuple[Position, ...]:
        """Places between these two that stand between two times, about `_EDGE_EVERY` tuples apart."""
        found = []
        while end - begin > _EDGE_EVERY:
            at, time = self._edge(begin, _EDGE_EVERY)
            if time is not None and at < end:
                found.append(Position(at, time))
            begin = at
        return tuple(found)

    def _edge(self, begin: int, rows: int) -> tuple[int, int | None]:
        """The last place within `rows` that stands between two times, and the later of these; else no time."""
        time = self._time_at(begin + rows)
        end = self._first + sum(int(np.searchsorted(times, time)) for times in self._times)
        if end <= begin:
            return begin + rows, None
        return end, None if time == END_OF_TIME else time

    def _time_at(self, place: int) -> int:
        for places, times in zip(self._places, self._times, strict=True):
            at = int(np.searchsorted(places, place))
            if at < len(places) and places[at] == place:
                return int(times[at])
        raise IndexError(place)

    def _slices(self, begin: int, end: int) -> tuple[pa.Table, ...]:
        edges = (np.searchsorted(places, [begin, end]) for places in self._places)
        return tuple(t.slice(int(a), int(e - a)) for t, (a, e) in zip(self._tables, edges, strict=True))


def _ranks(times: Sequence[Ints]) -> list[Ints]:
    """Of each input's tuples, which are in order, how many of all come before each: equal times go by input."""
    ends = np.cumsum([len(t) for t in times])
    ranks = np.arange(ends[-1])
    if max(map(len, times)) < ends[-1]:
        # The sort is one that merges runs which are in order already, and there are as many as inputs.
        order = np.argsort(np.concatenate(times), kind="stable")
        ranks[order] = np.arange(ends[-1])
    return np.split(ranks, ends[:-1])
