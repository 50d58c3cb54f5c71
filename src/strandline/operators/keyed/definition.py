"""The definition of a keyed operator: a function, its columns, and those of its results and footprints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.errors import OptionError, SchemaError
from strandline.operator_texts import version_text
from strandline.operators.expressions.shape import UNSHAPED, InputShapes
from strandline.operators.functions.function_identity import FunctionIdentity
from strandline.operators.kernels.kernel_arrays import Int64s
from strandline.operators.keyed.compiled_program import Program
from strandline.operators.keyed.keyed_function import EXPIRE_MAX, KeyedFunction, UserFunction, keyed
from strandline.operators.keyed.record_layout import EMIT, Columns, stored_kind
from strandline.operators.one_table import INPUT_NAME, GivenInput, OneTableDefinition
from strandline.operators.open_windows.record import BY_KEY, KEY_AT
from strandline.operators.open_windows.window_state import WindowState
from strandline.operators.operator import TAKEN_IN, OnError
from strandline.units import require_unit
from strandline.wording import exact_duration

if TYPE_CHECKING:
    from strandline.operators.keyed.keyed_operator import KeyedOperator

RESULT_TIME: Final = "time"
OPEN, ROWS, OPENED, VERSION = "_open", "_rows", "_opened", "_version"
CONTROL: Final = ((TAKEN_IN, "long"), (OPEN, "long"), (ROWS, "long"), (OPENED, "long"), (VERSION, "long"))
"""Columns of footprints: t, N, tuples so far, the offset of the tuple that opened it, the version of the function."""
INPUT_TYPE: Final = "integer"
"""Of the number of a tuple's input, which a row over several has as `_input`."""
STATE: Final = "_state_"
"""In front of the name of a column of state."""


