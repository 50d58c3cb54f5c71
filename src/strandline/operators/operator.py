"""The protocol of operators: all that the driver, a step, recovery and whoever looks at an operator know of one.

A `Definition` says what an operator is; it is part of the identity of the stream that the operator writes. An
`Operator` is one partition of it at work: tuples in, results and footprints out, a function of its input. Aggregates,
joins and barriers are peers behind it.

What an operator takes in is one sequence of tuples a partition, in an order that everybody agrees on. It comes as one
table for each of its inputs; the column `_offset` says where in the sequence a tuple stands. Over one stream that is
the offset in the stream.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

OFFSET = "_offset"
"""The column that says where in the sequence of input tuples a tuple stands."""

TAKEN_IN = "_input"
"""The column of footprints that says which input tuples they hold: those before this place. Every operator has it."""


class OtherVersionError(ValueError):
    """Raised if a state is sound but depends on what a version of the operator said that is not this one."""


OnError = Literal["stop", "set_aside"]
"""What to do about a tuple or a window that cannot be computed."""

Rows = npt.NDArray[np.integer[Any]] | slice
"""Some rows of an array: their numbers, or those from one to another."""


@dataclass(frozen=True, slots=True)
class SlowLimits:
    """Which windows have been open for long, and when one of those has been without a G-check for too long."""

    opened_before: int
    """Those that were opened before this place of the input."""
    written_before: int
    """If their last footprint lies before this output offset."""
    at_most: int
    """So many G-checks for that."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a G-check is due: the oldest window gets one while any of these is exceeded, at most `budget` of them."""

    extent: float = math.inf
    replay: float = math.inf
    cost: float = math.inf
    extent_cost: float = 0.0
    replay_cost: float = 0.0
    budget: int = 1 << 62
    slow: SlowLimits | None = None
    """Windows that get a G-check beside those; None if how long they have been open does not matter."""

    def slow_budget(self, written: int) -> int:
        """How many G-checks of slow windows may follow so many others."""
        return 0 if self.slow is None else max(0, min(self.slow.at_most, self.budget - written))


@dataclass(frozen=True, slots=True)
class Footprints:
    """What a step leaves of its state: columns of G-opens, then of G-checks."""

    opened: list[pa.Array]
    checked: list[pa.Array]

    @property
    def rows(self) -> int:
        """How many there are of both."""
        return len(self.opened[0]) + len(self.checked[0])


@dataclass(frozen=True, slots=True)
class Extent:
    """How far back the eventual checkpoint reaches."""

    open_windows: int
    oldest_input: int
    """T: replay begins here."""
    oldest_output: int
    """The output offset of the oldest footprint."""


@dataclass(frozen=True, slots=True)
class StateImage:
    """The state of an operator as arrays, and what of it has changed since the step began."""

    arrays: Mapping[str, npt.NDArray[Any]]
    changed: Mapping[str, Rows] | None
    """Of each array, the rows that have changed; None if arrays were replaced, so that all of it has."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What a stretch of the output says of windows, in the columns that `Definition.loads` names, and `_offset`."""

    closed: pa.Table
    """Results, and windows that closed without one."""
    footprints: pa.Table


class SetAside(Protocol):
    """What a step could not compute."""

    @property
    def tables(self) -> Mapping[str, Sequence[pa.Table]]:
        """By reason, in columns of results and footprints; those that a table does not have are null."""

    @property
    def closed(self) -> Sequence[list[pa.Array]]:
        """Columns of windows that closed without a result: their footprints do not count any more."""

    @property
    def nbytes(self) -> int:
        """Memory of all that."""

    def ignore(self) -> None:
        """Drops what is added from now on, however much: it was set aside before, and this is a recovery."""


