"""`class Model(sl.Operator)`: an operator that a user writes as a class, one object of it a partition."""

from __future__ import annotations

import copy
import inspect
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import pyarrow as pa

from strandline.errors import OptionError

_GIVEN = "_strandline_given"
"""The attribute of an object that says what its class was called with."""


class UserOperator:
    """The base of users' operators, `sl.Operator`: a class derives from it with `output`, `time` and these methods.

    A partition has one object, which any Python library may work in. What its class was called with is part of what the
    operator is, so it has to be JSON: numbers, texts, truth values, None, lists and dictionaries of them.

    Results must not depend on how tuples are cut into tables, nor on how often time is told to have passed.
    `sl.testing.check_operator` tries that out.
    """

    output: ClassVar[str]
    """The columns of results, as in "wafer long, at timestamp, quality double"; the input's key is among them."""
    time: ClassVar[str]
    """The column among them that is the time of a result."""
    version: ClassVar[int] = 1
    """To be raised when the class computes otherwise and is to go on with the state that it has."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Returns an object that remembers what it was made with; its `__init__` need not know."""
        if cls.__init__ is object.__init__ and (args or kwargs):
            raise TypeError(f"{cls.__name__}() takes no arguments")
        made = super().__new__(cls)
        object.__setattr__(made, _GIVEN, (copy.deepcopy(args), copy.deepcopy(kwargs)))
        return made

    def process(self, tuples: pa.Table) -> pa.Table | None:
        """Takes in tuples, in their order; returns the results that come of them, or None."""
        raise NotImplementedError

    def advance(self, boundary: int) -> pa.Table | None:
        """Takes in that no tuple before this time will follow; returns the results that come of it, or None.

        Optional. Times are whole numbers, timestamps are microseconds since 1970.
        """
        raise NotImplementedError

    def get_checkpoint(self) -> dict[str, Any]:
        """Returns what `restore_checkpoint` needs: NumPy and Arrow arrays, numbers, booleans, texts, bytes, by name."""
        raise NotImplementedError

    def restore_checkpoint(self, state: dict[str, Any]) -> None:
        """Makes a new object what the one was of which `get_checkpoint` returned this."""
        raise NotImplementedError


def is_class(value: Any) -> bool:
    """Returns whether this is a class of operators that was not called."""
    return isinstance(value, type) and issubclass(value, UserOperator)


@dataclass(frozen=True)
class UserClass:
    """A user's class and what to call it with. Equal by what stream.json says of it."""

    name: str
    arguments: str
    """By name, as JSON."""
    version: int = 1
    code: type[UserOperator] | None = field(default=None, compare=False)
    """None where only the name is known."""
    given: tuple[tuple[Any, ...], dict[str, Any]] = field(default=((), {}), compare=False)

    @classmethod
    def of(cls, made: UserOperator) -> UserClass:
        """Returns the class of an object, with its arguments; raises OptionError if it cannot be an operator."""
        code = type(made)
        name = code.__qualname__.rpartition("<locals>.")[2]
        for method in ("process", "get_checkpoint", "restore_checkpoint"):
            if getattr(code, method) is getattr(UserOperator, method):
                raise OptionError(
                    f"{name} has no method {method}",
                    todo="an operator has process, get_checkpoint and restore_checkpoint; one without state returns {} "
                    "from get_checkpoint",
                )
        version = code.version
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise OptionError(f"{name}.version is {version!r}", todo="versions are whole numbers from 1 on")
        given: tuple[tuple[Any, ...], dict[str, Any]] = getattr(made, _GIVEN)
        return cls(name, _as_json(name, _bound(code, *given)), version, code, given)

    @property
    def has_advance(self) -> bool:
        """True if the class does anything when time passes; unknown of a class that is not here."""
        return self.code is not None and self.code.advance is not UserOperator.advance

    def made(self) -> UserOperator:
        """Returns a new object, made with arguments of its own."""
        assert self.code is not None
        args, kwargs = copy.deepcopy(self.given)
        return self.code(*args, **kwargs)


def _bound(code: type[UserOperator], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments by name, defaults among them."""
    if code.__init__ is object.__init__:
        return {}
    call = inspect.signature(code.__init__).bind(None, *args, **kwargs)
    call.apply_defaults()
    _, *found = call.arguments.items()  # without self
    return dict(found)


def _as_json(name: str, arguments: Mapping[str, Any]) -> str:
    for argument, value in arguments.items():
        if (wrong := _not_json(value, argument)) is not None:
            raise OptionError(
                f"{name}: the argument {wrong} is not JSON, so it cannot be part of what the operator is",
                todo="pass numbers, texts, truth values, None, lists and dictionaries with texts as keys; let __init__ "
                "make or load anything else",
            )
    return json.dumps(arguments, sort_keys=True)


def _not_json(value: Any, place: str) -> str | None:
    """Returns where in the value something is that JSON does not have, and what; None if nothing is."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{place} = {value}"
    if value is None or isinstance(value, bool | int | float | str):
        return None
    if isinstance(value, list | tuple):
        return next((w for i, v in enumerate(value) if (w := _not_json(v, f"{place}[{i}]"))), None)
    if isinstance(value, dict):
        odd = next((k for k in value if not isinstance(k, str)), None)
        if odd is not None:
            return f"{place} with a key of type {type(odd).__name__}"
        return next((w for k, v in value.items() if (w := _not_json(v, f"{place}[{k!r}]"))), None)
    return f"{place} of type {type(value).__module__}.{type(value).__qualname__}"
