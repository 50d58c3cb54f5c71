"""Several streams as one sequence of tuples that everybody agrees on: by time, then by input, then by offset.

Nothing before the least of the inputs' boundaries will follow, so the tuples before it stand in their final order;
what is not before it waits where it is, in its stream. Row groups are read in the order of their least times, of one
time by input and offset, and tuples are handed on as soon as no row group that is left can hold an earlier one. So
memory holds the row groups that overlap at one place, however much there is to read, and however much of one time.

    input 0   ▐▀▀▀▀▀▌  ▐▀▀▀▀▌            read ─► sorted ─►│ handed on │ overlap │ not read yet
    input 1      ▐▀▀▀▀▀▀▌   ▐▀▀▀▀▀▌                                   ▲ the first place that is not read
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from strandline.arrow_rows import rows_of, sizes_at
from strandline.control_columns import OFFSET
from strandline.errors import CorruptManifestError
from strandline.inputs import one_stream
from strandline.inputs.input import Piece
from strandline.inputs.input_stream import Horizon, InputStream, WaitingTuples
from strandline.inputs.one_stream import piece_rows
from strandline.log.index.leaf import Ints
from strandline.log.operator_state.input_mark import Position
from strandline.units import END_OF_TIME
from strandline.wording import plural

_EDGE_EVERY = 1 << 14
"""A replay may have to begin so many tuples before the first one that it needs."""


def pieces(inputs: Sequence[InputStream], partition: int, begin: Position, until: int, rows: int) -> Iterator[Piece]:
    """Yields the tuples from `begin` on with a time before `until`, at most `rows` at a time; the last piece has that
    bound.

    Nothing before `until` may follow in any input. The end of time is after every tuple there is. Tables, one an input,
    have the columns that were asked for and `_offset`, the place in the serialised order. All tuples before the bound
    of a piece, and no others, come before its end; a piece that ends between two tuples of one time is no edge.
    """
    streams = [WaitingTuples(stream, n, partition, begin.bound, until) for n, stream in enumerate(inputs)]
    first = begin.ordinal
    while True:
        horizon = _read(streams, rows)
        taken = [stream.take(horizon) for stream in streams]
        run = _Run([table for table, _ in taken], [times for _, times in taken], first)
        yield from run.pieces(rows, until if horizon is None else None, horizon)
        if horizon is None:
            return
        first = run.end


def _read(streams: Sequence[WaitingTuples], rows: int) -> Horizon | None:
    """Reads until the tuples before some place are complete, and enough for a piece: that place, None if all are."""
    room = 1
    while unread := [least for stream in streams if (least := stream.least) is not None]:
        held = sum(map(len, streams))
        if held >= room:
            horizon = min(unread)
            ready = sum(stream.count_before(horizon) for stream in streams)
            wanted = piece_rows(held, sum(stream.nbytes for stream in streams), rows)
            if ready >= wanted:
                return horizon
            # Look again when there is enough more to be worth it, not after every small block.
            room = held + max(wanted - ready, held // 8)
        streams[min(unread).number].read()
    return None


def replayed(
    inputs: Sequence[InputStream], partition: int, first: int, begin: Position, end: Position, rows: int
) -> Iterator[Piece]:
    """Yields the tuples from the place `first` on, not before `begin`, up to `end`: they were taken in before.

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
            todo="restore the inputs that the operator has read, or start the operator with a new output stream",
        )


def _from(piece: Piece, first: int) -> Piece:
    """Returns the piece without the tuples before a place."""
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
        self._bytes = self._cumulated()

    def pieces(self, rows: int, until: int | None, horizon: Horizon | None) -> Iterator[Piece]:
        """Yields all of them, in pieces that end between two times wherever that is possible; `until` is behind the
        last.

        Without it the last ends at the horizon, which may stand between tuples of one time.
        """
        begin, bound = self._first, until
        if horizon is not None:
            edge = self._before(horizon.time)
            bound = horizon.time if edge == self.end and horizon.time != END_OF_TIME else None
        while self.end - begin > (room := self._room(begin, rows)):
            end, time = self._edge(begin, room)
            yield self._piece(begin, end, time)
            begin = end
        if horizon is not None and bound is None and begin < edge and horizon.time != END_OF_TIME:
            yield self._piece(begin, edge, horizon.time)
            begin = edge
        yield self._piece(begin, self.end, bound)

    def _before(self, time: int) -> int:
        """Returns the place behind the last tuple before this time."""
        return self._first + sum(int(np.searchsorted(times, time)) for times in self._times)

    def _edges(self, begin: int, end: int) -> tuple[Position, ...]:
        """Returns places from `begin` to `end` that lie between two times, about `_EDGE_EVERY` tuples apart."""
        found = []
        while end - begin > _EDGE_EVERY:
            at, time = self._edge(begin, _EDGE_EVERY)
            if time is not None and at < end:
                found.append(Position(at, time))
            begin = at
        return tuple(found)

    def _edge(self, begin: int, rows: int) -> tuple[int, int | None]:
        """Returns the last place within `rows` that lies between two times, and the later of these; else no time."""
        time = self._time_at(begin + rows)
        end = self._before(time)
        if end <= begin:
            return begin + rows, None
        return end, None if time == END_OF_TIME else time

    def _room(self, begin: int, rows: int) -> int:
        """Returns how many tuples from a place on are a piece at most."""
        if self._bytes is None:
            return rows
        before = int(self._bytes[begin - self._first - 1]) if begin > self._first else 0
        end = self._first + int(np.searchsorted(self._bytes, before + one_stream.PIECE_BYTES_MAX, side="right"))
        return max(1, min(rows, end - begin))

    def _cumulated(self) -> Ints | None:
        """Returns the bytes of the tuples up to each place; None if all are within those of a piece."""
        if sum(table.nbytes for table in self._tables) <= one_stream.PIECE_BYTES_MAX:
            return None
        sizes: Ints = np.zeros(self.end - self._first, np.int64)
        for places, table in zip(self._places, self._tables, strict=True):
            sizes[places - self._first] = sizes_at(rows_of(table), np.arange(len(table)))
        cumulated: Ints = np.cumsum(sizes)
        return cumulated

    def _time_at(self, place: int) -> int:
        for places, times in zip(self._places, self._times, strict=True):
            at = int(np.searchsorted(places, place))
            if at < len(places) and places[at] == place:
                return int(times[at])
        raise IndexError(place)

    def _piece(self, begin: int, end: int, bound: int | None) -> Piece:
        edges = (np.searchsorted(places, [begin, end]) for places in self._places)
        tables = tuple(t.slice(int(a), int(e - a)) for t, (a, e) in zip(self._tables, edges, strict=True))
        return Piece(tables, end, bound, is_edge=bound is not None, edges=self._edges(begin, end))


def _ranks(times: Sequence[Ints]) -> list[Ints]:
    """Returns for each input's tuples how many of all come before each: equal times go by input."""
    ends = np.cumsum([len(t) for t in times])
    ranks = np.arange(ends[-1])
    if max(map(len, times)) < ends[-1]:
        # The sort is one that merges runs which are in order already, and there are as many as inputs.
        order = np.argsort(np.concatenate(times), kind="stable")
        ranks[order] = np.arange(ends[-1])
    return np.split(ranks, ends[:-1])
