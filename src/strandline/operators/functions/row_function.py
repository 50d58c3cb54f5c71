"""Functions of rows, as users write them: their parameters, the columns that they name, the texts in them."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

from strandline.errors import OptionError
from strandline.operators.functions.function_identity import place_of


def require_parameters(function: Any, shown: str, what: str, count: int, many: str, todo: str) -> None:
    """Raises OptionError unless this is a Python function with so many plain parameters.

    `shown` is the call that was given it, `what` the name of the option, `many` the count in words.
    """
    if not isinstance(function, types.FunctionType):
        raise OptionError(f"{shown} is not a function", todo=todo)
    code = function.__code__
    more = code.co_kwonlyargcount or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    if code.co_argcount != count or more:
        raise OptionError(
            f"{what}: {function.__name__} does not have {many} parameters", where=place_of(function), todo=todo
        )


def named_columns(
    tree: ast.AST, parameter_of: Callable[[ast.expr], str | None]
) -> Iterator[tuple[ast.Attribute, str, str]]:
    """Yields each attribute of a row in a function, with the parameter and the name of the column.

    `parameter_of` returns the parameter that an expression is, or None.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (parameter := parameter_of(node.value)) is not None:
            yield node, parameter, node.attr


def whole_row(name: str) -> tuple[str, str]:
    """Returns what is wrong with a row that is used as a whole, and what to do."""
    return f"{name} is used as a whole", f"name its columns, as in {name}.column"


def text_number(node: ast.Constant, texts: list[bytes]) -> int | None:
    """Returns the number of a constant text among `texts`, where it is added; None if the constant is no text."""
    if not isinstance(node.value, (str, bytes)):
        return None
    text = node.value.encode() if isinstance(node.value, str) else node.value
    if text not in texts:
        texts.append(text)
    return texts.index(text)


def compares_texts_only(node: ast.Compare) -> bool:
    """Returns whether a comparison is one that texts can have: == and != alone."""
    return all(isinstance(op, (ast.Eq, ast.NotEq)) for op in node.ops)