@dataclass(frozen=True)
class KeyedDefinition(OneTableDefinition):
    """A function over the keys of an input. Equal by value."""

    kind: ClassVar[str] = "keyed"
    closes_early: ClassVar[bool] = True
    replays_versions: ClassVar[bool] = False
    result_time = RESULT_TIME

    function: KeyedFunction
    key: tuple[tuple[str, str], ...]
    time: tuple[str, str]
    lateness: int
    """By how much a tuple may come later than others; of several inputs 0."""
    types: Columns
    """The columns that the function reads."""
    more_times: tuple[str, ...] = ()
    before: InputShapes = UNSHAPED
    rows_max: int = field(default=1 << 17, compare=False)
    """Tuples that go through a loop at once."""

    @classmethod
    def of(
        cls, function: Any, given: GivenInput, more_times: Sequence[str] = (), before: InputShapes = UNSHAPED
    ) -> KeyedDefinition:
        """Returns the operator over such an input; raises OptionError or SchemaError if there can be none.

        `more_times` are the time columns of further inputs, `before` is what is done to the tuples of each.
        """
        if not isinstance(function, KeyedFunction):
            raise OptionError(
                f"apply({function!r}) is not an operator",
                todo='write @sl.keyed(state="…", output="…") in front, or derive a class from sl.Operator',
            )
        _require_names(function, given)
        if not function.expire_has_unit and given.type_of(given.time).startswith("timestamp"):
            require_unit(function.expire, f"{function.name}: expire")
        if function.expire is not None and given.lateness is None:
            raise OptionError(
                f"{function.name}: keys of a stream in which nothing is ever late would never expire",
                todo='create the stream with lateness=, for example lateness="10 s"',
            )
        if function.on_expire is not None and (given.lateness or 0) > EXPIRE_MAX:
            raise OptionError(
                f"{function.name}: keys that expire after a lateness of {given.lateness} would do so at a time that "
                "does not fit 64 bits",
                todo=f"create the stream with a lateness of at most {EXPIRE_MAX} (microseconds)",
            )
        read = function.main.use.columns["row"]
        return cls(
            function,
            tuple((c, given.type_of(c)) for c in given.key),
            (given.time, given.type_of(given.time)),
            given.lateness or 0 if function.on_expire is not None else 0,
            tuple((c, given.type_of(c)) for c in sorted(read) if c in given.columns),
            tuple(more_times),
            before,
        )._checked(given)

    def _checked(self, given: GivenInput) -> KeyedDefinition:
        every = {name: given.type_of(name) for name in given.columns}
        Program(self.function, every, self.key_codec.fits_word).require_columns()
        self.program.check()
        return self

    # ------------------------------------------------------------------ columns

    @property
    def time_type(self) -> str:
        """The type of the results' time."""
        return self.time[1] if self.time[1].startswith("timestamp") else "long"

    @property
    def taken(self) -> list[str]:
        """The key, the columns that the function reads, and the time."""
        read = [c for c, _ in self.types if c != INPUT_NAME or not self.tells_input]
        return list(dict.fromkeys([*(c for c, _ in self.key), *read, self.time[0]]))

    @property
    def tells_input(self) -> bool:
        """True if the function asks of which of several inputs a tuple is."""
        return bool(self.more_times) and (INPUT_NAME, INPUT_TYPE) in self.types

    @property
    def has_times(self) -> bool:
        """True if keys expire."""
        return self.function.expire is not None

    @property
    def can_compute(self) -> bool:
        return self.function.main.function is not None

    @property
    def reach(self) -> int:
        """From the last time of a key to the time at which it expires."""
        return 0 if self.function.expire is None else self.function.expire + self.lateness

    @property
    def result_columns(self) -> list[tuple[str, str]]:
        """Names and types of the results' columns: key, time, output."""
        return [*self.key, (RESULT_TIME, self.time_type), *self.function.output]

    @property
    def control_columns(self) -> list[tuple[str, str]]:
        return [*CONTROL, *((STATE + name, stored_kind(kind)) for name, kind in self.function.state)]

    @property
    def hidden(self) -> frozenset[str]:
        """The output: of a key that is open there is none."""
        return frozenset(name for name, _ in self.function.output)

    @property
    def loads(self) -> tuple[str, ...]:
        return (*(c for c, _ in self.key), RESULT_TIME, *(c for c, _ in self.control_columns))

    # ------------------------------------------------------------------ stream.json

    def text(self, *, is_timestamp: bool) -> str:
        """Returns the state, the output and the expiry of the function in words.

        >>> function = KeyedFunction(UserFunction(FunctionIdentity("…")), _pairs(["ab"]), (), 3_600_000_000, emit=2)
        >>> KeyedDefinition(function, (), ("at", "timestamp"), 0, ()).text(is_timestamp=True)
        'keyed function: state a b; output none, up to 2 a tuple; keys expire after 1 hour'
        """
        f = self.function
        columns = [", ".join(f"{name} {kind}" for name, kind in pairs) or "none" for pairs in (f.state, f.output)]
        text = f"keyed function: state {columns[0]}; output {columns[1]}"
        if f.emit > 1:
            text += f", up to {f.emit:,} a tuple"
        if f.expire is not None:
            text += f"; keys expire after {exact_duration(f.expire) if is_timestamp else format(f.expire, ',')}"
        return text + version_text(f.version)

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "kind": self.kind,
            "function": self.function.main.text,
            "state": [list(column) for column in self.function.state],
            "output": [list(column) for column in self.function.output],
            "expire": self.function.expire,
            "emit": self.function.emit,
            "lateness": self.lateness,
            "reads": [list(column) for column in self.types],
            "time": list(self.time),
        }
        if self.function.on_expire is not None:
            body["on_expire"] = self.function.on_expire.text
        return {**body, **self.before.to_json(), **self.revised}

    @property
    def revised(self) -> Mapping[str, Any]:
        """The functions and their version, if that is not the first."""
        if self.function.version == 1:
            return {}
        last = self.function.on_expire
        texts = {"function": self.function.main.text, **({} if last is None else {"on_expire": last.text})}
        return {**texts, "reads": [list(column) for column in self.types], "version": self.function.version}

    @classmethod
    def from_json(
        cls, body: Mapping[str, Any], key: Mapping[str, str], times: Sequence[tuple[str, str]] = ()
    ) -> KeyedDefinition:
        """Returns what `to_json` wrote; its functions are only texts and cannot be computed."""
        last = body.get("on_expire")
        function = KeyedFunction(
            UserFunction(FunctionIdentity(body["function"])),
            _pairs(body["state"]),
            _pairs(body["output"]),
            body["expire"],
            None if last is None else UserFunction(FunctionIdentity(last)),
            body["emit"],
            body.get("version", 1),
        )
        time = times[0] if times else (str(body["time"][0]), str(body["time"][1]))
        more = tuple(name for name, _ in times[1:])
        before = InputShapes.from_json(body)
        return cls(function, tuple(key.items()), time, body["lateness"], _pairs(body["reads"]), more, before)

    def in_small(
        self, columns: Sequence[Mapping[str, Any]], schemas: Sequence[pa.Schema]
    ) -> tuple[KeyedDefinition, Sequence[Mapping[str, Any]]]:
        """Returns a definition with a function of ours over the same key: the user's is compiled where it is used."""
        types = dict([*self.key, self.time])
        return replace(self, function=_in_small(), lateness=0, types=(), more_times=(), before=UNSHAPED), [types]

    # ------------------------------------------------------------------ the record, and operators

    @cached_property
    def program(self) -> Program:
        """The functions, compiled when they are first called; the same for all definitions that are equal."""
        is_known = self.function.main.function is not None
        return shared_program(self.function, self.types, self.key_codec.fits_word, is_known)

    @property
    def width(self) -> int:
        """Words in a record."""
        return self.program.state.width

    @cached_property
    def bytes_words(self) -> Int64s:
        """The words of a record that say where bytes lie."""
        return np.array([*([] if self.key_codec.fits_word else [KEY_AT]), *self.program.state.texts], np.int64)

    def empty_state(self, room: int = 256) -> WindowState:
        """Returns a state without keys."""
        return WindowState.empty(self.width, BY_KEY, timed=self.has_times, room=room)

    def fresh(self, on_error: OnError = "stop") -> KeyedOperator:
        from strandline.operators.keyed.keyed_operator import KeyedOperator

        return KeyedOperator(self, self.empty_state(), on_error)

    def revived(self, arrays: Mapping[str, npt.NDArray[Any]], on_error: OnError = "stop") -> KeyedOperator:
        from strandline.operators.keyed.keyed_operator import KeyedOperator

        return KeyedOperator(self, WindowState.revived(arrays, self.width, timed=self.has_times), on_error)


