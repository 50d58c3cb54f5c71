"""One stream as the input of an operator: its tuples in the order of their offsets, in pieces.

A window may close as soon as nothing that belongs to it can follow: neither in what is left of the commits at hand nor
in later ones. The first is known from the tuples and, for blocks not read yet, from what manifests say of them; the
second is the boundary of the last of these commits. So a month that comes in one commit is not a month of open windows,
and results do not depend on where it is cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import StrandlineError
from strandline.inputs.input import InputBatch, InputSlice, Piece, ReplayPlaces, Stretch
from strandline.inputs.put_back import require_not_put_back
from strandline.inputs.stable_part import StablePart, has_moved
from strandline.log.index import index
from strandline.log.index.leaf import Ints
from strandline.log.operator_state.beginning import Beginning, firsts_of
from strandline.log.operator_state.input_mark import InputMark, Marks, Position
from strandline.log.operator_state.standing import Mode, Standing
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.appends import appends_after, before_append_at
from strandline.log.stream.block import Block
from strandline.log.stream.kinds import only_results
from strandline.log.stream.listing import listed
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState
from strandline.operators.operator import Definition
from strandline.units import first_of_all, latest

PIECE_BYTES_MAX = 64 << 20
"""A piece has about so many bytes at most, or is a single tuple."""
_NEVER = np.iinfo(np.int64).max


@dataclass(slots=True)
class OneStream:
    """One stream; a place in it is an offset."""

    definition: Definition
    log: Log
    begins: Beginning | None = None
    """Where the operator began: what came later with a time before that is left out, too."""

    @property
    def logs(self) -> tuple[Log, ...]:
        """The stream."""
        return (self.log,)

    # ------------------------------------------------------------------ in the driver

    def next(self, output: LogState, tuples_max: int) -> WholeCommits | None:
        stands, last, takes_all = self._taken(output), None, True
        for m in appends_after(self.log, self._done(output.standings)):
            is_enough = last is not None and all(e >= stand for e, stand in zip(last.ends, stands, strict=False))
            if is_enough and sum(m.ends[: self._partitions]) - sum(stands) > tuples_max:
                takes_all = False
                break  # at least as far as any partition has come already, part of a commit as it may be
            last = m
        if last is None:
            return None
        least = self.log.state.starts if output.standings else self._firsts
        waiting = [max(0, end - stand) for end, stand in zip(last.ends, stands, strict=False)]
        # Windows that go by count know no time: it is no reason to run a step, nor may it stand beside their offsets.
        timed = self.definition.keeps_time
        slices = tuple(
            InputSlice(
                begin=Position(stands[p], output.boundaries[p]),
                end=max(last.ends[p], least[p]),
                until=last.boundaries[p] if timed else None,
                # In proportion to what waits, so that all get through together.
                tuples_max=max(1, -(-tuples_max * waiting[p] // max(1, sum(waiting)))),
                time=last.time_max,
            )
            for p in range(self._partitions)
        )
        return WholeCommits(last, slices, takes_all)

    def nothing(self, output: LogState, tuples_max: int) -> InputBatch:
        pairs = zip(output.standings, output.boundaries, strict=False)
        slices = tuple(InputSlice(Position(s.input, boundary), s.input, None, tuples_max) for s, boundary in pairs)
        return NoCommits(AppendCommit(-1, self.log.spec.id, 0), slices)

    def has_news(self, output: LogState) -> bool:
        """Returns whether there are new tuples, a later boundary, the end, or many commits without any of these."""
        now = self.log.state
        if now.ends[: self._partitions] != self._taken(output) or now.finished != output.finished:
            return True
        if self.definition.keeps_time:
            return now.boundaries != output.boundaries
        # Windows that go by count do not care; but commits that no step has taken in are looked through later.
        return now.seq - max((s.commit for s in output.standings), default=-1) >= index.FOLD_EVERY

    def is_behind(self, output: LogState) -> bool:
        """Returns whether there are new results, a later boundary or the end."""
        return has_moved(self.log, self._done(output.standings), in_time=self.definition.keeps_time)

    def places(self, output: LogState, but: Set[int] = frozenset()) -> list[Marks]:
        """Returns where the operator stands, by offset, and the time before which it has all tuples."""
        oldest = [s.oldest for s in output.standings] or self._taken(output)
        known = output.boundaries if self.definition.keeps_time else (None,) * self._partitions
        found = []
        for p, (first, needed, bound) in enumerate(zip(self._taken(output), oldest, known, strict=True)):
            began = None if self.begins is None else self.begins.time(p)
            stands = Position(first, latest(bound, began))
            found.append(Marks(stands, Position(needed, None), (InputMark(first, needed),)))
        return found

    def taken_until(self, output: LogState) -> int | None:
        """Returns the boundary of the results, or of the stream where results do not have its times."""
        if self.definition.keeps_time:
            return output.boundary
        if not self.is_behind(output):
            return self.log.state.boundary
        before = StablePart.at(self.log, self._done(output.standings))
        return None if before is None else first_of_all(before.boundaries)

    def beginning(self, mode: Mode) -> list[Standing]:
        """Returns standings at the first offsets of the stream, or where the operator begins in it."""
        done = self._done(())
        return [Standing(first, done, 0, first, 0, 0, mode=mode, results=0) for first in self._firsts]

    def blocks(self, taken: InputSlice, partition: int) -> list[list[Block]]:
        first, end = taken.begin.ordinal, taken.end
        assert end is not None
        return [listed(self.log, partition, first, end) if first < end else []]

    def needs(self, number: int, standings: Sequence[Standing], begins: Beginning | None) -> list[int]:
        starts = self.log.state.starts[: self._partitions]
        if not standings:
            return list(firsts_of(begins, starts, number))
        return [max(s.oldest, start) for s, start in zip(standings, starts, strict=True)]

    def commits(self, standings: Sequence[Standing]) -> int | list[int]:
        return standings[0].commit

    def waiting(self, standings: Sequence[Standing]) -> int:
        return sum(self.log.state.ends[p] - s.input for p, s in enumerate(standings))

    def require_same(self, standings: Sequence[Standing], but: Set[int] = frozenset()) -> None:
        if not standings or but:
            return
        newest = max(max(s.commit, s.seen) for s in standings)
        require_not_put_back(
            self.log, newest, [s.input for s in standings], standings[0].seen, standings[0].seen_checksum
        )

    def latest(self) -> Beginning:
        return Beginning("latest", (tuple(self.log.state.ends[: self._partitions]),))

    @property
    def _partitions(self) -> int:
        return self.log.spec.partitions

    @property
    def _firsts(self) -> tuple[int, ...]:
        """The offsets at which an operator begins that has never worked."""
        return firsts_of(self.begins, self.log.state.starts[: self._partitions])

    def _done(self, standings: Sequence[Standing]) -> int:
        """Returns the number of the last commit that was taken in whole."""
        if standings:
            return standings[0].commit
        return -1 if self.begins is None else before_append_at(self.log, self._firsts)

    def _taken(self, output: LogState) -> tuple[int, ...]:
        """Returns the offsets before which tuples were taken in."""
        return tuple(s.input for s in output.standings) or self._firsts

    # ------------------------------------------------------------------ in a task

    def edges(self) -> ReplayPlaces:
        """Returns nothing to note: a replay can begin at every offset."""
        return ReplayPlaces()

    def again(self, stretch: Stretch, rows: int) -> Iterator[Piece]:
        taken = InputSlice(stretch.begin, stretch.end.ordinal, stretch.boundary, rows)
        return self.ahead(taken, stretch.partition, stretch.first, rows)

    def ahead(self, taken: InputSlice, partition: int, first: int, rows: int) -> Iterator[Piece]:
        end, boundary = taken.end, taken.until
        assert end is not None
        if first >= end:
            return
        log, definition = self.log, self.definition
        since = None if self.begins is None else self.begins.time(partition)
        is_timed = definition.keeps_time and boundary is not None
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
                until = first + begin + part.num_rows
                known = boundary
                if least is not None and boundary is not None and until < end:
                    known = min(boundary, int(least[until - first]))
                results = only_results(part)
                if since is not None:
                    results = results.filter(pc.greater_equal(results.column(log.spec.time).cast(pa.int64()), since))
                yield Piece((results if read is columns else results.drop_columns(log.spec.time),), until, known)
            first = behind


@dataclass(frozen=True, slots=True)
class WholeCommits:
    """A batch of one stream: the tuples of whole commits, because boundaries are known after whole commits."""

    last: AppendCommit
    slices: tuple[InputSlice, ...]
    takes_all: bool = True
    """True if no commit follows, as of the last refresh."""

    def complete_until(self, partition: int) -> int | None:
        """Returns the boundary of the last commit."""
        return self.last.boundaries[partition]

    def is_done(self, standings: Sequence[Standing]) -> bool:
        """Returns whether the steps have taken in all of the commits."""
        return all(s.input >= (one.end or 0) for s, one in zip(standings, self.slices, strict=True))

    def noted(self, standings: Sequence[Standing]) -> list[Standing]:
        """Returns the standings with the last commit: it is done when every partition has all of it."""
        is_whole, pairs = self.is_done(standings), zip(standings, self.slices, strict=True)
        if not is_whole and not any(s.input > one.begin.ordinal for s, one in pairs):
            raise StrandlineError(
                f"a batch would take in nothing of commit {self.last.seq} of the input, and neither would the next one",
                where=f"standings {[s.input for s in standings]}, ends {list(self.last.ends)}",
                todo="this is a defect of Strandline; please report it",
            )
        seq, checksum = self.last.seq, self.last.checksum
        return [replace(s, commit=seq if is_whole else s.commit, seen=seq, seen_checksum=checksum) for s in standings]

    def is_last(self, standings: Sequence[Standing]) -> bool:
        """Returns whether nothing follows: the last commit is done, and the stream is finished."""
        return self.last.finished and standings[0].commit == self.last.seq


@dataclass(frozen=True, slots=True)
class NoCommits(WholeCommits):
    """A batch of one stream that takes in nothing: its steps only save."""

    def noted(self, standings: Sequence[Standing]) -> list[Standing]:
        """Returns the standings, as far into the stream as before."""
        return list(standings)


def piece_rows(tuples: int, nbytes: float, rows: int) -> int:
    """Returns how many tuples make a piece if so many have these bytes: at most `rows`."""
    return max(1, min(rows, int(PIECE_BYTES_MAX * tuples / max(nbytes, 1))))


class _Later:
    """The least time in blocks that are not read yet."""

    def __init__(self, blocks: list[Block]) -> None:
        self._ends = np.array([b.end for b in blocks], np.int64)
        times = np.array([*(b.time_min for b in blocks), _NEVER], np.int64)
        self._least: Ints = np.minimum.accumulate(times[::-1])[::-1]

    def least(self, offset: int) -> int:
        """Returns the least time in the blocks that hold this offset or a later one."""
        return int(self._least[np.searchsorted(self._ends, offset, side="right")])


def _least_after(table: pa.Table, time: str, later: int) -> Ints:
    """Returns, for each number of tuples taken of the table, the least time of the rest; `later` is that behind it."""
    times = table.column(time).cast(pa.int64()).to_numpy()
    least: Ints = np.minimum.accumulate(np.append(times, later)[::-1])[::-1]
    return least
