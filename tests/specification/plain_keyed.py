"""A keyed operator in plain Python: what the compiled one does, said as simply as possible.

The user's function is called as it is. A key has one state. With `on_expire`, keys whose time is over at the time of a
tuple, or of a boundary, expire before it, in the order of their ends: where the input is cut cannot be seen then.
Without it nobody sees in which order keys expire, so a key does when its own next tuple comes too late, or a boundary.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from strandline.arrow_types import decimal_of
from strandline.operators.keyed.definition import OPEN, OPENED, RESULT_TIME, ROWS, STATE, VERSION, KeyedDefinition
from strandline.operators.keyed.failed_call import PlainRecord
from strandline.operators.keyed.record_layout import CLOSE
from strandline.operators.operator import TAKEN_IN, Extent, Limits
from tests.specification.plain_saving import saved_as_asked
from tests.specification.plain_slow_windows import PlainSlowWindows

Row = dict[str, Any]
_US = dt.timedelta(microseconds=1)
_EPOCH = dt.datetime(1970, 1, 1)


@dataclass(eq=False)
class _Key:
    """The state of a key."""

    key: tuple[Any, ...]
    opened: int
    end: int
    values: Row
    rows: int = 0
    input_end: int | None = None
    """t: its last footprint holds the tuples before this input offset; None if it has none."""
    output: int = -1
    """Output offset of its last footprint."""


class PlainKeyed:
    """A definition with the states of its keys."""

    def __init__(self, definition: KeyedDefinition) -> None:
        self.definition = definition
        self.input_end = 0
        self.aside: list[int | None] = []
        """Offsets of the tuples for which the function raised; None for a key that expired."""
        self._keys: dict[tuple[Any, ...], _Key] = {}
        self._fresh: list[_Key] = []
        self._slow = PlainSlowWindows()

    # ------------------------------------------------------------------ tuples

    def feed(self, rows: Iterable[Row]) -> list[Row]:
        """Takes in tuples; the results that come of them."""
        d, found = self.definition, []
        is_clocked = d.function.on_expire is not None
        for row in rows:
            self.input_end = row["_offset"] + 1
            time = _number(row[d.time[0]], d.time[1])
            if is_clocked:
                found += self.advance(time)
            name = tuple(row[column] for column, _ in d.key)
            key = self._keys.get(name)
            if key is not None and d.has_times and not is_clocked and key.end <= time:
                del self._keys[name]
                key = None
            found += self._take(key or _Key(name, row["_offset"], time + d.reach, {}), row, time)
        return found

    def _take(self, key: _Key, row: Row, time: int) -> list[Row]:
        d = self.definition
        values = {c: None if row[c] is None else _plain(row[c], kind) for c, kind in d.types}
        called = self._call(d.function.main.function, key, PlainRecord(dict(d.types), values))
        if called is None:
            self.aside.append(row["_offset"])
            return []
        returned, results = called
        if key.rows == 0:
            self._keys[key.key] = key
            self._fresh.append(key)
        key.rows += 1
        key.end = max(key.end, time + d.reach)
        if returned >= CLOSE:
            del self._keys[key.key]
        return [self._result(key, time, one) for one in results]

    def advance(self, boundary: int) -> list[Row]:
        """Closes the keys whose time ends at this one or before."""
        if not self.definition.has_times:
            return []
        due = [key for key in self._keys.values() if key.end <= boundary]
        found = []
        for key in sorted(due, key=lambda k: (k.end, k.opened)):
            del self._keys[key.key]
            if self.definition.function.on_expire is not None:
                called = self._call(self.definition.function.on_expire.function, key)
                if called is None:
                    self.aside.append(None)
                    continue
                found += [self._result(key, key.end, one) for one in called[1]]
        return found

    def _call(self, function: Any, key: _Key, *row: PlainRecord) -> tuple[int, list[Row]] | None:
        """What a call returns, and its results; None if it raises, which leaves the state as it was."""
        d = self.definition
        state = PlainRecord(dict(d.function.state), key.values, is_new=key.rows == 0)
        places = [PlainRecord(dict(d.function.output)) for _ in range(d.function.emit)]
        try:
            returned = int(function(state, *row, places[0] if d.function.emit == 1 else places))
        except Exception:
            return None
        key.values = state.values
        return returned, [place.values for place in places[: returned & (CLOSE - 1)]]

    def _result(self, key: _Key, time: int, values: Row) -> Row:
        output = {c: _shown(values[c], kind) for c, kind in self.definition.function.output}
        return {**self._key_and_time(key, time), **output}

    # ------------------------------------------------------------------ footprints

    def save(self, position: int, limits: Limits) -> tuple[list[Row], list[Row]]:
        """Returns footprints of the keys that opened and stay open, then of the oldest ones, as the limits ask."""
        still_open = [key for key in self._fresh if self._keys.get(key.key) is key]
        every = sorted(self._keys.values(), key=lambda key: key.opened)
        self._fresh = []
        return saved_as_asked(
            still_open, every, self._slow, self._oldest, self._footprint, position, self.input_end, limits
        )

    def save_all(self, position: int) -> tuple[list[Row], list[Row]]:
        """A footprint of every key."""
        self._fresh = []
        self._slow = PlainSlowWindows()
        every = sorted(self._keys.values(), key=lambda key: key.opened)
        return [], [self._footprint(key, position + i) for i, key in enumerate(every)]

    def extent(self, position: int) -> Extent:
        """Where recovery would begin if the output ended at this offset."""
        oldest = self._oldest()
        if oldest is None or oldest.input_end is None:
            return Extent(len(self._keys), self.input_end, position)
        return Extent(len(self._keys), oldest.input_end, oldest.output)

    def windows(self) -> list[Row]:
        """Every open key as a footprint that is made now would have it."""
        return [self._row(key, self.input_end) for key in self._keys.values()]

    def _oldest(self) -> _Key | None:
        return min((k for k in self._keys.values() if k.input_end is not None), key=lambda k: k.output, default=None)

    def _footprint(self, key: _Key, position: int) -> Row:
        key.input_end, key.output = self.input_end, position
        return self._row(key, self.input_end)

    def _row(self, key: _Key, input_end: int) -> Row:
        d = self.definition
        control = {TAKEN_IN: input_end, OPEN: len(self._keys), ROWS: key.rows, OPENED: key.opened}
        state = {STATE + c: _shown(key.values[c], kind) for c, kind in d.function.state}
        nothing = dict.fromkeys((c for c, _ in d.function.output), None)
        time = self._key_and_time(key, key.end - d.reach)
        return {**time, **nothing, **control, VERSION: d.function.version, **state}

    def _key_and_time(self, key: _Key, time: int) -> Row:
        names = [column for column, _ in self.definition.key]
        return {**dict(zip(names, key.key, strict=True)), RESULT_TIME: _shown(time, self.definition.time_type)}


def _number(value: Any, kind: str) -> int:
    """A time as a whole number."""
    return int(_plain(value, kind))


def _plain(value: Any, kind: str) -> Any:
    """A value as a function has it: times and dates as whole numbers, decimals without their point."""
    if decimal := decimal_of(kind):
        return int(value.scaleb(decimal[1]))
    if isinstance(value, dt.datetime):
        return (value.replace(tzinfo=None) - _EPOCH) // _US
    return (value - _EPOCH.date()).days if isinstance(value, dt.date) else value


def _shown(value: Any, kind: str) -> Any:
    """What `_plain` took apart."""
    if value is None:
        return None
    if decimal := decimal_of(kind):
        return Decimal(value).scaleb(-decimal[1])
    if kind.startswith("timestamp"):
        return (_EPOCH + value * _US).replace(tzinfo=dt.UTC if kind == "timestamp" else None)
    return _EPOCH.date() + dt.timedelta(days=value) if kind == "date" else value
