"""The values that a function reads from outside: constants, modules, other functions, by the names that it uses.

Found in its code, not by its spelling: a column that is called like a function of the module is no reference to it.
"""

from __future__ import annotations

import builtins
import dis
import enum
import random
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import numpy as np

MISSING: Final = object()
_LEADS_ON: Final = (types.ModuleType, type, enum.Enum)
"""Values that are followed by the names of their attributes: cfg.LIMIT, Limits.SMALL, Colour.RED.value."""


def references(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns the values of all names that the function closes over or takes from its module, builtins apart.

    An attribute of a module or of a class has its path, `cfg.LIMIT`, and the value that it has now.
    """
    outside = dict(function.__globals__)
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            outside[name] = cell.cell_contents
        except ValueError:  # it has no value yet
            outside.pop(name, None)
    found: dict[str, Any] = {}
    for path in _paths(code, set(code.co_freevars)):
        name, *attributes = path
        if name not in outside:
            continue
        value, known = outside[name], [name]
        for attribute in attributes:
            if not isinstance(value, _LEADS_ON) or not hasattr(value, attribute):
                break
            value = getattr(value, attribute)
            known.append(attribute)
        found[".".join(known)] = value
    return found


def unknown_names(function: Callable[..., Any]) -> list[str]:
    """Returns the names that the function takes from outside, and that have no value yet."""
    code, closure = function.__code__, function.__closure__ or ()
    known = {*function.__globals__, *vars(builtins)} - set(code.co_freevars)
    for name, cell in zip(code.co_freevars, closure, strict=True):
        with suppress(ValueError):
            cell.cell_contents  # noqa: B018
            known.add(name)
    return sorted({path[0] for path in _paths(code, set(code.co_freevars))} - known)


def is_random(value: Any) -> bool:
    """Returns whether it is a function that returns another number each time."""
    return isinstance(getattr(value, "__self__", None), (random.Random, np.random.RandomState))


def _paths(code: types.CodeType, free: set[str]) -> Iterator[list[str]]:
    """Names from outside that the code loads, each with the attributes that it loads of it at once."""
    path: list[str] = []
    for one in dis.get_instructions(code):
        if one.opname == "EXTENDED_ARG":
            continue
        if path and one.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            path.append(str(one.argval))
            continue
        if path:
            yield path
            path = []
        is_free = one.opname in ("LOAD_DEREF", "LOAD_CLASSDEREF") and one.argval in free
        if is_free or one.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            path = [str(one.argval)]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):  # a lambda or a comprehension inside
            yield from _paths(constant, free & set(constant.co_freevars))


def local_names(code: types.CodeType) -> set[str]:
    """Returns all names that belong to the function or to one inside of it."""
    inside = [local_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return {*code.co_varnames, *code.co_cellvars}.union(*inside)


def python_function(value: Any) -> types.FunctionType | None:
    """Returns the function, or the one that was compiled by Numba; None for anything else."""
    value = getattr(value, "py_func", value)
    return value if isinstance(value, types.FunctionType) else None


def plain_value(value: Any) -> Any:
    """Returns a number, text, bytes, None, or a tuple of them, of Python's own types; MISSING for any other value."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):  # of an enumeration, too
        return int(value)
    if isinstance(value, (float, complex)):
        return float(value) if isinstance(value, float) else complex(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, tuple):
        parts = tuple(map(plain_value, value))
        return MISSING if any(part is MISSING for part in parts) else parts
    return MISSING
