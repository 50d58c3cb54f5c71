"""A partition-wide operator at work: tuples in, what the object of its class makes of them out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.control_columns import OFFSET
from strandline.operators.aside_tables import OneTableAside
from strandline.operators.operator import Extent, Footprints, Limits, OnError, Operator, Saved, StateImage
from strandline.operators.partition_wide.definition import PartitionWideDefinition
from strandline.operators.partition_wide.object_at_work import CallRaisedError, ObjectAtWork, raised
from strandline.operators.partition_wide.returned_table import ReturnedTable
from strandline.operators.partition_wide.state_rows import NO_STATE, SavedState, footprints, loaded

PROCESS_RAISED: Final = "process"
"""The reason of tuples over which `process` raised."""
_NEVER = 1 << 62


class PartitionWideOperator(Operator):
    """A definition with an object of its class. The object is one window, open from its first tuple on."""

    def __init__(self, definition: PartitionWideDefinition, on_error: OnError = "stop") -> None:
        self.definition = definition
        self.on_error = on_error
        self.aside = self._nothing_aside()
        """The tuples and windows that this step has set aside."""
        self.input_end = 0
        self.opened = 0
        self.must_save_all = False
        self._object = ObjectAtWork(definition.of)
        self._saved: SavedState | None = None
        """The state in the last footprints."""
        self._latest: int | None = None
        """The largest time of a tuple; None before the first."""
        self._promised: int | None = None
        """No tuple before this time follows, and no result."""

    def _nothing_aside(self) -> OneTableAside:
        d = self.definition
        return OneTableAside(d, d.of.name, (d.result_time,), d.result_time_type)

    @property
    def open_windows(self) -> int:
        """1 from the first tuple on."""
        return int(self._latest is not None)

    @property
    def rows_at_once(self) -> int:
        return self.definition.rows_max

    @property
    def due(self) -> int | None:
        """None if the class does something when time passes: only it knows when."""
        return None if self.definition.of.has_advance else _NEVER

    def begin(self) -> None:
        self.aside = self._nothing_aside()
        self.opened = 0
        self._saved = None

    # ------------------------------------------------------------------ tuples

    def feed(self, tuples: Sequence[pa.Table]) -> Iterator[list[pa.Array]]:
        """Takes in input tuples; yields the results that the object makes of them."""
        table = self.aside.one_table(tuples, self.on_error)
        for first in range(0, table.num_rows, self.rows_at_once):
            piece = table.slice(first, self.rows_at_once)
            self._see(piece)
            yield from self._taken_in(piece)
            self.input_end = _end(piece)

    def replay(self, tuples: Sequence[pa.Table]) -> None:
        self.repeat(tuples)

    def advance(self, boundary: int) -> list[pa.Array] | None:
        """Lets the object know that time has passed, if it cares and has seen a tuple; the results of that."""
        if self._promised is not None and boundary <= self._promised:
            return None
        columns = None
        if self.definition.of.has_advance and self.open_windows:
            value = self._object.advance(boundary, is_noted=self.on_error == "set_aside")
            columns = ReturnedTable(self.definition, "advance", value, f"boundary {boundary}").columns(self._promised)
        self._promised = boundary
        return columns

    def _see(self, piece: pa.Table) -> None:
        latest = pc.max(piece.column(self.definition.time[0]).cast(pa.int64())).as_py()
        if self._latest is None:
            self.opened = 1
        self._latest = latest if self._latest is None else max(self._latest, latest)

    # ------------------------------------------------------------------ calls of the object

    def _taken_in(self, piece: pa.Table) -> Iterator[list[pa.Array]]:
        """Yields the results of `process`; raises InputError if it returns what it must not.

        Tuples over which it raises are set aside and leave no trace; or InputError is raised about them, too.
        """
        is_noted, where = self.on_error == "set_aside", _offsets(piece)
        try:
            value = self._object.process(piece.select(self.definition.takes[0]), is_noted=is_noted)
        except CallRaisedError as call:
            if not is_noted:
                problem = call.__cause__
                assert isinstance(problem, Exception)
                raise raised(f"{self.definition.of.name}.process", problem, where, may_set_aside=True) from problem
            self._object.go_back()
            if piece.num_rows == 1:
                return self.aside.add_tuples(PROCESS_RAISED, piece)
            half = piece.num_rows // 2
            yield from self._taken_in(piece.slice(0, half))
            yield from self._taken_in(piece.slice(half))
            return
        if self.aside.is_ignoring:  # a recovery: it has passed before
            return
        columns = ReturnedTable(self.definition, "process", value, where).columns(self._promised)
        if columns is not None:
            yield columns

    # ------------------------------------------------------------------ the state, out and in

    def save(self, position: int, limits: Limits) -> Footprints:
        """Returns the whole state: there is no part of it that could be saved alone."""
        return self.save_all(position)

    def save_all(self, position: int) -> Footprints:
        """Returns footprints of the whole state, a row for every piece of a value."""
        self.must_save_all = False
        if self._latest is None:
            return self.save_nothing()
        return Footprints(footprints(self.definition, NO_STATE), self.windows(now=True))

    def save_nothing(self) -> Footprints:
        return Footprints(*(footprints(self.definition, NO_STATE) for _ in range(2)))

    def extent(self, position: int) -> Extent:
        """Returns where recovery would begin if the whole state were saved now."""
        return Extent(self.open_windows, self.input_end, position)

    def load(self, newest_first: Iterable[Saved]) -> None:
        """Replaces the state by the one that these footprints hold; the object is made when it is first called."""
        self._saved = loaded(self.definition, newest_first)
        self._latest = None if self._saved is None else self._saved.latest
        self._object = ObjectAtWork(self.definition.of, None if self._saved is None else self._saved.state)
        self.must_save_all = self._saved is not None and self._saved.version != self.definition.of.version

    def windows(self, *, now: bool = False) -> list[pa.Array]:
        """Returns the state in the columns of footprints: as it was saved last, or with `now` as it is."""
        saved = self._saved
        if now and self._latest is not None:
            saved = SavedState(self._object.state(), self.input_end, self.definition.of.version, self._latest)
        return footprints(self.definition, saved or NO_STATE)

    def image(self) -> StateImage:
        """Returns no arrays: the object stays where it is."""
        return StateImage({}, None)


def _end(piece: pa.Table) -> int:
    return int(piece.column(OFFSET)[-1].as_py()) + 1


def _offsets(piece: pa.Table) -> str:
    first, last = piece.column(OFFSET)[0].as_py(), _end(piece) - 1
    return f"input offset {first}" if first == last else f"input offsets {first} to {last}"
