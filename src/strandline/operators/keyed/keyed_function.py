"""`@sl.keyed(…)`: a function of the state of a key, a tuple and a place for results, and what it needs to be one."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from strandline.errors import OptionError, SchemaError
from strandline.operators.functions.function_identity import FunctionIdentity, identity_of, place_of
from strandline.operators.functions.row_function import require_parameters
from strandline.operators.keyed.function_rewrite import Use, use_of
from strandline.operators.keyed.record_layout import EMIT_MAX, Columns, is_computable
from strandline.schema_text import columns_of
from strandline.units import Duration, duration_us, has_unit

Function = Callable[..., Any]
PARAMETERS: Final = ("state", "row", "out")
EXPIRY_PARAMETERS: Final = ("state", "out")
COLUMNS_MAX: Final = 256
_RESERVED: Final = ("is_new", "is_null", "set_null")
EXPIRE_MAX: Final = 1 << 58
"""So far apart may times be that a key waits for another tuple: some thousand years."""


@dataclass(frozen=True)
class UserFunction:
    """A Python function that is compiled, equal to another of the same text."""

    identity: FunctionIdentity
    function: Function | None = field(default=None, compare=False)
    """None if only its text is known."""

    @classmethod
    def of(cls, function: Any, parameters: Sequence[str], what: str) -> UserFunction:
        """Returns the function with these parameters where it is compiled; raises OptionError if it cannot be one."""
        shown = f"f({', '.join(parameters)})"
        if isinstance(function, KeyedFunction):
            raise OptionError(f"{what}: {function!r} is a keyed function already", todo="write @sl.keyed(…) once")
        many, todo = len(parameters), f"write def {shown}: …"
        require_parameters(function, f"{what}: {function!r}", what, many, str(many), todo)
        if function.__code__.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
            raise OptionError(
                f"{what}: {function.__name__} is a generator or a coroutine",
                where=place_of(function),
                todo="set columns of out and return sl.EMIT",
            )
        identity = identity_of(function, parameters)
        if identity.parts[0].tree is None:
            raise OptionError(
                f"{what}: the source of {function.__name__} cannot be read",
                where=place_of(function),
                todo="write the function in a file or a notebook, not at a prompt and not with exec or eval",
            )
        return cls(identity, function)

    @property
    def text(self) -> str:
        """The text of the function in stream.json."""
        return self.identity.text

    @property
    def name(self) -> str:
        """For messages."""
        return "" if self.function is None else str(getattr(self.function, "__name__", ""))

    @cached_property
    def use(self) -> Use:
        """The columns that it names."""
        tree = self.identity.parts[0].tree if self.identity.parts else None
        return Use() if tree is None else use_of(tree)

    def __reduce__(self) -> tuple[Any, ...]:
        return UserFunction, (self.identity, self.function)


@dataclass(frozen=True, repr=False)
class KeyedFunction:
    """A function that `keyed` has made an operator: `stream.apply(…)` takes it."""

    main: UserFunction
    state: Columns
    output: Columns
    expire: int | None = None
    """In the time of the input."""
    on_expire: UserFunction | None = None
    emit: int = 1
    """Results of one call at most."""
    version: int = 1
    expire_has_unit: bool = field(default=True, compare=False)
    """True if `expire` was written with a unit of time; a plain number means one only over integer times."""
    optional: tuple[str, ...] = field(default=(), compare=False)
    """Columns that some streams of a union need not have: they are null there. What that makes of each stream is part
    of the operator, see `InputShapes`."""

    @property
    def name(self) -> str:
        """For messages."""
        return self.main.name

    def __repr__(self) -> str:
        return f"<keyed function {self.name}>"

    def names(self, column: str) -> bool:
        """Returns whether the function names this column of rows."""
        return column in self.main.use.columns["row"]

    @property
    def nulls(self) -> dict[str, set[str]]:
        """The columns of which either function asks or says that they are null, by parameter."""
        every = [self.main, *([] if self.on_expire is None else [self.on_expire])]
        return {p: set().union(*(one.use.nulls[p] for one in every)) for p in PARAMETERS}

    def __call__(self, *_: Any) -> Any:
        """Says what to do instead: the function is called by the operator."""
        raise OptionError(f"{self.name} is an operator and cannot be called", todo=f"write stream.apply({self.name})")


def keyed(
    *,
    state: str,
    output: str,
    expire: Duration | None = None,
    on_expire: Function | None = None,
    emit: int = 1,
    version: int = 1,
    optional: str = "",
) -> Callable[[Function], KeyedFunction]:
    """Makes an operator of a function `f(state, row, out)`, which is compiled and called once a tuple.

    `state` and `output` are columns, `"n long, mean double"`. The function returns `sl.EMIT` if `out` is a result,
    `sl.CLOSE` if the state of the key is to be forgotten, their sum, or 0; with `emit=2` it sets `out[0].…` and
    `out[1].…` and returns `2 * sl.EMIT`. With `expire` a key of which nothing comes for so long is closed, and
    `on_expire(state, out)` may return `sl.EMIT` then. A function that was changed is refused over a stream that the old
    one has made, unless a later `version` says that the change is meant. `optional="price, pieces"` names columns that
    some streams of a union do not have: they are null in the tuples of those, `row.is_null("price")`.
    Raises OptionError or SchemaError if the function cannot be one; whether it compiles is known when it is applied to
    a stream, whose columns it reads.
    """
    names = _columns(state, "state"), _columns(output, "output")
    if not names[1]:
        raise OptionError("keyed: output has no columns", todo='name those of the results: output="z double"')
    for option, value, least, most in (("emit", emit, 1, EMIT_MAX), ("version", version, 1, 1 << 31)):
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise OptionError(f"keyed: {option}={value!r}", todo=f"use a number from {least} to {most}")
    may_lack = _names(optional)
    reach = None if expire is None else duration_us(expire, "expire")
    if reach is not None and not 0 < reach <= EXPIRE_MAX:
        raise OptionError(f"keyed: expire={expire!r}", todo='use a duration like "1 hour"')
    if on_expire is not None and reach is None:
        raise OptionError("keyed: on_expire without expire", todo='say when keys expire: keyed(expire="1 hour", …)')

    def decorate(function: Function) -> KeyedFunction:
        main = UserFunction.of(function, PARAMETERS, "keyed")
        last = None if on_expire is None else UserFunction.of(on_expire, EXPIRY_PARAMETERS, "keyed: on_expire")
        return KeyedFunction(main, *names, reach, last, emit, version, has_unit(expire), may_lack)

    return decorate


_TYPES_TODO = "use integers, floats, booleans, dates, timestamps, decimals of up to 18 digits, texts or binary"
_COLUMNS_TODO = f'write it like "n long, mean double"; {_TYPES_TODO}'


def _names(text: Any) -> tuple[str, ...]:
    """Returns the names of columns that a text lists."""
    found = tuple(name.strip() for name in text.split(",")) if isinstance(text, str) and text.strip() else ()
    if not isinstance(text, str) or not all(name.isidentifier() for name in found):
        raise OptionError(
            f"keyed: optional={text!r} does not name columns", todo='write their names: optional="price, pieces"'
        )
    return found


def _columns(text: Any, option: str) -> Columns:
    """Returns the columns that a text names; raises if they cannot be those of state or of results."""
    if not isinstance(text, str):
        raise OptionError(f"keyed: {option}={text!r} is not a text", todo='write it like "n long, mean double"')
    found = columns_of(text, option, _COLUMNS_TODO)
    seen: set[str] = set()
    for name, kind in found:
        if name.startswith("_") or name in _RESERVED:
            raise SchemaError(
                f"keyed: a column of {option} cannot be called {name!r}: that name is reserved",
                todo="choose another name",
            )
        if not name.isidentifier() or keyword.iskeyword(name):
            raise SchemaError(
                f"keyed: a column of {option} is called {name!r}, which cannot be an attribute",
                todo="use letters, digits and _",
            )
        if name.lower() in seen:
            raise SchemaError(f"keyed: two columns of {option} are called {name!r}", todo="rename one of them")
        seen.add(name.lower())
        if not is_computable(kind):
            raise SchemaError(f"keyed: {name} of {option} is a {kind}", todo=_TYPES_TODO)
    if len(found) > COLUMNS_MAX:
        raise SchemaError(f"keyed: {option} has {len(found)} columns", todo=f"use at most {COLUMNS_MAX}")
    return found
