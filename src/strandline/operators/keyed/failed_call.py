"""A call of a user's function that raised, or returned what it must not: what it was, where, and with which values."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from strandline.errors import InputError
from strandline.operators.functions.function_identity import place_of
from strandline.operators.kernels.arrow_words import BYTES, FLOATS
from strandline.operators.kernels.kernel_arrays import Int64s
from strandline.operators.keyed.definition import KeyedDefinition
from strandline.operators.keyed.keyed_columns import KeyedColumns
from strandline.operators.keyed.keyed_function import UserFunction
from strandline.operators.keyed.record_layout import (
    CLOSE,
    EXPIRING,
    NULL,
    RESULTS,
    RETURNED,
    STATE_BEGIN,
    Check,
    Sheet,
    WordLayout,
)
from strandline.operators.open_windows.record import KEY, KEY_AT, ROWS


@dataclass(frozen=True)
class FailedCall:
    """The call at hand of a loop."""

    definition: KeyedDefinition
    columns: KeyedColumns
    sheet: Sheet
    problem: Exception | None

    @property
    def _function(self) -> UserFunction:
        function = self.definition.function
        if not self.sheet.at[EXPIRING]:
            return function.main
        assert function.on_expire is not None
        return function.on_expire

    def error(self, record: Int64s, row: Any, offset: int | None) -> InputError:
        """Returns what is raised about it; the record is the one at hand, after the call."""
        name = self._function.name
        if self.problem is not None:
            what = f"{name}: {type(self.problem).__name__}: {self.problem}"
        else:
            what = f"{name}: {self._reason(record)}"
        key = self.columns.key_text(int(record[0, KEY]), int(record[0, KEY_AT]))
        place = "at its expiry" if offset is None else f"input offset {offset}"
        return InputError(
            what,
            where=f"{self._line(record, row)}; key {key}, {place}",
            todo='correct the function, or start(…, on_error="set_aside"): the tuple goes to the side log then; '
            "the stream stays as it was",
        )

    def _reason(self, record: Int64s) -> str:
        """Returns what a call that did not raise has done wrong."""
        d, at = self.definition, self.sheet.at
        returned, emit = int(at[RETURNED]), d.function.emit
        if returned < 0 or returned >= 2 * CLOSE or returned & (CLOSE - 1) > emit:
            return f"it returned {returned}: not 0, sl.EMIT, sl.CLOSE or their sum" + (
                f", with up to {emit} times sl.EMIT" if emit > 1 else ""
            )
        found = _unfit(d.program.state, d.program.state.checks, record, "state")
        first = int(at[RESULTS])
        for i in range(first, first + (returned & (CLOSE - 1))):
            found = found or _unfit(d.program.results, d.program.results.checks, self.sheet.results[i : i + 1], "out")
        return found or "it failed"

    def _line(self, record: Int64s, row: Any) -> str:
        """Returns the line of the user's function, found by calling it in plain Python."""
        d, function = self.definition, self._function
        assert function.function is not None
        before = record.copy()
        before[0, STATE_BEGIN:] = self.sheet.before
        kinds = dict(d.function.state)
        values = {name: self.columns.value(before, d.program.state, name) for name in kinds}
        state = PlainRecord(kinds, values, is_new=bool(record[0, ROWS] == 0))
        results = [PlainRecord(dict(d.function.output)) for _ in range(d.function.emit)]
        out = results[0] if d.function.emit == 1 else results
        if row is None:
            return failing_line(function.function, (state, out))
        return failing_line(function.function, (state, self._row(row), out))

    def _row(self, row: Any) -> PlainRecord:
        d, kinds = self.definition, dict(self.definition.types)
        values: dict[str, Any] = {}
        for name in d.program.reads:
            is_null = name in d.program.asks and bool(row[NULL + name])
            values[name] = None if is_null else row[name].item()
            if kinds[name] in BYTES and not is_null:
                text = self.columns.text(np.array([row[name]]))
                values[name] = text.decode() if kinds[name] == "string" else text
        return PlainRecord(kinds, values)


def _unfit(layout: WordLayout, checks: tuple[Check, ...], words: Int64s, owner: str) -> str:
    for word, least, greatest in checks:
        value = int(words[0, word])
        if word >= layout.begin and not least <= value <= greatest:
            name, kind = layout.columns[word - layout.begin]
            return f"{owner}.{name} is {value}, which does not fit {kind}"
    return ""


def nothing_of(kind: str) -> Any:
    """Returns what a column of this type is before it is set, and under a null."""
    if kind in BYTES:
        return "" if kind == "string" else b""
    return False if kind == "boolean" else 0.0 if kind in FLOATS else 0


class PlainRecord:
    """State, a row or a result: columns as attributes, and which of them are null."""

    _kinds: Mapping[str, str]
    _nulls: set[str]
    is_new: bool

    def __init__(self, kinds: Mapping[str, str], values: Mapping[str, Any] | None = None, is_new: bool = False) -> None:
        found = values or {}
        kept = {n: nothing_of(kind) if found.get(n) is None else found[n] for n, kind in kinds.items()}
        self.__dict__.update(kept)
        self.__dict__["_kinds"] = kinds
        self.__dict__["_nulls"] = {n for n in found if found[n] is None}
        self.__dict__["is_new"] = is_new

    def __setattr__(self, name: str, value: Any) -> None:
        kind = self._kinds[name]
        whole = kind not in (*BYTES, *FLOATS, "boolean")
        self.__dict__[name] = int(value) if whole else float(value) if kind in FLOATS else value
        self._nulls.discard(name)

    def is_null(self, name: str) -> bool:
        """Returns whether a column is null."""
        return name in self._nulls

    def set_null(self, name: str) -> None:
        """Makes a column null."""
        setattr(self, name, nothing_of(self._kinds[name]))
        self._nulls.add(name)

    @property
    def values(self) -> dict[str, Any]:
        """The columns, None where they are null."""
        return {n: None if n in self._nulls else self.__dict__[n] for n in self._kinds}


def failing_line(function: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    """Returns the file and line at which a call raises; those of the function if it does not here."""
    try:
        function(*arguments)
    except Exception as problem:
        frames = traceback.extract_tb(problem.__traceback__)
        own = [frame for frame in frames if frame.filename == function.__code__.co_filename]
        if own:
            return f"{own[-1].filename}, line {own[-1].lineno}"
    return place_of(function)