class Definition(Protocol):
    """What an operator is. Immutable, equal by value; it travels to tasks without what is compiled of it."""

    @property
    def kind(self) -> str:
        """What stream.json calls it."""

    @property
    def reads(self) -> tuple[tuple[str, ...], ...]:
        """The columns that it reads, of each input."""

    @property
    def times(self) -> tuple[str, ...]:
        """The time column of each input."""

    @property
    def has_times(self) -> bool:
        """Whether the operator does anything when time passes."""

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """Names and types of the key columns."""

    @property
    def result_columns(self) -> list[tuple[str, Any]]:
        """Names and Spark types of the results' columns."""

    @property
    def result_time(self) -> str:
        """The column among them that is the time of a result."""

    @property
    def control_columns(self) -> list[tuple[str, Any]]:
        """Names and types of the columns that only footprints fill."""

    @property
    def hidden(self) -> frozenset[str]:
        """Those of the results' columns that say nothing of a window while it is open."""

    @property
    def loads(self) -> tuple[str, ...]:
        """The columns of the output that `Operator.load` reads."""

    @property
    def replays_windows(self) -> bool:
        """Whether windows that no footprint holds are got back by the replay; else every open window has one."""

    @property
    def closes_early(self) -> bool:
        """Whether tuples close windows, so that only results and closings tell which are over; else time tells it."""

    @property
    def replays_versions(self) -> bool:
        """Whether tuples that an earlier version of the operator has taken in may be replayed by this one."""

    @property
    def lives_in_process(self) -> bool:
        """Whether a partition is an object that stays in its process between batches: no arrays, no kernels."""

    @property
    def can_compute(self) -> bool:
        """Whether tuples can be taken in: of a user's function, stream.json has no more than the text."""

    @property
    def needs_newer_format(self) -> bool:
        """Whether versions before streams of format 3 would misunderstand it."""

    @property
    def revised(self) -> Mapping[str, Any]:
        """What of `to_json` a later version of the operator has changed; empty if this is the first."""

    @property
    def blocked_without_input(self) -> str | None:
        """Why there are no results while an input is missing, in words; None if there may be some."""

    def text(self, *, is_timestamp: bool) -> str:
        """Returns the operator in words; with `is_timestamp`, times are microseconds and no plain numbers."""

    def to_json(self) -> dict[str, Any]:
        """What stream.json says of it: all that must stay the same for as long as the stream lives."""

    def result_boundary(self, boundary: int | None, input_end: int) -> int | None:
        """No result to come has a time before this one, when no tuple before `boundary` follows and the input tuples
        before the place `input_end` were taken in; None if that cannot be said."""

    def in_small(
        self, columns: Sequence[Mapping[str, Any]], schemas: Sequence[pa.Schema]
    ) -> tuple[Definition, Sequence[Mapping[str, Any]]]:
        """One that runs the same kernels over windows which a few tuples fill, and the columns that it reads.

        Columns are names and types, a mapping an input; those given are what the inputs have.
        """

    def continuing(self, stored: Mapping[str, Any] | None) -> Definition:
        """The definition by the rules of the stream of which stream.json says this; they may be older than today's."""

    def fresh(self, on_error: OnError = "stop") -> Operator:
        """An operator without state."""

    def revived(self, arrays: Mapping[str, npt.NDArray[Any]], on_error: OnError = "stop") -> Operator:
        """The operator that these arrays are the state of, which it may write to; ValueError if they cannot be."""


class Operator(Protocol):
    """One partition of an operator at work."""

    on_error: OnError
    input_end: int
    """The state holds the input tuples before this place."""

    @property
    def definition(self) -> Definition:
        """The definition of this operator."""

    @property
    def aside(self) -> SetAside:
        """What this step has set aside."""

    @property
    def opened(self) -> int:
        """How many windows were opened in this step."""

    @property
    def open_windows(self) -> int:
        """How many windows are open: N."""

    @property
    def must_save_all(self) -> bool:
        """Whether nothing that was saved before this step may be replayed into: another function made it."""

    @property
    def rows_at_once(self) -> int:
        """How many tuples to feed before time may pass."""

    @property
    def due(self) -> int | None:
        """Nothing happens before time reaches this; None if that is not known, or time does not matter."""

    def begin(self) -> None:
        """Begins a step: from now on changes are noted."""

    def feed(self, tuples: Sequence[pa.Table]) -> Iterator[list[pa.Array]]:
        """Takes in tuples, a table an input; yields the columns of results that they complete."""

    def advance(self, boundary: int) -> list[pa.Array] | None:
        """Takes in that no tuple before this time will follow; the columns of results that this completes."""

    def replay(self, tuples: Sequence[pa.Table]) -> None:
        """Takes tuples that were seen before into windows whose footprints did not have them yet."""

    def repeat(self, tuples: Sequence[pa.Table]) -> None:
        """Takes in tuples as `feed` did before the state was lost: the same state, no results."""

    def save(self, position: int, limits: Limits) -> Footprints:
        """Footprints of what is new, then of the oldest windows, as the limits ask; the first goes to `position`."""

    def save_all(self, position: int) -> Footprints:
        """Footprints of the whole state: an instant checkpoint."""

    def save_nothing(self) -> Footprints:
        """No footprints."""

    def mark_unsaved(self, *, every: bool = False) -> None:
        """Marks windows without a footprint as just opened; with `every`, all windows: no footprint counts then."""

    def end(self) -> None:
        """Ends a step: frees memory that no window refers to any more."""

    def extent(self, position: int) -> Extent:
        """Where recovery would begin if the output ended at this offset."""

    def load(self, newest_first: Iterable[Saved]) -> None:
        """Replaces the state by the newest footprint of every window that is open."""

    def oldest_footprint(self) -> tuple[int, int] | None:
        """T and output offset of the oldest footprint that counts; None if there is none."""

    def windows(self, *, now: bool = False) -> list[pa.Array]:
        """Returns every open window in the columns of footprints: its last one, or with `now` one made now."""

    def image(self) -> StateImage:
        """The state as arrays."""


def version_in(stored: Mapping[str, Any] | None) -> int:
    """The version of an operator of which stream.json, or a manifest, says this."""
    return int((stored or {}).get("version", 1))
