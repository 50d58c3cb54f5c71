"""A user's function as Numba can compile it: what records cannot do is written in terms of what they can.

`x.is_null("c")`, `x.set_null("c")` and `state.is_new` become fields; setting a column that may be null says that it is
not. Texts are references to bytes: they can be compared with == and !=, copied to state and results, and have a `len`.
Everything else that names state, row or out in a way that would not work is refused with its line.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from strandline.errors import OptionError
from strandline.operators.functions.row_function import compares_texts_only, named_columns, text_number, whole_row
from strandline.operators.kernels.arrow_words import BYTES, FLOATS
from strandline.operators.keyed.record_layout import COUNT, NULL

TEXTS: Final = "_texts"
"""The parameter behind those of the user: where bytes are."""
SAME_TEXT: Final = "_same_text"
TEXT_LENGTH: Final = "_text_length"
"""Functions that rewritten ones call."""
_NULL_METHODS: Final = ("is_null", "set_null")


@dataclass
class Use:
    """Which columns a function names, and what it needs to know of them."""

    columns: dict[str, set[str]] = field(default_factory=lambda: {"state": set(), "row": set(), "out": set()})
    nulls: dict[str, set[str]] = field(default_factory=lambda: {"state": set(), "row": set(), "out": set()})
    """Those of which it asks or says that they are null."""


@dataclass(frozen=True)
class Surroundings:
    """The surroundings of a function: types of the columns of each parameter, how many results it may make."""

    kinds: Mapping[str, Mapping[str, str]]
    """By parameter."""
    emit: int
    refuse: Callable[[str, int, str], NoReturn]
    """Raises OptionError: what, in which line, what to do."""


def use_of(tree: ast.FunctionDef) -> Use:
    """Returns the columns that a function names, as far as that can be seen without knowing any."""
    found = Use()
    for node in ast.walk(tree):
        called = _null_call(node)
        if called is not None:
            found.nulls[called.parameter].add(called.column)
            found.columns[called.parameter].add(called.column)
    for _, parameter, column in named_columns(tree, _parameter):
        if column not in (*_NULL_METHODS, "is_new"):
            found.columns[parameter].add(column)
    return found


@dataclass(frozen=True)
class _NullCall:
    parameter: str
    base: ast.expr
    method: str
    column: str


def _parameter(node: ast.expr) -> str | None:
    """Returns the parameter whose columns are attributes of this: state, row, out or out[i]."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "out":
        return "out"
    return node.id if isinstance(node, ast.Name) and node.id in ("state", "row", "out") else None


def _column_of(node: ast.expr) -> tuple[str, str] | None:
    """Returns the parameter and the column, if it is one."""
    parameter = _parameter(node.value) if isinstance(node, ast.Attribute) else None
    return (parameter, node.attr) if isinstance(node, ast.Attribute) and parameter is not None else None


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _null_call(node: ast.AST) -> _NullCall | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    parameter = _parameter(node.func.value)
    if parameter is None or node.func.attr not in _NULL_METHODS or len(node.args) != 1 or node.keywords:
        return None
    name = node.args[0]
    if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
        return None
    return _NullCall(parameter, node.func.value, node.func.attr, name.value)


