"""The operator as it is compiled: window, key, aggregates over known types, and where each lies in a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.errors import OptionError, SchemaError
from strandline.operators.aggregate.accumulation import Ops
from strandline.operators.aggregate.aggregates import (
    APPROXIMATE,
    Accumulator,
    Aggregate,
    Op,
    Read,
    resolve,
    state_columns,
)
from strandline.operators.aggregate.conditions import Conditioned
from strandline.operators.aggregate.count_windows import (
    replaying_count_windows,
    sliding_count_windows,
    tumbling_count_windows,
)
from strandline.operators.aggregate.session_windows import close_due_sessions, replaying_sessions, session_windows
from strandline.operators.aggregate.time_windows import close_due, replaying_time_windows, time_windows
from strandline.operators.aggregate.windows import Window
from strandline.operators.expressions.expressions import Formula, schema_of
from strandline.operators.expressions.shape import AS_IS, UNSHAPED, InputShapes, Shape
from strandline.operators.kernels.kernel_arrays import Int64s
from strandline.operators.kernels.kernel_cache import Kernel
from strandline.operators.kernels.wide import means
from strandline.operators.one_table import OneTableDefinition
from strandline.operators.open_windows.record import BY_KEY, BY_LIST, BY_START, KEY_AT, OVERFLOWED, SESSION_WORDS, STATE
from strandline.operators.open_windows.window_state import WindowState
from strandline.operators.operator import TAKEN_IN, OnError

if TYPE_CHECKING:
    from strandline.operators.aggregate.aggregate_operator import AggregateOperator

START, END = "window_start", "window_end"
OPEN, ROWS, OPENED = "_open", "_rows", "_opened"
CONTROL = ((TAKEN_IN, "long"), (OPEN, "long"), (ROWS, "long"), (OPENED, "long"))
"""Columns of footprints: t, N, tuples so far, the offset that opened the window."""


@dataclass(frozen=True)
class AggregateDefinition(OneTableDefinition):
    """One windowed aggregation over an input stream."""

    kind: ClassVar[str] = "aggregate"
    result_time = END

    window: Window
    key: tuple[tuple[str, str], ...]
    time: tuple[str, str]
    accumulators: tuple[Accumulator, ...]
    shape: Shape = AS_IS
    """The work on all tuples."""
    more_times: tuple[str, ...] = ()
    before: InputShapes = UNSHAPED

    @classmethod
    def of(
        cls,
        window: Window,
        aggregates: Mapping[str, Aggregate],
        types: Mapping[str, str],
        key: Sequence[str],
        time: str,
        shape: Shape = AS_IS,
        more_times: Sequence[str] = (),
    ) -> AggregateDefinition:
        """Returns the definition over columns of these types, which the shape leaves; OptionError or SchemaError."""
        if not aggregates:
            raise OptionError("aggregate() without an aggregate", todo='write aggregate(average=sl.avg("price"), …)')
        taken = {*key, START, END}
        for name, aggregate in aggregates.items():
            if not isinstance(aggregate, Aggregate):
                raise OptionError(
                    f"{name}={aggregate!r} is not an aggregate", todo='write for example average=sl.avg("item_price")'
                )
            if name.startswith("_") or name in taken:
                is_ours = name.startswith("_")
                why = "names with _ in front are reserved" if is_ours else "results have that column already"
                raise SchemaError(f"an aggregate cannot be called {name!r}: {why}", todo="choose another name")
            more = f"{name}{APPROXIMATE}"
            if aggregate.function in ("count_distinct", "percentile") and (more in aggregates or more in taken):
                what = f"the results need a column {more!r}: it says whether {name!r} is exact"
                raise SchemaError(what, todo="choose another name")
        for name, aggregate in aggregates.items():
            if aggregate.where is not None:
                what = f"{name}=…(where={aggregate.where.text})"
                aggregate.where.require_truth(schema_of(types), what, what)
        for column in key:
            if column in (START, END):
                raise SchemaError(f"key column {column!r}: results have a column of that name", todo="rename it")
        return cls(
            window,
            tuple((column, types[column]) for column in key),
            (time, types[time]),
            tuple(resolve(name, aggregate, types) for name, aggregate in aggregates.items()),
            shape,
            tuple(more_times),
        )

    @classmethod
    def from_json(
        cls,
        body: Mapping[str, Any],
        key: Mapping[str, str],
        types: Mapping[str, str],
        times: Sequence[tuple[str, str]] = (),
    ) -> AggregateDefinition:
        """Returns what `to_json` said, of an operator whose results have columns of these types.

        `times` are names and types of the time columns of its inputs, if they are known.
        """
        expressions = body.get("expressions", {})
        accumulators = tuple(
            resolve(name, Aggregate.from_json(a, expressions), {a[1]: a[2]} if a[1] else {})
            for name, a in body["aggregates"].items()
        )
        shape = Shape.from_json(body.get("shape", ()), expressions)
        window = Window.from_json(body["window"])
        time = times[0] if times else ("", types[START])
        more_times = tuple(name for name, _ in times[1:])
        return cls(window, tuple(key.items()), time, accumulators, shape, more_times, InputShapes.from_json(body))

    def continuing(self, operator: Mapping[str, Any] | None) -> AggregateDefinition:
        """Returns the definition with the rule for sessions and the texts that stream.json has."""
        if operator is None:
            return self
        older = replace(self.window, includes_gap=False)
        stored = operator.get("expressions", {})
        return replace(
            self,
            window=older if self.is_session and operator["window"] == older.to_json() else self.window,
            accumulators=tuple(replace(a, aggregate=a.aggregate.known_as(stored)) for a in self.accumulators),
            shape=self.shape.known_as(stored),
            before=self.before.known_as(operator),
        )

    def result_boundary(self, boundary: int | None, input_end: int) -> int | None:
        """Returns a time before which no window to come ends; of windows that go by count, a place of the input."""
        return boundary if self.has_times else input_end

    def in_small(
        self, columns: Sequence[Mapping[str, Any]], schemas: Sequence[pa.Schema]
    ) -> tuple[AggregateDefinition, Sequence[Mapping[str, Any]]]:
        types = dict(columns[0])
        types |= self.before.shapes[0].types_over(types, schemas[0]) if self.before else {}
        if self.shape:  # conditions of aggregates may read what it makes
            types |= self.shape.types_over(types, self.before.schema_over(schemas)[0])
        types |= dict([*self.key, self.time, *((a.column, a.type) for a in self.accumulators if a.column is not None)])
        # Kernels know whether windows overlap, but are told how large they are.
        window = replace(self.window, size=4, advance=4 if self.window.advance == self.window.size else 2)
        return replace(self, window=window, shape=AS_IS, more_times=(), before=UNSHAPED), [types]

    # ------------------------------------------------------------------ columns

    @property
    def time_type(self) -> str:
        """The type of window_start and window_end."""
        return self.time[1] if self.window.has_times and self.time[1].startswith("timestamp") else "long"

    @property
    def result_columns(self) -> list[tuple[str, str]]:
        ends = [(START, self.time_type), (END, self.time_type)]
        return [*self.key, *ends, *(column for a in self.accumulators for column in a.results)]

    @property
    def control_columns(self) -> list[tuple[str, str]]:
        return [*CONTROL, *state_columns(self.accumulators)]

    @property
    def taken(self) -> list[str]:
        """The columns that its shape needs."""
        return self.shape.reads(self._columns)

    @property
    def has_times(self) -> bool:
        return self.window.has_times

    @property
    def keeps_time(self) -> bool:
        return self.has_times  # else the times of results are places of the input

    @property
    def closes_early(self) -> bool:
        return not self.has_times

    @property
    def hidden(self) -> frozenset[str]:
        return frozenset(c for a in self.accumulators for c, _ in a.results)

    @property
    def loads(self) -> tuple[str, ...]:
        return (*(c for c, _ in self.key), START, END, *(c for c, _ in self.control_columns))

    @property
    def needs_newer_format(self) -> bool:
        return bool(self.shape or self.conditions or self.sketches)

    def fresh(self, on_error: OnError = "stop") -> AggregateOperator:
        from strandline.operators.aggregate.aggregate_operator import AggregateOperator

        return AggregateOperator(self, WindowState.empty(self.width, self.layout, timed=self.has_times), on_error)

    def revived(self, arrays: Mapping[str, npt.NDArray[Any]], on_error: OnError = "stop") -> AggregateOperator:
        from strandline.operators.aggregate.aggregate_operator import AggregateOperator

        return AggregateOperator(self, WindowState.revived(arrays, self.width, timed=self.has_times), on_error)

    @property
    def _columns(self) -> list[str]:
        """Those that the operator itself takes."""
        names = [c for c, _ in self.key] + [a.column for a in self.accumulators if a.column is not None]
        return list(dict.fromkeys([*names, self.time[0], *(c for w in self.conditions for c in w.columns)]))

    @cached_property
    def conditions(self) -> tuple[Formula, ...]:
        """Those of the aggregates, each once."""
        return tuple(dict.fromkeys(a.where for a in self.accumulators if a.where is not None))

    @cached_property
    def own_shaping(self) -> Shape:
        """The shape of all tuples as far as the operator needs it, and the conditions of aggregates."""
        pruned = self.shape.pruned(self._columns)
        return Conditioned(pruned.steps, self.conditions) if self.conditions else pruned

    def text(self, *, is_timestamp: bool) -> str:
        return self.window.text(is_timestamp=is_timestamp)

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "window": self.window.to_json(),
            "aggregates": {a.name: a.aggregate.to_json(a.type) for a in self.accumulators},
        }
        if self.shape:
            body["shape"] = self.shape.to_json()
        return body | self.before.to_json([*self.shape.formulas, *self.conditions])

    # ------------------------------------------------------------------ the record

    @cached_property
    def inputs(self) -> list[tuple[str | None, Read, Formula | None]]:
        """The inputs of kernels, each once: a column (None: only the tuple), how it is read, and which tuples count."""
        wanted: dict[tuple[str | None, Read, Formula | None], None] = {}
        for a in self.accumulators:
            if a.op is not None and (a.column, a.read, a.where) not in wanted:
                wanted[a.column, a.read, a.where] = None
                if a.read is Read.WIDE:
                    wanted[a.column, Read.HIGH, a.where] = None
        return list(wanted)

    @cached_property
    def words(self) -> list[int]:
        """Where the state of each aggregate begins."""
        found, word = {}, STATE + (SESSION_WORDS if self.is_session else 0)
        for i, a in enumerate(self.accumulators):
            if a.op is not Op.SKETCH:
                found[i] = word
                word += a.places[-1]
        for i in self.sketches:  # together, and behind a word for the number of the window
            word += 1
            found[i] = word
        return [*(found[i] for i in range(len(found))), word + bool(self.sketches)]

    @cached_property
    def sketches(self) -> list[int]:
        """Which aggregates are computed behind the loop over tuples."""
        return [i for i, a in enumerate(self.accumulators) if a.op is Op.SKETCH]

    @property
    def hit_word(self) -> int:
        """Where windows have a number while a kernel runs; references to their sketches are behind it."""
        return self.words[self.sketches[0]] - 1

    @property
    def width(self) -> int:
        """Words in a record."""
        return self.words[-1]

    @cached_property
    def ops(self) -> Ops:
        """For the kernels."""
        found = tuple(
            (int(a.op), self.inputs.index((a.column, a.read, a.where)), word)
            for a, word in zip(self.accumulators, self.words, strict=False)
            if a.op is not None and a.op is not Op.SKETCH
        )
        if self.sketches:
            found += ((int(Op.HITS), len(self.sketches), self.hit_word),)
        return found or ((int(Op.NOTHING), 0, 0),)

    @cached_property
    def bytes_words(self) -> Int64s:
        """The words that say where bytes lie."""
        found = [] if self.key_codec.fits_word else [KEY_AT]
        found += [w for a, w in zip(self.accumulators, self.words, strict=False) if a.is_bytes]
        return np.array(found, np.int64)

    def overflowed(self, records: Int64s) -> npt.NDArray[np.bool_]:
        """Returns which of these windows have no result: a sum or a mean does not fit 64 bits or 38 digits."""
        found = np.zeros(len(records), bool)
        for a, word in zip(self.accumulators, self.words, strict=False):
            if a.count_place is not None:
                found |= records[:, word + a.count_place] == OVERFLOWED
            if a.op is Op.SUM_WIDE and a.function == "avg" and len(records):
                low, high, n = records[:, word : word + 3].T
                found |= (n > 0) & (means(low, high, n, a.more_digits)[1] == 0)
        return found

    @property
    def is_session(self) -> bool:
        """True if windows are sessions."""
        return self.window.kind == "session"

    @property
    def layout(self) -> int:
        """How open windows are found."""
        return {"count": BY_KEY, "time": BY_START, "session": BY_LIST}[self.window.kind]

    @cached_property
    def step(self) -> Kernel:
        """The compiled loop over tuples."""
        counting = tumbling_count_windows if self.window.overlap == 1 else sliding_count_windows
        build = {"count": counting, "time": time_windows, "session": session_windows}[self.window.kind]
        return build(self.ops, self.key_codec.fits_word)

    @cached_property
    def replay(self) -> Kernel:
        """The compiled loop over tuples that were seen before."""
        builders = {"count": replaying_count_windows, "time": replaying_time_windows, "session": replaying_sessions}
        return builders[self.window.kind](self.ops, self.key_codec.fits_word)

    @property
    def close_due(self) -> Kernel:
        """The compiled loop over windows whose time is over."""
        kernel: Kernel = close_due_sessions if self.is_session else close_due
        return kernel
