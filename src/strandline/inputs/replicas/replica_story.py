"""The changes of one partition that a reader of replicas is shown: the tuples of the replica that it reads, and what
follows from a change to another one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from strandline.control_columns import KIND, OFFSET, PARTITION
from strandline.inputs.replicas.replica_check import row_checksum
from strandline.inputs.replicas.replica_place import ResultPlace
from strandline.log.reading.tentative_results import CHANGES
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import END
from strandline.log.stream.log_state import LogState
from strandline.log.stream.spec import StreamSpec
from strandline.units import END_OF_TIME

RESULT = "_result"
"""The column that says how many stable results of the partition come before."""


@dataclass(frozen=True, slots=True)
class Heard:
    """The facts about the replica that is read, as of its last commit."""

    stable_from: int
    """Results before this offset were shown."""
    tentative_from: int
    """Tentative tuples before this offset are void."""
    boundary: int | None
    """Tentative tuples before this time are corrected."""
    is_settled: bool
    """True if nothing tentative counts in it."""

    @classmethod
    def of(cls, state: LogState, partition: int, stable_from: int) -> Heard:
        """Returns the facts about one partition."""
        forks = state.outage.forks if state.outage else ()
        first = forks[partition].first if forks else END
        return cls(stable_from, first, state.boundaries[partition], not forks)


class Story:
    """The changes that a reader is shown next, and its place behind them."""

    def __init__(self, spec: StreamSpec, partition: int, place: ResultPlace) -> None:
        self.partition = partition
        self.place = place
        self._spec = spec
        self._tables: list[pa.Table] = []

    def told(self) -> Iterator[pa.Table]:
        """Yields all of it as one table, or nothing."""
        if self._tables:
            yield pa.concat_tables(self._tables).combine_chunks()

    # ------------------------------------------------------------------ what is heard

    def change_over(self, *, goes_on: bool, boundary: int | None) -> None:
        """Changes to another replica: guesses stay if this one only adds to them, else they are void."""
        if self.place.t_max is None:
            return
        if goes_on:
            self.place = replace(self.place, floor=self.place.t_max)
        else:
            self._undo(boundary)

    def hear(self, table: pa.Table, heard: Heard) -> None:
        """Takes in the next tuples of the replica, footprints and all."""
        kinds, offsets = table.column(KIND).to_numpy(), table.column(OFFSET).to_numpy()
        times = table.column(self._spec.time).cast(pa.int64()).to_numpy()
        stable = (kinds == Kind.RESULT) & (offsets >= heard.stable_from)
        tentative = (kinds == Kind.TENTATIVE) & (offsets >= heard.tentative_from)
        if heard.boundary is not None:
            tentative &= times >= heard.boundary
        rows = _Rows(table, stable, tentative, times)
        at, controls = 0, np.flatnonzero((kinds == Kind.UNDO) | (kinds == Kind.REC_DONE))
        for control in controls.tolist():
            self._tuples(rows.between(at, control), heard)
            self._control(Kind(int(kinds[control])), heard.boundary)
            at = control + 1
        self._tuples(rows.between(at, len(table)), heard)

    def settle(self, heard: Heard) -> None:
        """Ends a look: if nothing is tentative in this replica, then nothing is, whatever another one had guessed."""
        if heard.is_settled and self.place.is_open:
            self._control(Kind.REC_DONE, heard.boundary)

    # ------------------------------------------------------------------ what is told

    def _tuples(self, rows: _Rows, heard: Heard) -> None:
        """Adds results and guesses. The first result corrects guesses of another replica, if they still count."""
        if self.place.floor is not None and rows.stable.any():
            first = int(rows.stable.argmax())
            self._show(rows.between(0, first))
            self._undo(heard.boundary)
            rows = rows.between(first, len(rows.table))
        self._show(rows)

    def _show(self, rows: _Rows) -> None:
        place, tentative = self.place, rows.tentative
        if place.floor is not None:
            tentative = tentative & (rows.times >= place.floor)
        shown = np.flatnonzero(rows.stable | tentative)
        if not len(shown):
            return
        names = list(self._spec.columns)
        table, is_stable = rows.table.select(names).take(pa.array(shown)), rows.stable[shown]
        before = place.results + np.cumsum(is_stable) - is_stable
        words = pa.array([CHANGES[Kind.TENTATIVE], CHANGES[Kind.RESULT]]).take(pa.array(is_stable.astype(np.int64)))
        self._tell(table, words, before)
        if tentative.any():
            latest = int(rows.times[tentative].max())
            t_max = latest if place.t_max is None else max(latest, place.t_max)
            place = replace(place, t_max=t_max, is_open=True)
        if is_stable.any():
            last = table.slice(int(np.flatnonzero(is_stable)[-1]), 1).to_pylist()[0]
            place = replace(place, results=place.results + int(is_stable.sum()), last=row_checksum(last))
        self.place = place

    def _control(self, kind: Kind, boundary: int | None) -> None:
        if self.place.t_max is not None:
            self._undo(boundary)
        if kind == Kind.REC_DONE and self.place.is_open:
            self._tell_control(kind, boundary)
            self.place = replace(self.place, is_open=False)

    def _undo(self, boundary: int | None) -> None:
        self._tell_control(Kind.UNDO, boundary)
        self.place = replace(self.place, t_max=None, floor=None)

    def _tell_control(self, kind: Kind, boundary: int | None) -> None:
        time = pa.array([0 if boundary is None or boundary == END_OF_TIME else boundary], pa.int64())
        arrow = self._spec.arrow
        columns = [time.cast(f.type) if f.name == self._spec.time else pa.nulls(1, f.type) for f in arrow]
        table = pa.Table.from_arrays(columns, schema=arrow)
        self._tell(table, pa.array([CHANGES[kind]]), np.array([self.place.results]))

    def _tell(self, table: pa.Table, words: pa.Array, before: NDArray[np.int64]) -> None:
        number = pa.repeat(pa.scalar(self.partition, pa.int32()), len(table))
        table = table.append_column(KIND, words).append_column(PARTITION, number)
        self._tables.append(table.append_column(RESULT, pa.array(before, pa.int64())))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Tuples of a block, and which of them are to be shown."""

    table: pa.Table
    stable: NDArray[np.bool_]
    tentative: NDArray[np.bool_]
    times: NDArray[np.int64]

    def between(self, first: int, end: int) -> _Rows:
        part = slice(first, end)
        return _Rows(self.table.slice(first, end - first), self.stable[part], self.tentative[part], self.times[part])
