"""The source of a function of two tuples, in a form that is the same wherever and whenever it is written down.

A lambda is found in its file by the position of its code. Its parameters are called left and right, numbers and texts
that it closes over or takes from its module stand in their places by value. So the text changes when the meaning does.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import inspect
import linecache
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from strandline.errors import OptionError

PARAMETERS = ("left", "right")
_VALUES = (bool, int, float, complex, str, bytes, type(None))


def tree_of(function: Callable[..., Any]) -> ast.FunctionDef | None:
    """The function as `def where(left, right)`, values in their places; None if its source cannot be had."""
    node = _node_of(function)
    if node is None:
        return None
    names = dict(zip((a.arg for a in node.args.args), PARAMETERS, strict=True))
    made = ast.parse(f"def where({', '.join(PARAMETERS)}): pass").body[0]
    assert isinstance(made, ast.FunctionDef)
    made.body = _body(node, names, function)
    return ast.fix_missing_locations(made)


def _helper_tree(function: Callable[..., Any]) -> ast.FunctionDef | None:
    """A function that the function calls, values in their places."""
    node = _node_of(function)
    if not isinstance(node, ast.FunctionDef):
        return None
    made = ast.FunctionDef(node.name, node.args, _body(node, {}, function), [], lineno=1, col_offset=0)
    return ast.fix_missing_locations(made)


def _node_of(function: Callable[..., Any]) -> ast.Lambda | ast.FunctionDef | None:
    code = function.__code__
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename, function.__globals__)))
    except (SyntaxError, ValueError):
        return None
    found = [node for node in ast.walk(tree) if _is_of(node, code)]
    return found[0] if len(found) == 1 else None  # type: ignore[return-value]


def _body(node: ast.Lambda | ast.FunctionDef, names: Mapping[str, str], function: Callable[..., Any]) -> list[ast.stmt]:
    body: list[ast.stmt] = [ast.Return(node.body)] if isinstance(node, ast.Lambda) else _without_docstring(node.body)
    written = _ByValue(names, values_of(function))
    return [written.visit(statement) for statement in body]


def text_of(function: Callable[..., Any], tree: ast.FunctionDef | None) -> str:
    """What tells the function from others: its source, or a digest of its code if that cannot be had."""
    if tree is None:
        return f"code {_digest(function.__code__, values_of(function))}"
    helpers = [
        f"{name}: {text_of(helper, _helper_tree(helper))}"
        for name, value in sorted(values_of(function).items())
        if (helper := _python_function(value)) is not None
    ]
    only = tree.body[0]
    is_one = tree.name == "where" and len(tree.body) == 1 and isinstance(only, ast.Return) and only.value is not None
    return "; ".join([ast.unparse(only.value if is_one else tree), *helpers])  # type: ignore[attr-defined]


def values_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The values of names that the function closes over or takes from its module, builtins apart."""
    found = inspect.getclosurevars(function)
    return {**found.globals, **found.nonlocals}


def require_two_parameters(function: Any) -> None:
    """Raises OptionError unless the function can be called with a left and a right tuple."""
    if not isinstance(function, types.FunctionType):
        raise OptionError(f"where({function!r}) is not a function", todo="write where(lambda left, right: …)")
    code = function.__code__
    if code.co_argcount != 2 or code.co_kwonlyargcount or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        raise OptionError(
            f"where: {function.__name__} does not have two parameters",
            where=f"{code.co_filename}, line {code.co_firstlineno}",
            todo="write where(lambda left, right: …)",
        )


def _is_of(node: ast.AST, code: types.CodeType) -> bool:
    if isinstance(node, ast.FunctionDef):
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        return node.name == code.co_name and first == code.co_firstlineno
    if not isinstance(node, ast.Lambda) or code.co_name != "<lambda>" or node.lineno != code.co_firstlineno:
        return False
    body = node.body
    return (body.lineno, body.end_lineno, body.col_offset, body.end_col_offset) in set(code.co_positions())


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    value = body[0].value if isinstance(body[0], ast.Expr) else None
    is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
    return body[1:] if is_text and len(body) > 1 else body


class _ByValue(ast.NodeTransformer):
    """Parameters by their usual names, values in the places of their names."""

    def __init__(self, names: Mapping[str, str], values: Mapping[str, Any]) -> None:
        self._names = names
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """A parameter, a value, or what it was."""
        if node.id in self._names:
            return ast.Name(self._names[node.id], node.ctx)
        if node.id not in self._values:
            return node
        value = self._values[node.id]
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, _VALUES):
            return ast.parse(repr(value), mode="eval").body
        if isinstance(value, types.ModuleType) or _python_function(value) is not None or callable(value):
            return node
        raise OptionError(
            f"where: {node.id} is a {type(value).__name__}, which a condition cannot use",
            todo="use columns of left and right, numbers, texts and functions",
        )


def _python_function(value: Any) -> types.FunctionType | None:
    """A function, or the one that was compiled."""
    value = getattr(value, "py_func", value)
    return value if isinstance(value, types.FunctionType) else None


def _digest(code: types.CodeType, values: Mapping[str, Any]) -> str:
    parts = [code.co_code, code.co_names, code.co_varnames[:2]]
    for constant in code.co_consts:
        parts.append(_digest(constant, {}) if isinstance(constant, types.CodeType) else repr(constant))
    for name, value in sorted(values.items()):
        helper = _python_function(value)
        is_plain = isinstance(value, (*_VALUES, np.generic)) and not hasattr(builtins, name)
        parts.append((name, _digest(helper.__code__, {}) if helper else repr(value) if is_plain else ""))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
