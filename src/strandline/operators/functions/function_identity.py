"""The identity of a user's function: a text that changes with its meaning, and not with its spelling.

Operators compile functions of their users, and a stream that such a function has made can only be continued by the
same one. The same: with the same statements, the same values of all constants that it closes over or takes from
modules, and the same functions behind it, all the way down. Parameters may be called otherwise, comments and blanks do
not count. A lambda is found in its file by the position of its code; of a function whose source cannot be had (typed at
a prompt, made by `exec`) the compiled code is the identity, which another version of Python compiles to another one.

The sources travel with the function, values in the places of their names, so that a task on another machine computes
with the constants of the program that defined it, whatever its own modules say.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import hashlib
import linecache
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from strandline.errors import OptionError
from strandline.operators.functions.function_references import (
    MISSING,
    is_random,
    local_names,
    plain_value,
    python_function,
    references,
    unknown_names,
)
from strandline.operators.functions.name_scopes import NamesByScope, bound_by, declared_global, parameters_of, words_in

Function = Callable[..., Any]
_STEADY: Final = ("math", "cmath", "numpy")
"""Modules whose constants are the same everywhere."""
MAIN: Final = "_main"
"""The name of the function itself where it is compiled."""


@dataclass(frozen=True)
class FunctionPart:
    """One of the functions that make up a function: itself, or one that it calls."""

    name: str
    source: str | None
    """`def name(…)`, values in their places; None if it cannot be had."""
    located: ast.FunctionDef | None = field(default=None, compare=False, repr=False)
    """The same with the lines of the file; stays where the function was defined."""

    def __reduce__(self) -> tuple[Any, ...]:
        return FunctionPart, (self.name, self.source)

    @property
    def tree(self) -> ast.FunctionDef | None:
        """Its source as a tree, a new one each time; None if it cannot be had."""
        if self.located is not None:
            return _copied(self.located)  # type: ignore[no-any-return]
        return None if self.source is None else ast.parse(self.source).body[0]  # type: ignore[return-value]


@dataclass(frozen=True)
class FunctionIdentity:
    """A function, equal to another of the same text."""

    text: str
    parts: tuple[FunctionPart, ...] = field(default=(), compare=False)
    """The function itself, then those that it calls, as `functions_of` finds them."""


def identity_of(function: Function, parameters: Sequence[str]) -> FunctionIdentity:
    """Returns the identity of a function whose parameters are called so in its text.

    Raises OptionError if it reads a value that no compiled function can use, or that cannot be told by its code alone,
    or that would be another one in a replay.
    """
    every = functions_of(function)
    for one in every.values():
        _require_steady(one)
    names = {id(one): name for name, one in every.items()}
    parts = tuple(_part(name, one, names, parameters if one is function else None) for name, one in every.items())
    texts = [_text(part, one) for part, one in zip(parts, every.values(), strict=True)]
    helpers = [f"{part.name}: {text}" for part, text in zip(parts[1:], texts[1:], strict=True)]
    return FunctionIdentity("; ".join([texts[0], *helpers]), parts)


def functions_of(function: Function) -> dict[str, types.FunctionType]:
    """Returns the function and all Python functions that it calls, directly or not, each by a name of its own."""
    assert isinstance(function, types.FunctionType)
    paths: dict[int, str] = {}
    every: dict[int, types.FunctionType] = {}
    hidden: dict[int, set[str]] = {}  # names under which those that call a function would find something else

    def add(one: types.FunctionType, path: str) -> None:
        paths[id(one)], every[id(one)] = path, one
        for called, value in sorted(references(one).items()):
            helper = python_function(value)
            if helper is not None:
                hidden.setdefault(id(helper), set()).update(local_names(one.__code__))
                if id(helper) not in every:
                    add(helper, called.replace(".", "_"))

    add(function, MAIN)
    found: dict[str, types.FunctionType] = {}
    for key, one in every.items():
        chosen, number = paths[key], 2
        while one is not function and (chosen in found or hasattr(builtins, chosen) or chosen in hidden[key]):
            chosen, number = f"{paths[key]}{number}", number + 1
        found[chosen] = one
    return found


def place_of(function: Function) -> str:
    """Returns where it is written, for errors."""
    code = function.__code__
    return f"{code.co_filename}, line {code.co_firstlineno}"


# ---------------------------------------------------------------------- sources


def _part(
    name: str, function: types.FunctionType, names: Mapping[int, str], parameters: Sequence[str] | None
) -> FunctionPart:
    found = references(function)
    node = _node_of(function)
    if node is None:
        _require_known_by_code(function, found)
        return FunctionPart(name, None)
    written = _ByValue(node, parameters or (), found, names, function)
    made = ast.parse(f"def {name}(): pass").body[0]
    assert isinstance(made, ast.FunctionDef)
    made.args = written.arguments(node.args)
    made.body = [written.visit(_copied(statement)) for statement in _body(node)]
    located = ast.fix_missing_locations(ast.copy_location(made, node))
    return FunctionPart(name, ast.unparse(located), located)


def _require_steady(function: types.FunctionType) -> None:
    """Raises OptionError if it reads what has no value yet, or calls what comes out otherwise each time."""
    for name in unknown_names(function):
        raise OptionError(
            f"{function.__name__}: {name} has no value yet, and Strandline keeps the values that a function reads",
            where=place_of(function),
            todo=f"define {name} before the function",
        )
    for path, value in references(function).items():
        if is_random(value):
            raise OptionError(
                f"{function.__name__}: {path} gives another value each time, also when the same tuples are replayed",
                where=place_of(function),
                todo="compute the value from columns of the stream",
            )


def _node_of(function: types.FunctionType) -> ast.Lambda | ast.FunctionDef | None:
    """Returns the function in its file; None if it cannot be had, or if the file has another one by now."""
    code = function.__code__
    linecache.checkcache(code.co_filename)
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename, function.__globals__)))
        flags = code.co_flags & __future__.annotations.compiler_flag
        made = compile(tree, code.co_filename, "exec", flags=flags, dont_inherit=True)
    except (SyntaxError, ValueError):
        return None
    found = [node for node in ast.walk(tree) if _is_of(node, code)]
    is_same = any(_code(one) == _code(code) for one in _codes(made) if one.co_firstlineno == code.co_firstlineno)
    return found[0] if len(found) == 1 and is_same else None  # type: ignore[return-value]


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yields the code and all codes inside of it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _is_of(node: ast.AST, code: types.CodeType) -> bool:
    if isinstance(node, ast.FunctionDef):
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        return node.name == code.co_name and first == code.co_firstlineno
    if not isinstance(node, ast.Lambda) or code.co_name != "<lambda>" or node.lineno != code.co_firstlineno:
        return False
    body = node.body
    return (body.lineno, body.end_lineno, body.col_offset, body.end_col_offset) in set(code.co_positions())


def _body(node: ast.Lambda | ast.FunctionDef) -> list[ast.stmt]:
    """Returns its statements without the docstring."""
    if isinstance(node, ast.Lambda):
        return [ast.copy_location(ast.Return(node.body), node.body)]
    body = node.body
    value = body[0].value if isinstance(body[0], ast.Expr) else None
    is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
    return body[1:] if is_text and len(body) > 1 else body


class _ByValue(NamesByScope):
    """Parameters by their usual names, values in the places of theirs, functions by the names of their parts.

    Nothing inside is called like a parameter of the function, so that those mean the same everywhere in it.
    """

    def __init__(
        self,
        node: ast.Lambda | ast.FunctionDef,
        parameters: Sequence[str],
        found: Mapping[str, Any],
        names: Mapping[int, str],
        function: types.FunctionType,
    ) -> None:
        self._parameters = parameters
        self._found = found
        self._names = names
        self._function = function
        self._words = words_in(node) | {*parameters, *names.values()}
        body, arguments = _body(node), [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
        local = bound_by(body) | {a.arg for a in parameters_of(node.args)}
        scope: dict[str, str | None] = {name: self.called(name) for name in local}
        scope |= dict(zip(arguments, parameters, strict=False))
        super().__init__(scope | dict.fromkeys(declared_global(body)))

    def arguments(self, given: ast.arguments) -> ast.arguments:
        """Returns the parameters without annotations, what they are by default written by value."""
        keywords, what = self._function.__kwdefaults__ or {}, f"a default of {self._function.__name__}"
        made: ast.arguments = _copied(given)
        made.defaults = [_literal_of(what, value, self._function) for value in self._function.__defaults__ or ()]
        made.kw_defaults = [
            _literal_of(what, keywords[a.arg], self._function) if a.arg in keywords else None for a in given.kwonlyargs
        ]
        self._rename_parameters(made)
        for one in parameters_of(made):
            one.annotation = None
        return made

    def called(self, name: str) -> str:
        """Returns the name, or an unused one if it is that of a parameter."""
        chosen = name
        while chosen in self._parameters or (chosen != name and chosen in self._words):
            chosen += "_"
        return chosen

    def from_outside(self, path: str, node: ast.Name | ast.Attribute) -> ast.AST | None:
        """Returns the value, or the name of the part; None for modules, builtins and what is compiled by others."""
        value = self._found.get(path, MISSING)
        helper = python_function(value)
        if helper is not None:
            return ast.copy_location(ast.Name(self._names[id(helper)], ast.Load()), node)
        if value is MISSING or isinstance(value, types.ModuleType) or callable(value):
            return None
        return ast.copy_location(_literal_of(path, value, self._function), node)


def _literal_of(name: str, value: Any, function: types.FunctionType) -> ast.expr:
    plain = plain_value(value)
    if plain is MISSING:
        raise OptionError(
            f"{name} is a {type(value).__name__}, which a compiled function cannot use",
            where=place_of(function),
            todo="use columns, numbers, texts, tuples of them, and functions",
        )
    return _literal(plain)


def _literal(value: Any) -> ast.expr:
    if isinstance(value, tuple):
        return ast.Tuple([_literal(part) for part in value], ast.Load())
    if isinstance(value, float) and math.isnan(value):
        return ast.BinOp(ast.Constant(math.inf), ast.Sub(), ast.Constant(math.inf))
    if isinstance(value, float) and math.isinf(value):
        return ast.Constant(value) if value > 0 else ast.UnaryOp(ast.USub(), ast.Constant(-value))
    return ast.parse(repr(value), mode="eval").body


def _copied(node: Any) -> Any:
    """Returns the tree with its lines, so that what is done to it leaves the other as it is."""
    if isinstance(node, ast.AST):
        fields = {name: _copied(value) for name, value in ast.iter_fields(node)}
        return ast.copy_location(type(node)(**fields), node)
    return [_copied(one) for one in node] if isinstance(node, list) else node


# ---------------------------------------------------------------------- texts


def _text(part: FunctionPart, function: types.FunctionType) -> str:
    """Returns what the source says; of a function without one, a digest of its code."""
    tree = part.tree
    if tree is None:
        return f"code {_digest(function)}"
    only = tree.body[0]
    if part.name == MAIN and len(tree.body) == 1 and isinstance(only, ast.Return) and only.value is not None:
        return ast.unparse(only.value)
    return ast.unparse(tree)


def _require_known_by_code(function: types.FunctionType, found: Mapping[str, Any]) -> None:
    """Raises OptionError if a value cannot be frozen into the code, so that elsewhere it might be another one."""
    for path, value in found.items():
        root = found.get(path.partition(".")[0], function.__globals__.get(path.partition(".")[0]))
        is_steady = getattr(root, "__name__", "") in _STEADY
        if "." in path and plain_value(value) is not MISSING and not is_steady:
            name = path.rpartition(".")[2].lower()
            raise OptionError(
                f"{function.__name__} reads {path}, and its source cannot be read, so that Strandline cannot keep the "
                "value with the function",
                where=place_of(function),
                todo=f"write the function in a file or a notebook; or {name} = {path} before it, and use {name}",
            )


def _digest(function: types.FunctionType) -> str:
    """Returns a digest of the code and of the values that it reads; functions that it calls have texts of their own."""
    read = []
    for path, value in sorted(references(function).items()):
        plain = plain_value(value)
        read.append((path, "" if plain is MISSING else repr(plain)))
    defaults = (function.__defaults__, sorted((function.__kwdefaults__ or {}).items()))
    told = (_code(function.__code__), read, repr(defaults))
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


def _code(code: types.CodeType) -> tuple[Any, ...]:
    return code.co_code, code.co_names, [_constant(c) for c in code.co_consts]


def _constant(value: Any) -> Any:
    if isinstance(value, types.CodeType):
        return _code(value)
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)
