"""Which tuples of one side a tuple of the other may meet, and for how long a tuple has to be kept.

A band in time is a relation between two times, whatever came first: low <= right time - left time <= high. A tuple can
be matched for as long as its *reach* says. An outer join has to remember longer than that: whether a tuple found a
match is known only as long as what it matched is there, or can be replayed. So the other side is *kept* until
everything that it could have matched is over, and no footprint has to say who was matched.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from strandline.errors import OptionError
from strandline.units import Duration, duration_us

How = Literal["inner", "left", "right", "full"]
WindowsKind = Literal["band", "key", "partition"]
Match = Literal["key", "any"]
LEFT: Final = 0
RIGHT: Final = 1
SIDES: Final = (LEFT, RIGHT)
NAMES: Final = ("left", "right")
_BAND_MAX: Final = 1 << 60
"""So that a time, and twice that, still fits 64 bits."""
_SIZE_MAX: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class JoinWindows:
    """A band in time (`low`, `high`), or the last `sizes` tuples of each side, for every key or for the partition.

    A tuple meets those of its key in the window of the other side, or with `match="any"` all of them (a theta join).
    """

    kind: WindowsKind
    low: int = 0
    high: int = 0
    sizes: tuple[int, int] = (0, 0)
    how: How = "inner"
    match: Match = "key"

    @property
    def meets_any(self) -> bool:
        """True if tuples meet whatever their keys are."""
        return self.match == "any"

    @property
    def is_band(self) -> bool:
        """True if tuples match and go by time."""
        return self.kind == "band"

    @property
    def outer(self) -> tuple[bool, bool]:
        """True if tuples of left, of right come out without a match."""
        return self.how in ("left", "full"), self.how in ("right", "full")

    @property
    def reach(self) -> tuple[int, int]:
        """How long after its own time a tuple of left, of right can still be matched; negative: never again."""
        return self.high, -self.low

    @property
    def keep(self) -> tuple[int, int]:
        """How long after its own time a tuple of left, of right is kept; negative: not at all."""
        left, right = self.outer
        return self.high + (max(0, -self.low) if right else 0), -self.low + (max(0, self.high) if left else 0)

    @property
    def keeps(self) -> tuple[bool, bool]:
        """True if tuples of left, of right are kept at all."""
        if self.is_band:
            return self.outer[LEFT] or self.keep[LEFT] >= 0, self.outer[RIGHT] or self.keep[RIGHT] >= 0
        return self.sizes[LEFT] > 0, self.sizes[RIGHT] > 0

    def keeps_null(self, side: int) -> bool:
        """Returns whether tuples without a key are kept: they match no key, but come out or take a place."""
        if self.meets_any:
            return self.keeps[side]
        return self.outer[side] if self.is_band else self.kind == "partition" and self.sizes[side] > 0

    @property
    def delay(self) -> int:
        """By how much the time of a result may lie before the boundary at which it comes out."""
        return max([0, *(reach for reach, outer in zip(self.reach, self.outer, strict=True) if outer)])

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON for stream.json."""
        any_key = {"match": self.match} if self.meets_any else {}
        if self.is_band:
            return {"within": [self.low, self.high], "how": self.how, **any_key}
        return {"left": self.sizes[LEFT], "right": self.sizes[RIGHT], "per": self.kind, **any_key}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> JoinWindows:
        """Returns what `to_json` wrote."""
        if "within" in body:
            low, high = body["within"]
            return cls("band", low, high, how=body["how"], match=body.get("match", "key"))
        return cls(body["per"], sizes=(body["left"], body["right"]), match=body.get("match", "key"))


