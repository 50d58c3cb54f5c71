"""A call of a user's function that raised, or returned what it must not: what it was, where, and with which values."""

from __future__ import annotations

from typing import Any

import numpy as np

from strandline.errors import InputError
from strandline.operators.kernels.arrow_words import BYTES
from strandline.operators.kernels.kernel_arrays import Int64s
from strandline.operators.keyed.definition import KeyedDefinition
from strandline.operators.keyed.keyed_columns import KeyedColumns
from strandline.operators.keyed.keyed_function import UserFunction
from strandline.operators.keyed.plain_call import PlainRecord, failing_line
from strandline.operators.keyed.record_layout import NULL, STATE_BEGIN, Check, WordLayout
from strandline.operators.keyed.returned import CLOSE
from strandline.operators.keyed.sheet import EXPIRING, RESULTS, RETURNED, Sheet
from strandline.operators.open_windows.record import KEY, KEY_AT, ROWS


class FailedCall:
    """The call at hand of a loop."""

    def __init__(
        self, definition: KeyedDefinition, columns: KeyedColumns, sheet: Sheet, problem: Exception | None
    ) -> None:
        self._definition = definition
        self._columns = columns
        self._sheet = sheet
        self._problem = problem

    @property
    def _function(self) -> UserFunction:
        function = self._definition.function
        if not self._sheet.at[EXPIRING]:
            return function.main
        assert function.on_expire is not None
        return function.on_expire

    def error(self, record: Int64s, row: Any, offset: int | None) -> InputError:
        """Returns what is raised about it; the record is the one at hand, after the call."""
        name = self._function.name
        if self._problem is not None:
            what = f"{name}: {type(self._problem).__name__}: {self._problem}"
        else:
            what = f"{name}: {self._reason(record)}"
        key = self._columns.key_text(int(record[0, KEY]), int(record[0, KEY_AT]))
        place = "at its expiry" if offset is None else f"input offset {offset}"
        return InputError(
            what,
            where=f"{self._line(record, row)}; key {key}, {place}",
            todo='mend the function, or start(…, on_error="set_aside"): the tuple goes to the side log then; '
            "the stream stays as it was",
        )

    def _reason(self, record: Int64s) -> str:
        """Returns what a call that did not raise has done wrong."""
        d, at = self._definition, self._sheet.at
        returned, emit = int(at[RETURNED]), d.function.emit
        if returned < 0 or returned >= 2 * CLOSE or returned & (CLOSE - 1) > emit:
            return f"it returned {returned}: not 0, sl.EMIT, sl.CLOSE or their sum" + (
                f", with up to {emit} times sl.EMIT" if emit > 1 else ""
            )
        found = _unfit(d.program.state, d.program.state.checks, record, "state")
        first = int(at[RESULTS])
        for i in range(first, first + (returned & (CLOSE - 1))):
            found = found or _unfit(d.program.results, d.program.results.checks, self._sheet.results[i : i + 1], "out")
        return found or "it failed"

    def _line(self, record: Int64s, row: Any) -> str:
        """Returns the line of the user's function, found by calling it in plain Python."""
        d, function = self._definition, self._function
        assert function.function is not None
        before = record.copy()
        before[0, STATE_BEGIN:] = self._sheet.before
        kinds = dict(d.function.state)
        values = {name: self._columns.value(before, d.program.state, name) for name in kinds}
        state = PlainRecord(kinds, values, is_new=bool(record[0, ROWS] == 0))
        results = [PlainRecord(dict(d.function.output)) for _ in range(d.function.emit)]
        out = results[0] if d.function.emit == 1 else results
        if row is None:
            return failing_line(function.function, (state, out))
        return failing_line(function.function, (state, self._row(row), out))

    def _row(self, row: Any) -> PlainRecord:
        d, kinds = self._definition, dict(self._definition.types)
        values: dict[str, Any] = {}
        for name in d.program.reads:
            is_null = name in d.program.asks and bool(row[NULL + name])
            values[name] = None if is_null else row[name].item()
            if kinds[name] in BYTES and not is_null:
                text = self._columns.text(np.array([row[name]]))
                values[name] = text.decode() if kinds[name] == "string" else text
        return PlainRecord(kinds, values)


def _unfit(layout: WordLayout, checks: tuple[Check, ...], words: Int64s, owner: str) -> str:
    for word, least, greatest in checks:
        value = int(words[0, word])
        if word >= layout.begin and not least <= value <= greatest:
            name, kind = layout.columns[word - layout.begin]
            return f"{owner}.{name} is {value}, which does not fit {kind}"
    return ""
