"""Tuples as lines: columns for people, JSON for programs."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from strandline.cli.terminal import QUIET, has_width
from strandline.control_columns import OFFSET, PARTITION

_PLACES = (PARTITION, OFFSET)
_ROWS_AT_ONCE = 10_000
_WIDTH_MAX = 40
_NULL = "·"
_YEAR_1_US = -62_135_596_800_000_000
_YEAR_10000_US = 253_402_300_800_000_000


def json_lines(table: pa.Table) -> Iterator[str]:
    """Yields a JSON object a tuple. Times are ISO 8601, binary is base64, decimals are text, so that nothing is
    rounded."""
    names = table.column_names
    for start in range(0, len(table), _ROWS_AT_ONCE):
        part = table.slice(start, _ROWS_AT_ONCE)
        for values in zip(*(_plain_column(part.column(name)) for name in names), strict=True):
            yield json.dumps(dict(zip(names, values, strict=True)), ensure_ascii=False)


def write_json_lines(file: IO[str], table: pa.Table) -> None:
    """Writes a line a tuple, and flushes, so that readers of a pipe see them."""
    file.writelines(line + "\n" for line in json_lines(table))
    file.flush()


def _plain_column(column: pa.ChunkedArray) -> list[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return _times(column)
    values: list[Any] = column.to_pylist()
    if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind):
        return values
    return [_plain(value, kind) for value in values]


def _times(column: pa.ChunkedArray) -> list[Any]:
    """Returns a whole column in ISO 8601; years without four digits stay microseconds."""
    numbers = column.cast(pa.int64())
    texts = pc.strftime(column, format="%Y-%m-%dT%H:%M:%SZ" if column.type.tz else "%Y-%m-%dT%H:%M:%S")
    is_usual = pc.and_(pc.greater_equal(numbers, _YEAR_1_US), pc.less(numbers, _YEAR_10000_US))
    if pc.all(is_usual).as_py() is not False:
        return list(texts.to_pylist())
    return [t if ok else n for t, n, ok in zip(*(c.to_pylist() for c in (texts, numbers, is_usual)), strict=True)]


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Returns a value that JSON can hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dt.datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _plain(value[name], kind.field(name).type) for name in value}
    if isinstance(value, list) and pa.types.is_map(kind):
        pairs = [(_plain(key, kind.key_type), _plain(item, kind.item_type)) for key, item in value]
        return dict(pairs) if pa.types.is_string(kind.key_type) else [list(pair) for pair in pairs]
    if isinstance(value, list):
        return [_plain(item, kind.value_type) for item in value]
    return value


class RowPrinter:
    """Prints tuples in columns. The widths are those of the first tuples, so that the page does not jump.

    Columns stay in their order, as long as there is room for all; if not, those in `telling` come first.
    """

    def __init__(self, console: Console, telling: Sequence[str] = ()) -> None:
        self._console = console
        self._telling = telling
        self._names: list[str] = []
        self._widths: list[int] = []
        self.left_out: tuple[str, ...] = ()
        """Columns for which there is no room."""

    def print(self, table: pa.Table, style: str = "") -> None:
        """Prints the tuples of a table, below a heading if they are the first; flushes, also through a pipe."""
        for start in range(0, len(table), _ROWS_AT_ONCE):
            self._print(table.slice(start, _ROWS_AT_ONCE), style)
        self.flush()

    def _print(self, table: pa.Table, style: str) -> None:
        is_first = not self._names
        if is_first:
            self._choose(table)
        chosen = table.select(self._names)
        right = [_is_number(field.type) for field in chosen.schema]
        if is_first:
            more = ["…"] if self.left_out else []
            self._line([*map(_heading, chosen.schema), *more], [*right, False], QUIET)
        for row in zip(*text_columns(chosen), strict=True):
            self._line(row, right, style)

    def _choose(self, table: pa.Table) -> None:
        """Decides which columns are shown, and how wide."""
        texts = dict(zip(table.column_names, text_columns(table), strict=True))
        widths = {f.name: max(map(cell_len, (_heading(f), *texts[f.name]))) for f in table.schema}
        if has_width(self._console) and sum(width + 2 for width in widths.values()) - 2 > self._console.width:
            names = list(dict.fromkeys([*(name for name in self._telling if name in widths), *widths]))
            if all(name in _PLACES for name in names[: self._room([widths[name] for name in names])]):
                names.sort(key=lambda name: name in _PLACES)  # places alone say nothing
            widths = {name: widths[name] for name in names}
            self.left_out = tuple(names[self._room(list(widths.values())) :])
        self._names = [name for name in widths if name not in self.left_out]
        self._widths = [widths[name] for name in self._names]

    def _room(self, widths: Sequence[int]) -> int:
        """Returns how many of these columns, and a sign that there are more, fit; the first one does in any case."""
        ends = itertools.accumulate(width + 2 for width in widths)
        return max(1, sum(end + 1 <= self._console.width for end in ends))

    def say(self, text: str, style: str = QUIET) -> None:
        """Prints a line that is no tuple."""
        if self._console.is_terminal:
            self._console.print(Text(text, style=style), no_wrap=True, overflow="ellipsis", crop=True)
        else:
            self._console.file.write(text + "\n")

    def _line(self, texts: Sequence[str], right: Sequence[bool], style: str = "") -> None:
        cells = [_padded(*cell) for cell in zip(texts, [*self._widths, 1], right, strict=False)]
        self.say("  ".join(cells).rstrip(), style)

    def flush(self) -> None:
        """Shows what was printed, also through a pipe."""
        self._console.file.flush()


def _heading(field: pa.Field) -> str:
    """Returns the column's name, with the zone if it holds times in one."""
    has_zone = pa.types.is_timestamp(field.type) and field.type.tz is not None
    return str(field.name).removeprefix("_") + (" UTC" if has_zone else "")


def _padded(text: str, width: int, is_right: bool) -> str:
    space = " " * (width - cell_len(text))
    return space + text if is_right else text + space


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def text_columns(table: pa.Table) -> list[list[str]]:
    """Returns the columns of a table as texts for people."""
    return [_text_column(column) for column in table.columns]


def _text_column(column: pa.ChunkedArray) -> list[str]:
    if not pa.types.is_timestamp(column.type):
        return [_text(value) for value in _plain_column(column)]
    times = _times(column.cast(pa.timestamp("us")))
    return [t.replace("T", " ")[:-3] if isinstance(t, str) else _text(t) for t in times]


def _text(value: Any) -> str:
    if value is None:
        return _NULL
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = "".join(c if c.isprintable() else "␣" for c in text)
    return text if len(text) <= _WIDTH_MAX else text[: _WIDTH_MAX - 1] + "…"
