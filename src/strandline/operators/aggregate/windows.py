"""Windows: which tuples of a key belong together, and when they are complete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from strandline.card import card, spans
from strandline.errors import OptionError
from strandline.operator_texts import window_text
from strandline.units import Duration, duration_us, has_unit
from strandline.wording import exact_duration

WindowKind = Literal["count", "time", "session"]
OVERLAP_MAX = 10_000
_SIZE_MAX = 1 << 60


class WindowReach(NamedTuple):
    """How long windows are, and how far apart they begin, as kernels take it."""

    size: int
    """Of sessions: their tuples follow each other within less than that."""
    advance: int


@dataclass(frozen=True, slots=True)
class Window:
    """Windows of one kind: `size` long (the gap of a session), a new one every `advance`."""

    kind: WindowKind
    size: int
    advance: int
    includes_gap: bool = False
    """Sessions: whether tuples exactly a gap apart are in one. Streams that do not say so go on without."""
    has_unit: bool = field(default=True, compare=False)
    """True if its lengths were given with one: over timestamps a plain number says nothing."""

    def __repr__(self) -> str:
        """Returns the call that makes it."""
        if self.kind == "count":
            size, advance = str(self.size), str(self.advance)
        else:
            size, advance = (f'"{exact_duration(us)}"' for us in (self.size, self.advance))
        return f"{self.kind}_window({size}{'' if self.advance == self.size else f', advance={advance}'})"

    def text(self, *, is_timestamp: bool) -> str:
        """Returns the windows in words, as `inspect` shows them."""
        return window_text(self.to_json(), is_timestamp=is_timestamp)

    def picture(self) -> str:
        """Returns the first windows of a key, as a notebook shows them."""
        shown = 3 if self.overlap == 1 else min(5, self.overlap + 1)
        length = self.size + (shown - 1) * self.advance
        begins = [i * self.advance / length for i in range(shown)]
        gap = 0.25 * self.size / length if self.kind == "session" else 0.0
        return spans([(begin, begin + self.size / length - gap) for begin in begins])

    def _repr_html_(self) -> str:
        return card(repr(self), {"windows of a tuple": self.overlap if self.overlap > 1 else None}, self.picture())

    @property
    def has_times(self) -> bool:
        """True if windows begin and end at times (otherwise at offsets)."""
        return self.kind != "count"

    @property
    def overlap(self) -> int:
        """In how many windows of its key a tuple lies at most."""
        return -(-self.size // max(1, self.advance))

    @property
    def reach(self) -> WindowReach:
        """Size and advance as kernels take them."""
        return WindowReach(self.size + self.overreach, self.advance)

    @property
    def overreach(self) -> int:
        """By how much the end that kernels keep lies behind the window_end that is shown."""
        return int(self.includes_gap)

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON for stream.json."""
        if self.kind == "session":
            return {"kind": self.kind, "gap": self.size, **({"includes_gap": True} if self.includes_gap else {})}
        return {"kind": self.kind, "size": self.size, "advance": self.advance}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Window:
        """Returns what `to_json` wrote."""
        if body["kind"] == "session":
            return cls("session", body["gap"], body["gap"], body.get("includes_gap", False))
        return cls(body["kind"], body["size"], body["advance"])


def count_window(size: int, advance: int | None = None) -> Window:
    """Returns windows of `size` tuples of a key, a new one every `advance` tuples (default: when the last is full).

    Of a side of a join, `count_window(0)` keeps no tuple.

    >>> count_window(10).overlap, count_window(10, advance=3).overlap
    (1, 4)
    """
    if size == 0 and not isinstance(size, bool) and advance is None:
        return Window("count", 0, 0)
    for name, value in (("size", size), ("advance", size if advance is None else advance)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise OptionError(f"count_window: {name}={value!r} is not a number of tuples", todo="use 1 or more")
    return _window("count", size, size if advance is None else advance)


def time_window(size: Duration, advance: Duration | None = None) -> Window:
    """Returns windows of `size` time, a new one every `advance` (default: one after the other), aligned to 1970.

    >>> time_window("1 hour", advance="5 min").overlap
    12
    """
    size_us = _positive(size, "time_window: size")
    advance_us = size_us if advance is None else _positive(advance, "time_window: advance")
    with_unit = has_unit(size) and has_unit(advance)
    return replace(_window("time", size_us, advance_us, with_unit), has_unit=with_unit)


def session_window(gap: Duration) -> Window:
    """Returns windows of tuples of a key that follow each other within `gap`; exactly `gap` counts, as in Spark.

    >>> session_window("30 min").size
    1800000000
    """
    gap_us = _positive(gap, "session_window: gap")
    return Window("session", gap_us, gap_us, includes_gap=True, has_unit=has_unit(gap))


def _window(kind: WindowKind, size: int, advance: int, with_unit: bool = True) -> Window:
    if advance > size:
        longer, shorter = (str(n) if kind == "count" or not with_unit else exact_duration(n) for n in (advance, size))
        raise OptionError(
            f"{kind}_window: advance={longer} is larger than size={shorter}: the tuples in between would be in no "
            "window",
            todo="use an advance of at most the size",
        )
    window = Window(kind, size, advance)
    if window.overlap > OVERLAP_MAX:
        raise OptionError(
            f"{kind}_window: every tuple would be in {window.overlap} windows",
            todo=f"use a larger advance (at most {OVERLAP_MAX} windows overlap)",
        )
    return window


def _positive(value: Duration, option: str) -> int:
    amount = duration_us(value, option)
    if not 1 <= amount <= _SIZE_MAX:
        todo = "use more than zero" if amount < 1 else f"use at most {_SIZE_MAX} (microseconds, for timestamps)"
        raise OptionError(f"{option}={value!r} is not a duration that a window can have", todo=todo)
    return amount