@lru_cache(maxsize=64)
def shared_program(function: KeyedFunction, types: Columns, word_key: bool, is_known: bool) -> Program:
    """Returns a program that all definitions of one text share: compiling it takes seconds."""
    return Program(function, dict(types), word_key)


def _pairs(columns: Sequence[Sequence[str]]) -> Columns:
    return tuple((str(name), str(kind)) for name, kind in columns)


def _require_names(function: KeyedFunction, given: GivenInput) -> None:
    """Raises SchemaError if results would have a column twice."""
    taken = {name.lower() for name in given.key}
    if RESULT_TIME in taken:
        raise SchemaError(
            f"{function.name}: a key column is called {RESULT_TIME!r}, as is the time of the results", todo="rename it"
        )
    for name, _ in function.output:
        if name.lower() in taken or name.lower() == RESULT_TIME:
            raise SchemaError(
                f"{function.name}: a column of output cannot be called {name!r}: results have that column already",
                todo="choose another name; results have the key and the time anyway",
            )


@cache
def _in_small() -> KeyedFunction:
    """Counts tuples."""

    @keyed(state="n long", output="n long", expire=1_000)
    def counted(state: Any, row: Any, out: Any) -> int:
        state.n += 1
        out.n = state.n
        return EMIT

    return counted
