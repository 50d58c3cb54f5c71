"""The operator in plain Python: what the kernels compute, said as simply as possible.

Rows, results and footprints are dictionaries. Nothing here is fast; a property test holds `Operator` against it, bit by
bit, so floating-point operations come in the same order there and here.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from strandline.errors import AggregateOverflowError
from strandline.operators.aggregate.aggregates import Accumulator
from strandline.operators.aggregate.definition import END, OPEN, OPENED, ROWS, START, AggregateDefinition
from strandline.operators.expressions.expressions import Formula
from strandline.operators.operator import TAKEN_IN, Extent, Limits, OnError
from tests.specification.plain_aggregates import (
    Row,
    empty,
    is_mean_overflowed,
    is_sum_overflowed,
    merge,
    results_of,
    saved,
    take,
)
from tests.specification.plain_saving import saved_as_asked
from tests.specification.plain_slow_windows import PlainSlowWindows

_US = dt.timedelta(microseconds=1)


@dataclass(eq=False)
class _Window:
    """An open window."""

    key: tuple[Any, ...]
    start: int
    end: int
    """The offset of its last tuple (count; known when it closes), or the time at which it ends."""
    opened: int
    states: list[Row]
    rows: int = 0
    input_end: int | None = None
    """t: its last footprint holds the tuples before this input offset; None if it has none."""
    output: int = -1
    """Output offset of its last footprint."""


class PlainOperator:
    """A definition with its open windows."""

    def __init__(
        self, definition: AggregateDefinition, on_error: OnError = "stop", schema: pa.Schema | None = None
    ) -> None:
        self.definition = definition
        self._schema = schema
        """The input's, if the definition has a shape or aggregates have conditions."""
        self.on_error = on_error
        self.input_end = 0
        self.aside: list[Row] = []
        """Windows that closed without a result, because a sum does not fit its 64 bits, or 38 digits."""
        self._windows: dict[tuple[Any, ...], list[_Window]] = {}
        self._fresh: list[_Window] = []
        """Windows opened since the last footprints, and sessions joined since then, in that order."""
        self._slow = PlainSlowWindows()

    # ------------------------------------------------------------------ tuples

    def feed(self, rows: Iterable[Row]) -> list[Row]:
        """Takes in input tuples; the results of the count windows they complete."""
        found = []
        for given in rows:
            self.input_end = given["_offset"] + 1
            row = self._shaped(given)
            if row is None:
                continue
            true = self._conditions(row)
            if true is None:
                continue
            for window in self._windows_of(row):
                window.rows += 1
                for a, state in zip(self.definition.accumulators, window.states, strict=True):
                    if a.where is None or a.where in true:
                        take(a, state, row[a.column] if a.column is not None else None, row["_offset"])
                if self.on_error == "stop" and self._has(window, is_sum_overflowed):
                    raise AggregateOverflowError("a sum does not fit any more")
                if self.definition.window.kind == "count" and window.rows == self.definition.window.size:
                    window.end = row["_offset"]
                    found += self._close(window)
        return found

    def _conditions(self, row: Row) -> set[Formula] | None:
        """Those that are true for the tuple; None if one of them cannot be computed, so that it is set aside."""
        if not self.definition.conditions:
            return set()
        assert self._schema is not None
        one = pa.Table.from_pylist([row], schema=self.definition.shape.schema_over(self._schema))
        try:
            return {c for c in self.definition.conditions if c.over(one).to_pylist()[0]}
        except pa.ArrowException:
            if self.on_error == "stop":
                raise
            return None

    def _shaped(self, row: Row) -> Row | None:
        """What the definition's shape makes of the tuple, all by itself; None if nothing is left of it."""
        if not self.definition.shape:
            return row
        assert self._schema is not None
        try:
            left = self.definition.shape.over(pa.Table.from_pylist([row], schema=self._schema)).to_pylist()
        except pa.ArrowException:
            if self.on_error == "stop":
                raise
            return None
        return {**left[0], "_offset": row["_offset"]} if left else None

    def advance(self, boundary: int) -> list[Row]:
        """Closes the windows that are over at this time: their results, ordered by end, then by opening."""
        due = [w for w in self._open() if self.definition.window.has_times and self._is_over(w, boundary)]
        return [row for w in sorted(due, key=lambda w: (w.end, w.opened, w.start)) for row in self._close(w)]

    def _windows_of(self, row: Row) -> list[_Window]:
        """The windows that the tuple belongs to, opened if they were not."""
        window, offset = self.definition.window, row["_offset"]
        key = tuple(row[column] for column, _ in self.definition.key)
        mine = self._windows.setdefault(key, [])
        if window.kind == "count":
            if not mine or mine[-1].rows == window.advance:
                self._add(key, offset, -1, offset)
            return list(mine)
        time = _number(row[self.definition.time[0]])
        if window.kind == "time":
            first, last = (time - window.size) // window.advance + 1, time // window.advance
            for start in range(first * window.advance, last * window.advance + 1, window.advance):
                if not any(w.start == start for w in mine):
                    self._add(key, start, start + window.size, offset)
            return [w for w in mine if w.start <= time < w.start + window.size]
        near = [w for w in mine if self._are_near(time + window.size, w.start) and self._are_near(w.end, time)]
        session = self._join(near) if near else self._add(key, time, time + window.size, offset)
        session.start, session.end = min(session.start, time), max(session.end, time + window.size)
        return [session]

    def _are_near(self, end: int, start: int) -> bool:
        """Whether what ends here, the gap included, is in one session with what begins there."""
        return end >= start if self.definition.window.includes_gap else end > start

    def _is_over(self, window: _Window, boundary: int) -> bool:
        """Whether nothing that belongs to the window can follow, if nothing before the boundary does."""
        return window.end < boundary if self.definition.window.includes_gap else window.end <= boundary

    def _add(self, key: tuple[Any, ...], start: int, end: int, opened: int) -> _Window:
        window = _Window(key, start, end, opened, [empty(a) for a in self.definition.accumulators])
        self._windows[key].append(window)
        self._fresh.append(window)
        return window

    def _join(self, near: Sequence[_Window]) -> _Window:
        """The session that a tuple continues; if it is near to two of them, the later one goes into the earlier one."""
        first, *others = sorted(near, key=lambda w: w.opened)
        for other in others:
            for a, state, more in zip(self.definition.accumulators, first.states, other.states, strict=True):
                merge(a, state, more)
            first.rows += other.rows
            first.start = min(first.start, other.start)
            first.end = max(first.end, other.end)
            self._windows[first.key].remove(other)
            # What was saved of the two cannot be replayed into one: the joined session is saved anew.
            if first.input_end is not None:
                first.input_end = None
                self._fresh.append(first)
        return first

    def _close(self, window: _Window) -> list[Row]:
        """The result of the window, if it has one."""
        self._windows[window.key].remove(window)
        if self._has(window, is_sum_overflowed) or self._has(window, is_mean_overflowed):
            if self.on_error == "stop":
                raise AggregateOverflowError("a mean does not fit")
            self.aside.append({**self._key_and_times(window, window.end), ROWS: window.rows, OPENED: window.opened})
            return []
        results: Row = {}
        for a, state in zip(self.definition.accumulators, window.states, strict=True):
            results |= {
                name: value for (name, _), value in zip(a.results, results_of(a, state, window.rows), strict=True)
            }
        return [{**self._key_and_times(window, window.end), **results}]

    def _has(self, window: _Window, what: Callable[[Accumulator, Row], bool]) -> bool:
        return any(what(a, state) for a, state in zip(self.definition.accumulators, window.states, strict=True))

    # ------------------------------------------------------------------ footprints

    def save(self, position: int, limits: Limits) -> tuple[list[Row], list[Row]]:
        """Returns footprints of the windows that opened and stay open, then of the oldest ones, as the limits ask."""
        still_open = [w for w in self._fresh if w in self._windows[w.key]]
        every = sorted(self._open(), key=lambda w: (w.opened, w.start))
        self._fresh = []
        return saved_as_asked(
            still_open, every, self._slow, self._oldest, self._footprint, position, self.input_end, limits
        )

    def save_all(self, position: int) -> tuple[list[Row], list[Row]]:
        """A footprint of every window: an instant checkpoint."""
        every = sorted(self._open(), key=lambda w: (w.opened, w.start))
        self._fresh = []
        self._slow = PlainSlowWindows()
        return [], [self._footprint(w, position + i) for i, w in enumerate(every)]

    def extent(self, position: int) -> Extent:
        """Where recovery would begin if the output ended at this offset."""
        oldest = self._oldest()
        if oldest is None or oldest.input_end is None:
            return Extent(len(self._open()), self.input_end, position)
        return Extent(len(self._open()), oldest.input_end, oldest.output)

    def _open(self) -> list[_Window]:
        return [w for windows in self._windows.values() for w in windows]

    def _oldest(self) -> _Window | None:
        return min((w for w in self._open() if w.input_end is not None), key=lambda w: w.output, default=None)

    def _footprint(self, window: _Window, position: int) -> Row:
        window.input_end, window.output = self.input_end, position
        end = window.end if self.definition.window.has_times else self.input_end - 1
        control = {TAKEN_IN: self.input_end, OPEN: len(self._open()), ROWS: window.rows, OPENED: window.opened}
        parts = {
            f"_{a.name}_{part}": saved(a, part, kind, state)
            for a, state in zip(self.definition.accumulators, window.states, strict=True)
            for part, kind in a.parts
        }
        return {
            **self._key_and_times(window, end),
            **{name: None for a in self.definition.accumulators for name, _ in a.results},
            **control,
            **parts,
        }

    def _key_and_times(self, window: _Window, end: int) -> Row:
        key = {column: value for (column, _), value in zip(self.definition.key, window.key, strict=True)}
        return {**key, START: self._time(window.start), END: self._time(end)}

    def _time(self, time: int) -> Any:
        if self.definition.time_type == "long":
            return time
        zone = dt.UTC if self.definition.time_type == "timestamp" else None
        return dt.datetime(1970, 1, 1, tzinfo=zone) + time * _US


def _number(time: Any) -> int:
    """A time as whole numbers: microseconds since 1970 if it is a timestamp."""
    if isinstance(time, dt.datetime):
        return (time - dt.datetime(1970, 1, 1, tzinfo=time.tzinfo)) // _US
    return int(time)
