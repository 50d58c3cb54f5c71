"""The protocol of operators: all that the driver, a step, a recovery and the tools know of one.

A `Definition` says what an operator is; it is part of the identity of the stream that the operator writes. An
`Operator` is one partition of it at work: tuples in, results and footprints out, a function of its input. Aggregates,
joins, barriers, keyed functions, partition-wide classes and stateless operators are peers behind it.

The input of an operator is one sequence of tuples a partition, in an order that is the same for every reader. Tuples
come as one table for each input; the column `_offset` has the place of a tuple in the sequence. Over one stream that
is the offset in the stream.

The order of calls
------------------

1. The state, one of three ways:
   - a new partition: `definition.fresh()`
   - the state that the step before left on this machine: `definition.revived(arrays)`
   - a recovery: `fresh()`, `load(…)` with the footprints, `aside.ignore()`, `replay(…)` of the tuples since the oldest
     footprint, `input_end` is set, then `repeat(…)` of the tuples that no save has seen, with `advance(…)` between them
2. A step: `begin()`; then for each piece of the input `feed(…)`, `input_end` is set, `advance(boundary)`
3. The end of a step: `mark_unsaved()` if footprints were left out before; one of `save(…)`, `save_all(…)` and
   `save_nothing()`; `end()`; `extent(…)`; `image()`

`windows(…)` and `oldest_footprint()` may be called between two steps; the properties at any time.

What a new operator writes
--------------------------

A dataclass derived from `Definition`, a class derived from `Operator`, and a line in `registry.py`. What has no default
is listed first in both, and mypy refuses a class that lacks it; with kernels, `in_small` is to be written, too. Over
inputs with the same columns derive from `OneTableDefinition`; with records of windows as state, from
`open_windows.windows_at_work.OpenWindows`, which has most members of an operator.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.operators.kernels.key_codec import KeyCodec

if TYPE_CHECKING:
    from strandline.operators.expressions.shape import InputShapes

TAKEN_IN = "_input"
"""The column of footprints with a place: they hold the input tuples before it. Every operator has it."""


OnError = Literal["stop", "set_aside"]
"""The way to deal with a tuple or a window that cannot be computed."""

Rows = npt.NDArray[np.integer[Any]] | slice
"""Some rows of an array: their numbers, or those from one to another."""


@dataclass(frozen=True, slots=True)
class SlowLimits:
    """The windows that have been open for long, and the age at which their last footprint is too old."""

    opened_before: int
    """Windows that were opened before this place of the input are slow."""
    written_before: int
    """A slow window gets a G-check if its last footprint lies before this output offset."""
    at_most: int
    """At most this many slow windows get one."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The oldest window gets a G-check while any of these is exceeded, at most `budget` windows do."""

    extent: float = math.inf
    replay: float = math.inf
    cost: float = math.inf
    extent_cost: float = 0.0
    replay_cost: float = 0.0
    budget: int = 1 << 62
    slow: SlowLimits | None = None
    """Windows that get a G-check as well; None if their age does not matter."""

    def slow_budget(self, written: int) -> int:
        """Returns how many G-checks of slow windows may follow `written` others."""
        return 0 if self.slow is None else max(0, min(self.slow.at_most, self.budget - written))


@dataclass(frozen=True, slots=True)
class Footprints:
    """The footprints of a step: columns of G-opens, then of G-checks."""

    opened: list[pa.Array]
    checked: list[pa.Array]

    @property
    def rows(self) -> int:
        """The number of footprints."""
        return len(self.opened[0]) + len(self.checked[0])


@dataclass(frozen=True, slots=True)
class Extent:
    """The reach of the eventual checkpoint."""

    open_windows: int
    oldest_input: int
    """T: replay begins here."""
    oldest_output: int
    """The output offset of the oldest footprint."""


@dataclass(frozen=True, slots=True)
class StateImage:
    """The state of an operator as arrays, and the rows that have changed since the step began."""

    arrays: Mapping[str, npt.NDArray[Any]]
    changed: Mapping[str, Rows] | None
    """Of each array, the rows that have changed; None if arrays were replaced, so that all of it has."""


@dataclass(frozen=True, slots=True)
class Saved:
    """The rows of a stretch of the output, in the columns that `Definition.loads` names and `_offset`."""

    closed: pa.Table
    """Results, and windows that closed without one."""
    footprints: pa.Table


