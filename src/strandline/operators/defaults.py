"""Members that most definitions and operators have in common, so that a new one writes only what is its own.

`operator.py` says which members those are. A dataclass may derive from a class of these: none of them has a field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from strandline.operators.expressions.input_shapes import InputShapes
from strandline.operators.kernels.key_codec import KeyCodec

if TYPE_CHECKING:
    from collections.abc import Iterator


class DefinitionDefaults:
    """Members of a definition that follow from its key, its shapes and its columns, and flags that are seldom set."""

    lives_in_process: ClassVar[bool] = False
    replays_versions: ClassVar[bool] = True
    replays_windows: ClassVar[bool] = False

    if TYPE_CHECKING:

        @property
        def key(self) -> tuple[tuple[str, str], ...]: ...

        @property
        def takes(self) -> tuple[tuple[str, ...], ...]: ...

        @property
        def shapes(self) -> InputShapes: ...

        @property
        def result_columns(self) -> list[tuple[str, Any]]: ...

        @property
        def control_columns(self) -> list[tuple[str, Any]]: ...

    @property
    def can_compute(self) -> bool:
        """True: stream.json has all that the operator needs."""
        return True

    @property
    def closes_early(self) -> bool:
        """False: only time tells which windows are over."""
        return False

    @property
    def has_times(self) -> bool:
        """True: the operator waits for boundaries."""
        return True

    @property
    def needs_newer_format(self) -> bool:
        """True: the first versions knew plain aggregates only."""
        return True

    @property
    def blocked_without_input(self) -> str | None:
        """None: there may be results."""
        return None

    @property
    def revised(self) -> Mapping[str, Any]:
        """Nothing: there are no versions."""
        return {}

    @property
    def hidden(self) -> frozenset[str]:
        """No column."""
        return frozenset()

    @property
    def reads(self) -> tuple[tuple[str, ...], ...]:
        """The columns of each input that its shape needs."""
        return self.shapes.reads(self.takes)

    @cached_property
    def shaping(self) -> InputShapes:
        """The shapes of the inputs, without the columns that the operator does not take."""
        return self.shapes.pruned(self.takes)

    @property
    def loads(self) -> tuple[str, ...]:
        """All columns of results and of footprints."""
        return tuple(name for name, _ in [*self.result_columns, *self.control_columns])

    @cached_property
    def key_codec(self) -> KeyCodec:
        """Encodes keys as words or bytes."""
        return KeyCodec([kind for _, kind in self.key])

    def result_boundary(self, boundary: int | None, input_end: int) -> int | None:
        """Returns the boundary: a result is not older than the tuple with which it comes."""
        return boundary


class OneTableDefinition(DefinitionDefaults):
    """A definition over inputs that have the same columns, but for the names of their time columns."""

    if TYPE_CHECKING:

        @property
        def time(self) -> tuple[str, str]: ...

        @property
        def more_times(self) -> tuple[str, ...]: ...

        @property
        def before(self) -> InputShapes: ...

        @property
        def taken(self) -> Sequence[str]: ...

    @property
    def shapes(self) -> InputShapes:
        """The shape of each input."""
        return self.before

    @property
    def times(self) -> tuple[str, ...]:
        """The time column of each input."""
        return (self.time[0], *self.more_times)

    @property
    def takes(self) -> tuple[tuple[str, ...], ...]:
        """The columns that the operator takes of each input when it has its shape."""
        return tuple(tuple(time if name == self.time[0] else name for name in self.taken) for time in self.times)


class OperatorDefaults:
    """Members of an operator that does nothing of its own there."""

    must_save_all: bool = False
    """Nothing that was saved before is void."""

    if TYPE_CHECKING:

        def feed(self, tuples: Sequence[pa.Table]) -> Iterator[list[pa.Array]]: ...

    def repeat(self, tuples: Sequence[pa.Table]) -> None:
        """Feeds the tuples again and drops the results, which are published."""
        for _ in self.feed(tuples):
            pass

    def advance(self, boundary: int) -> list[pa.Array] | None:
        """Does nothing: time alone completes no result."""
        return None

    def mark_unsaved(self, *, every: bool = False) -> None:
        """Does nothing: the state is saved whole, or not at all."""

    def end(self) -> None:
        """Does nothing: no memory is left over."""

    def oldest_footprint(self) -> tuple[int, int] | None:
        """Returns None: a state that is saved whole has no oldest part."""
        return None