class Rewrite(ast.NodeTransformer):
    """Rewrites the tree of a function; raises OptionError about what cannot be."""

    def __init__(self, given: Surroundings, nulls: Mapping[str, set[str]], constants: list[bytes]) -> None:
        self._given = given
        self._nulls = nulls
        self.constants = constants
        """Texts that are written in functions; those of this one are added."""

    def of(self, tree: ast.FunctionDef) -> ast.FunctionDef:
        """Returns the function with one parameter more."""
        made = self.visit(tree)
        made.args.args.append(ast.arg(TEXTS))
        found: ast.FunctionDef = ast.fix_missing_locations(made)
        return found

    # ------------------------------------------------------------------ columns

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Replaces `state.is_new`; refuses columns that the function cannot use so."""
        parameter = _parameter(node.value)
        if parameter is None:
            return self.generic_visit(node)
        if parameter == "state" and node.attr == "is_new" and isinstance(node.ctx, ast.Load):
            count = ast.Attribute(node.value, COUNT, ast.Load())
            return ast.copy_location(ast.Compare(count, [ast.Eq()], [ast.Constant(0)]), node)
        if self._kind(parameter, node.attr, node) in BYTES:
            todo = "compare it with == or !=, take its len(), or set a column of state or out to it"
            self._refuse(f"{parameter}.{node.attr} is a text, with which nothing can be computed", node, todo)
        return self._column(node)

    def _column(self, node: ast.Attribute) -> ast.Attribute:
        """Returns the attribute as a field of a record."""
        parameter = str(_parameter(node.value))
        if parameter == "row" and not isinstance(node.ctx, ast.Load):
            self._refuse(f"row.{node.attr} is set", node, "rows are to be read; set columns of state or of out")
        return ast.copy_location(ast.Attribute(self._base(node.value), node.attr, node.ctx), node)

    def _base(self, node: ast.expr) -> ast.expr:
        """Returns state, row, out, or one of several results."""
        several = self._given.emit > 1
        if isinstance(node, ast.Subscript):
            if not several:
                self._refuse("out[…] of a function with one result", node, "write out.column, or keyed(…, emit=2)")
            return ast.Subscript(node.value, self.visit(node.slice), ast.Load())
        if isinstance(node, ast.Name) and node.id == "out" and several:
            self._refuse("out has several results", node, "write out[0].column, out[1].column, …")
        return node

    def _kind(self, parameter: str, column: str, node: ast.AST) -> str:
        kinds = self._given.kinds[parameter]
        if column in _NULL_METHODS:
            self._refuse(
                f"{parameter}.{column} is not called with the name of a column",
                node,
                f'write {parameter}.{column}("…"); set_null as a statement',
            )
        if column not in kinds:
            self._refuse(f"{parameter} has no column {column!r}", node, f"it has {', '.join(kinds) or 'none'}")
        return kinds[column]

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Refuses the names of whole records."""
        if node.id in ("state", "row", "out"):
            what, todo = whole_row(node.id)
            self._refuse(what, node, todo)
        return node

    # ------------------------------------------------------------------ nulls

    def visit_Expr(self, node: ast.Expr) -> Any:
        """Replaces `out.set_null("c")`; leaves any other expression."""
        called = _null_call(node.value)
        if called is None or called.method != "set_null":
            return self.generic_visit(node)
        kind = self._kind(called.parameter, called.column, node)
        if called.parameter == "row":
            self._refuse("row.set_null(…)", node, "rows are to be read; set columns of state or of out")
        nothing = False if kind == "boolean" else 0.0 if kind in FLOATS else 0
        base = self._base(called.base)
        return [self._set(base, called.column, nothing, node), self._set(base, NULL + called.column, True, node)]

    def _set(self, base: ast.expr, name: str, value: Any, node: ast.AST) -> ast.stmt:
        made = ast.Assign([ast.Attribute(base, name, ast.Store())], ast.Constant(value))
        return ast.fix_missing_locations(ast.copy_location(made, node))

    def _cleared(self, targets: list[ast.expr], node: ast.stmt) -> list[ast.stmt]:
        """Returns statements that say of columns just set that they are not null."""
        found = []
        for target in targets:
            for one in ast.walk(target):
                parameter = _parameter(one.value) if isinstance(one, ast.Attribute) else None
                if isinstance(one, ast.Attribute) and parameter is not None and one.attr in self._nulls[parameter]:
                    found.append(self._set(self._base(one.value), NULL + one.attr, False, node))
        return found

    def visit_Assign(self, node: ast.Assign) -> Any:
        """Marks a column that is set as not null; sets a text to a text."""
        for target in node.targets if _is_none(node.value) else []:
            if (column := _column_of(target)) is not None:
                parameter, name = column
                self._refuse(f"{parameter}.{name} is set to None", node, f'write {parameter}.set_null("{name}")')
        cleared = self._cleared(node.targets, node)
        if any(map(self._is_text, node.targets)):
            if len(node.targets) != 1:
                self._refuse("a text is set together with others", node, "write a statement for each of them")
            target = node.targets[0]
            assert isinstance(target, ast.Attribute)
            return [ast.copy_location(ast.Assign([self._column(target)], self._text(node.value)), node), *cleared]
        return [self.generic_visit(node), *cleared]

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        """Marks a column that += sets as not null."""
        return [self.generic_visit(node), *self._cleared([node.target], node)]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        """Drops the annotation."""
        if node.value is None:
            return None
        return self.visit_Assign(ast.copy_location(ast.Assign([node.target], node.value), node))

    # ------------------------------------------------------------------ texts

    def _is_text(self, node: ast.expr) -> bool:
        """Returns whether it is a column of texts, or a choice between texts of which one is."""
        if isinstance(node, ast.IfExp):
            return self._is_text(node.body) or self._is_text(node.orelse)
        if not isinstance(node, ast.Attribute):
            return False
        parameter = _parameter(node.value)
        return parameter is not None and self._given.kinds[parameter].get(node.attr) in BYTES

    def _text(self, node: ast.expr) -> ast.expr:
        """Returns the reference that a text is."""
        number = text_number(node, self.constants) if isinstance(node, ast.Constant) else None
        if number is not None:
            constants = ast.Attribute(ast.Name(TEXTS, ast.Load()), "constants", ast.Load())
            return ast.Subscript(constants, ast.Constant(number), ast.Load())
        if isinstance(node, ast.IfExp):
            return ast.IfExp(self.visit(node.test), self._text(node.body), self._text(node.orelse))
        if not self._is_text(node):
            self._refuse(
                "a text is set to, or compared with, what is none: with texts nothing can be computed",
                node,
                "use columns that are texts, and constant texts; put texts together before, with select(…)",
            )
        assert isinstance(node, ast.Attribute)
        return self._column(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Compares texts by their bytes."""
        operands = [node.left, *node.comparators]
        if any(map(_is_none, operands)):
            for column in filter(None, map(_column_of, operands)):
                todo = f'write {column[0]}.is_null("{column[1]}")'
                self._refuse(f"{column[0]}.{column[1]} is compared with None, which it never is", node, todo)
        if not any(map(self._is_text, operands)):
            return self.generic_visit(node)
        if not compares_texts_only(node):
            todo = 'compare each: row.name == "a" or row.name == "b"; or compute what you need before'
            self._refuse("texts can be compared with == and != only", node, todo)
        texts = [self._text(operand) for operand in operands]
        made: list[ast.expr] = []
        for op, left, right in zip(node.ops, texts, texts[1:], strict=False):
            same = ast.Call(ast.Name(SAME_TEXT, ast.Load()), [ast.Name(TEXTS, ast.Load()), left, right], [])
            made.append(same if isinstance(op, ast.Eq) else ast.UnaryOp(ast.Not(), same))
        return ast.copy_location(made[0] if len(made) == 1 else ast.BoolOp(ast.And(), made), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replaces `x.is_null("c")` and the length of a text; leaves any other call."""
        called = _null_call(node)
        if called is not None:
            self._kind(called.parameter, called.column, node)
            if called.method == "set_null":
                self._refuse("set_null(…) inside of an expression", node, "write it as a statement of its own")
            return ast.copy_location(ast.Attribute(self._base(called.base), NULL + called.column, ast.Load()), node)
        is_length = isinstance(node.func, ast.Name) and node.func.id == "len" and len(node.args) == 1
        if not is_length or not self._is_text(node.args[0]):
            return self.generic_visit(node)
        text, has_characters = node.args[0], ast.Constant(self._has_characters(node.args[0]))
        arguments: list[ast.expr] = [ast.Name(TEXTS, ast.Load()), self._text(text), has_characters]
        return ast.copy_location(ast.Call(ast.Name(TEXT_LENGTH, ast.Load()), arguments, []), node)

    def _has_characters(self, node: ast.expr) -> bool:
        """Returns whether a text is made of characters, not of bytes."""
        while isinstance(node, ast.IfExp):
            node = node.body if self._is_text(node.body) else node.orelse
        assert isinstance(node, ast.Attribute)
        return self._given.kinds[str(_parameter(node.value))][node.attr] == "string"

    def _refuse(self, what: str, node: ast.AST, todo: str) -> NoReturn:
        self._given.refuse(what, getattr(node, "lineno", 0), todo)


def refusing(name: str, file: str) -> Callable[[str, int, str], NoReturn]:
    """Returns what raises OptionError about a line of this function."""

    def refuse(what: str, line: int, todo: str) -> NoReturn:
        raise OptionError(f"{name}: {what}", where=f"{file}, line {line}", todo=todo)

    return refuse