class SetAside(Protocol):
    """The tuples and windows that a step could not compute."""

    @property
    def tables(self) -> Mapping[str, Sequence[pa.Table]]:
        """Tables by reason, in columns of results and footprints; missing columns are null."""

    @property
    def closed(self) -> Sequence[list[pa.Array]]:
        """Columns of windows that closed without a result; their footprints do not count any more."""

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""

    def ignore(self) -> None:
        """Drops everything that is added from now on: a recovery adds it a second time."""


class Definition(Protocol):
    """One operator over its inputs. Immutable, equal by value; tasks receive it without its compiled parts."""

    # ------------------------------------------------------------------ to be written

    kind: ClassVar[str]
    """The name of the kind in stream.json."""
    key: tuple[tuple[str, str], ...]
    """Names and types of the key columns."""
    result_time: str
    """The result column with the time of a result."""

    if TYPE_CHECKING:  # a dataclass would take a property for the default of its field

        @property
        def times(self) -> tuple[str, ...]:
            """The time column of each input."""

    @property
    def takes(self) -> tuple[tuple[str, ...], ...]:
        """The columns that the operator takes of each input when it has its shape."""

    @property
    def shapes(self) -> InputShapes:
        """The work on the tuples of each input before the operator takes them in."""

    @property
    def result_columns(self) -> list[tuple[str, Any]]:
        """Names and Spark types of the results' columns."""

    @property
    def control_columns(self) -> list[tuple[str, Any]]:
        """Names and types of the columns that only footprints fill."""

    def text(self, *, is_timestamp: bool) -> str:
        """Returns the operator in words; with `is_timestamp`, times are microseconds and no plain numbers."""

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON for stream.json: all that must stay the same for as long as the stream lives."""

    def continuing(self, stored: Mapping[str, Any] | None) -> Definition:
        """Returns the definition by the rules of a stream with this JSON; they may be older than today's."""

    def fresh(self, on_error: OnError = "stop") -> Operator:
        """Returns an operator without state."""

    def revived(self, arrays: Mapping[str, npt.NDArray[Any]], on_error: OnError = "stop") -> Operator:
        """Returns the operator with these arrays as its state, which it may write to; raises ValueError if they do not
        fit, OtherVersionError if another version of the operator made them."""

    # ------------------------------------------------------------------ with a default

    replays_windows: ClassVar[bool] = False
    """True if windows without a footprint come back with the replay; else every open window has a footprint."""
    replays_versions: ClassVar[bool] = True
    """True if this version may replay tuples that an earlier version of the operator has taken in."""
    keeps_state: ClassVar[bool] = True
    """False if a step needs nothing of the step before but its place in the input: no windows, no kernels."""
    lives_in_process: ClassVar[bool] = False
    """True if a partition is an object that stays in its process between batches: no arrays, no kernels."""

    @property
    def is_serialised(self) -> bool:
        """True if the input is several streams as one, in the order of their times."""
        return len(self.times) > 1

    def in_partition(self, partition: int) -> Definition:
        """Returns the definition of one partition; most partitions do not know which one they are."""
        return self

    @property
    def reads(self) -> tuple[tuple[str, ...], ...]:
        """The columns of each input that its shape needs."""
        return self.shapes.reads(self.takes)

    @cached_property
    def shaping(self) -> InputShapes:
        """The shapes of the inputs, without the columns that the operator does not take."""
        return self.shapes.pruned(self.takes)

    @cached_property
    def key_codec(self) -> KeyCodec:
        """Encodes keys as words or bytes."""
        return KeyCodec([kind for _, kind in self.key])

    @property
    def has_times(self) -> bool:
        """True if the operator does anything when time passes."""
        return True

    @property
    def keeps_time(self) -> bool:
        """True if results have times of the input, so that a boundary of the input moves that of the results."""
        return True

    @property
    def hidden(self) -> frozenset[str]:
        """The result columns that are empty while a window is open."""
        return frozenset()

    @property
    def loads(self) -> tuple[str, ...]:
        """The columns of the output that `Operator.load` reads: all, if the definition does not know better."""
        return tuple(name for name, _ in [*self.result_columns, *self.control_columns])

    @property
    def closes_early(self) -> bool:
        """True if tuples close windows, so that only results and closings tell which are over; else time tells it."""
        return False

    @property
    def can_compute(self) -> bool:
        """True if tuples can be taken in; stream.json has only the text of a user's function."""
        return True

    @property
    def needs_newer_format(self) -> bool:
        """True if versions before streams of format 3 would misunderstand it; they knew plain aggregates only."""
        return True

    @property
    def revised(self) -> Mapping[str, Any]:
        """The fields of `to_json` that a later version of the operator has changed; empty for the first version."""
        return {}

    @property
    def blocked_without_input(self) -> str | None:
        """Why there are no results while an input is missing, in words; None if there may be some."""
        return None

    def result_boundary(self, boundary: int | None, input_end: int) -> int | None:
        """Returns a time before which no result will follow; None if there is none.

        No tuple before `boundary` will follow; the input tuples before the place `input_end` were taken in. That is the
        boundary itself if a result is not older than the tuple with which it comes.
        """
        return boundary

    def result_key(self, key: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the key columns of the results; `key` are those of the first input."""
        return key

    def result_lateness(self, lateness: int | None) -> int | None:
        """Returns the lateness of the results' stream; `lateness` is that of the first input."""
        return 0

    def in_small(
        self, columns: Sequence[Mapping[str, Any]], schemas: Sequence[pa.Schema]
    ) -> tuple[Definition, Sequence[Mapping[str, Any]]]:
        """Returns a definition that runs the same kernels over windows of a few tuples, and the columns it reads.

        `columns` are names and types, a mapping an input. Without kernels this is the definition itself.
        """
        return self, columns

    def __getstate__(self) -> dict[str, Any]:
        # Compiled and cached parts stay behind: the receiver of the definition has its own.
        return {field.name: self.__dict__[field.name] for field in fields(self)}  # type: ignore[arg-type]


class Operator(Protocol):
    """One partition of an operator at work."""

    # ------------------------------------------------------------------ to be written

    on_error: OnError
    input_end: int
    """The state holds the input tuples before this place."""
    definition: Definition
    """The definition of this operator."""
    aside: SetAside
    """The tuples and windows that this step has set aside."""
    opened: int
    """The number of windows that were opened in this step."""

    @property
    def open_windows(self) -> int:
        """The number of open windows: N."""

    @property
    def rows_at_once(self) -> int:
        """The number of tuples to feed before time may pass."""

    @property
    def due(self) -> int | None:
        """Nothing happens before time reaches this; None if that is not known, or time does not matter."""

    def begin(self) -> None:
        """Begins a step: from now on changes are noted."""

    def feed(self, tuples: Sequence[pa.Table]) -> Iterator[list[pa.Array]]:
        """Takes in tuples, a table an input; yields the columns of results that they complete."""

    def replay(self, tuples: Sequence[pa.Table]) -> None:
        """Takes tuples that were seen before into windows whose footprints did not have them yet."""

    def save(self, position: int, limits: Limits) -> Footprints:
        """Returns footprints of new windows, then of the oldest ones as the limits ask; the first is at `position`."""

    def save_all(self, position: int) -> Footprints:
        """Returns footprints of the whole state: an instant checkpoint."""

    def save_nothing(self) -> Footprints:
        """Returns no footprints."""

    def extent(self, position: int) -> Extent:
        """Returns where recovery would begin if the output ended at this offset."""

    def load(self, newest_first: Iterable[Saved]) -> None:
        """Replaces the state by the newest footprint of every window that is open."""

    def windows(self, *, now: bool = False) -> list[pa.Array]:
        """Returns every open window in the columns of footprints: its last one, or with `now` one made now."""

    def image(self) -> StateImage:
        """Returns the state as arrays."""

    # ------------------------------------------------------------------ with a default

    must_save_all: bool = False
    """True if nothing that was saved before this step may be replayed into: another function made it."""

    @property
    def in_footprints(self) -> int:
        """The number of open windows that have a footprint, or get one now: a recovery reads no fewer tuples."""
        return self.open_windows

    def advance(self, boundary: int) -> list[pa.Array] | None:
        """Notes that no tuple before this time will follow; returns the columns of results that this completes."""
        return None

    def repeat(self, tuples: Sequence[pa.Table]) -> None:
        """Takes in tuples as `feed` did before the state was lost: the same state, no results."""
        for _ in self.feed(tuples):
            pass

    def mark_unsaved(self, *, every: bool = False) -> None:
        """Marks windows without a footprint as just opened; with `every`, all windows: no footprint counts then."""
        return  # a state that is saved whole, or not at all

    def end(self) -> None:
        """Ends a step: frees memory that no window refers to any more."""
        return  # of a state that leaves none

    def oldest_footprint(self) -> tuple[int, int] | None:
        """Returns T and output offset of the oldest footprint that counts; None if there is none."""
        return None