def join_windows(
    within: Duration | tuple[Duration, Duration] | None = None,
    left: Any = None,
    right: Any = None,
    per: str = "key",
    how: str = "inner",
    match: str = "key",
) -> JoinWindows:
    """Returns the windows of `left.join(right, …)` as people write them; raises OptionError if they cannot be.

    >>> join_windows(within=("0 s", "5 min")).high
    300000000
    """
    if how not in ("inner", "left", "right", "full"):
        raise OptionError(f"join: how={how!r} is not known", todo='use "inner", "left", "right" or "full"')
    if per not in ("key", "partition"):
        raise OptionError(f"join: per={per!r} is not known", todo='use "key" or "partition"')
    if match not in ("key", "any"):
        raise OptionError(f"join: match={match!r} is not known", todo='use "key" or "any"')
    if match == "any" and per != "partition":
        raise OptionError(
            'join: match="any" needs per="partition": a tuple meets all tuples of its partition\'s window',
            todo='pass per="partition", or leave out match= if only tuples with the same key should meet',
        )
    if within is not None:
        if left is not None or right is not None or (per != "key" and match == "key"):
            raise OptionError(
                "join: within= cannot be combined with these options",
                todo="pass either within= or left=, right= and per=, not both"
                + ('; per="partition" goes with within= for match="any" only' if per != "key" else ""),
            )
        low, high = _band(within)
        return JoinWindows("band", low, high, how=how, match=match)  # type: ignore[arg-type]
    if left is None or right is None:
        missing = " and ".join(f"{n}=" for n, w in zip(NAMES, (left, right), strict=True) if w is None)
        raise OptionError(
            "join: no window, neither within= nor left= and right="
            if left is None and right is None
            else f"join: {missing} is missing",
            todo='pass within="10 min", or left= and right= as count_window(n); count_window(0) keeps nothing',
        )
    if how != "inner":
        raise OptionError(
            f"join: how={how!r} needs within=: with windows of tuples the join never knows that no match can come any "
            "more",
            todo='use within=, or how="inner"',
        )
    sizes = _size(left, "left"), _size(right, "right")
    if not any(sizes):
        raise OptionError(
            "join: left= and right= keep no tuple, so that there would be no results",
            todo="use a window of 1 or more tuples on one side",
        )
    return JoinWindows(per, sizes=sizes, match=match)  # type: ignore[arg-type]


def _band(within: Duration | tuple[Duration, Duration]) -> tuple[int, int]:
    if not isinstance(within, (tuple, list)):
        width = _signed(within)
        if width < 0:
            raise OptionError(
                f"join: within={within!r} is negative: one duration is the largest difference of the two times",
                todo='leave out the minus, or write a band: within=("-5 s", "0 s") if right is never after left',
            )
        low, high = -width, width
    elif len(within) != 2:
        raise OptionError(f"join: within={within!r} is not a band", todo='write within=("0 s", "5 min")')
    else:
        low, high = (_signed(value) for value in within)
    if low > high:
        raise OptionError(
            f"join: within={within!r} is empty: it ends before it begins",
            todo="write the smaller one first: low <= right time - left time <= high",
        )
    if max(abs(low), abs(high)) > _BAND_MAX:
        raise OptionError(f"join: within={within!r} is too long", todo=f"use at most {_BAND_MAX} (microseconds)")
    return low, high


def _signed(value: Duration) -> int:
    """Returns a duration that may have a minus in front: a right tuple may come before the left one."""
    if isinstance(value, str) and value.strip().startswith("-"):
        return -duration_us(value.strip()[1:], "join: within")
    if isinstance(value, (int, dt.timedelta, np.timedelta64)) and value < type(value)(0):  # type: ignore[operator]
        return -duration_us(-value, "join: within")
    return duration_us(value, "join: within")


def _size(window: Any, name: str) -> int:
    kind, size = getattr(window, "kind", None), getattr(window, "size", None)
    if kind != "count" or not isinstance(size, int):
        raise OptionError(f"join: {name}={window!r} is not a window of tuples", todo=f"write {name}=count_window(1024)")
    if getattr(window, "advance", size) != size:
        raise OptionError(
            f"join: {name}={window!r} has an advance, and the windows of a join have none",
            todo=f"write {name}=count_window({size})",
        )
    if not 0 <= size < _SIZE_MAX:
        raise OptionError(f"join: {name}={window!r} is too large", todo=f"use less than {_SIZE_MAX} tuples")
    return size
