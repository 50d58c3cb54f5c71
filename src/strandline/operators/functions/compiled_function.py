"""Functions of users, compiled by Numba with all that they call; or what Numba has against them, in short.

Every function is compiled from its source as `function_identity` has it, values in their places, in the namespace of
the module that it comes from. One that calls itself, or one that calls it, finds itself compiled.
"""

from __future__ import annotations

import ast
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from strandline.clock import stopwatch_s
from strandline.errors import OptionError
from strandline.operators.functions.function_identity import MAIN, FunctionPart, functions_of, place_of
from strandline.operators.functions.function_references import python_function, references
from strandline.operators.kernels.kernel_cache import TALLY, njit

_SHOWN = 300
_NOISE = ("Failed in", "During:", "File ", "^", "-", "Raised from")


def compiled(
    function: Callable[..., Any],
    parts: Sequence[FunctionPart],
    names: Mapping[str, Any] | None = None,
    *,
    boundscheck: bool = False,
) -> Any:
    """Returns what Numba will make of the function when it is first called; `parts` are those of its identity.

    The first of them may be another one than the function has, which knows further `names`. With `boundscheck`, places
    outside of an array raise IndexError.
    """
    every = functions_of(function)
    spaces = {part.name: _Space(every[part.name], part, names if part.name == MAIN else None) for part in parts}
    made = {name: njit(boundscheck=boundscheck)(space.function) for name, space in spaces.items()}
    for space in spaces.values():
        space.provide(every, made)
    return made[MAIN]


class _Space:
    """A function as it is to be compiled, and the names that it knows."""

    def __init__(self, function: types.FunctionType, part: FunctionPart, names: Mapping[str, Any] | None) -> None:
        self._original = function
        self._names = {**function.__globals__, **(names or {})}
        self._tree = part.tree
        code = function.__code__
        cells = [types.CellType(*([] if _is_empty(c) else [c.cell_contents])) for c in function.__closure__ or ()]
        self._cells = dict(zip(code.co_freevars, cells, strict=True))
        if self._tree is None:
            made = types.FunctionType(code, self._names, function.__name__, function.__defaults__, tuple(cells))
            made.__kwdefaults__ = function.__kwdefaults__
            self.function = made
            return
        self._names |= {name: cell.cell_contents for name, cell in self._cells.items() if not _is_empty(cell)}
        module = ast.fix_missing_locations(ast.Module([self._tree], []))
        found: dict[str, Any] = {}
        exec(compile(module, code.co_filename, "exec"), self._names, found)
        self.function = found[part.name]

    def provide(self, every: dict[str, types.FunctionType], made: dict[str, Any]) -> None:
        """Puts compiled functions into the places of those that this one calls; what is compiled already stays."""
        for path, value in references(self._original).items():
            helper = python_function(value)
            if helper is None:
                continue
            part = next(name for name, one in every.items() if one is helper)
            final = made[part] if value is helper else value
            if self._tree is not None:  # where all of them have the names of their parts
                self._names[part] = final
            elif path in self._cells:
                self._cells[path].cell_contents = final
            elif "." not in path:
                self._names[path] = final


def _is_empty(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


@contextmanager
def first_call(function: Callable[..., Any], what: str, todo: str) -> Iterator[None]:
    """Lets what happens inside be the first call of what was compiled: its time is counted as that of a kernel.

    Whatever goes wrong with it is an OptionError with the line of the function and Numba's reason in short.
    """
    with counted():
        try:
            yield
        except Exception as problem:
            line = line_in(problem, function)
            raise OptionError(f"{what}: it does not compile: {short(problem)}", where=line, todo=todo) from None


@contextmanager
def counted() -> Iterator[None]:
    """Counts the time of what happens inside, a first call, as that of a kernel."""
    began_s, before_s = stopwatch_s(), TALLY.seconds
    try:
        yield
    finally:
        TALLY.compiled += 1
        TALLY.seconds += max(0.0, stopwatch_s() - began_s - (TALLY.seconds - before_s))


def short(problem: Exception) -> str:
    """Returns what Numba says, without where in its own insides."""
    lines = [line.strip() for line in str(problem).splitlines()]
    wanted = [line for line in lines if line and not line.startswith(_NOISE)]
    return " ".join(wanted[:2])[:_SHOWN] or type(problem).__name__


def line_in(problem: Exception, function: Callable[..., Any]) -> str:
    """Returns the file and the line of what Numba does not compile; those of the function if it does not say."""
    files = {one.__code__.co_filename for one in functions_of(function).values()}
    found = re.search(r"\bat (\S+) \((\d+)\)", str(problem))
    return f"{found[1]}, line {found[2]}" if found and found[1] in files else place_of(function)
