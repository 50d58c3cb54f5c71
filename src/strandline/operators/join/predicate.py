"""The condition of a join: a function of a left and a right tuple, compiled over the columns that it names.

Numbers are what they are, decimals doubles, dates and timestamps the log's whole numbers (days, microseconds). Texts
and bytes can be compared with == and !=, with each other and with constants: each becomes a number that stands for it
among the pairs at hand. A null in any column that is named makes the condition false.
"""

from __future__ import annotations

import ast
import dis
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types as numba_types

from strandline.arrow_types import decimal_of
from strandline.errors import InputError, OptionError
from strandline.operators.functions.compiled_function import compiled, first_call
from strandline.operators.functions.function_identity import FunctionPart, identity_of, place_of
from strandline.operators.functions.row_function import (
    compares_texts_only,
    named_columns,
    require_parameters,
    text_number,
    whole_row,
)
from strandline.operators.join.meeting_kernels import AT, meet_stretches
from strandline.operators.join.tuple_record import Pairs
from strandline.operators.kernels.arrow_words import doubles_of, validity, words_of
from strandline.operators.kernels.kernel_cache import njit

PARAMETERS = ("left", "right")
_TEXTS = ("string", "binary")
_FLOATS = ("float", "double")
_WORDS = ("byte", "short", "integer", "long", "date", "timestamp", "timestamp_ntz")
Columns = Mapping[str, pa.Array]
Kinds = Mapping[str, str]


@dataclass(frozen=True)
class Predicate:
    """A function of a left and a right tuple, equal to another with the same text and version."""

    text: str
    version: int = 1
    """A later one may say something else over the same stream, from then on."""
    function: Callable[..., Any] | None = field(default=None, compare=False)
    """None if only the text is known."""
    parts: tuple[FunctionPart, ...] = field(default=(), compare=False)
    """The sources of the function and of those that it calls, wherever it goes."""

    @classmethod
    def of(cls, function: Any, version: int = 1) -> Predicate:
        """Returns the condition that the function is; raises OptionError if it can be none."""
        todo = "write where(lambda left, right: …)"
        require_parameters(function, f"where({function!r})", "where", len(PARAMETERS), "two", todo)
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise OptionError(f"where: version={version!r} is not a version", todo="count from 1: where(…, version=2)")
        identity = identity_of(function, PARAMETERS)
        return cls(identity.text, version, function, identity.parts)

    def __reduce__(self) -> tuple[Any, ...]:
        # The function travels, what was compiled of it does not.
        return Predicate, (self.text, self.version, self.function, self.parts)

    @property
    def _tree(self) -> ast.FunctionDef | None:
        return self.parts[0].tree if self.parts else None

    @cached_property
    def names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The columns of left and of right that it names."""
        if self.function is None:
            return (), ()
        tree = self._tree
        found = _attributes(tree) if tree is not None else _loaded(self.function.__code__)
        left, right = (tuple(sorted({column for side, column in found if side == s})) for s in (0, 1))
        return left, right

    # ------------------------------------------------------------------ at once, when it is defined

    def check(self, left: Kinds, right: Kinds, *, over_windows: bool = False) -> None:
        """Raises OptionError if it names what is not there, or does not compile over these types: over pairs, or over
        windows."""
        for side, kinds in enumerate((left, right)):
            for column in self.names[side]:
                if column not in kinds:
                    raise self._refusal(f"{PARAMETERS[side]} has no column {column!r}", f"it has {', '.join(kinds)}")
                if _dtype(kinds[column]) is None:
                    raise self._refusal(
                        f"{PARAMETERS[side]}.{column} is a {kinds[column]}, which a condition cannot compute with",
                        "use columns that are numbers, booleans, dates, timestamps or texts",
                    )
        texts = {(s, c) for s, kinds in enumerate((left, right)) for c in self.names[s] if kinds[c] in _TEXTS}
        tree = self._tree
        if texts and tree is None:
            named = " and ".join(f"{PARAMETERS[s]}.{c}" for s, c in sorted(texts))
            raise self._refusal(
                f"it compares texts ({named}), and its source cannot be had",
                "write the function in a file or a notebook, not at a prompt and not with exec or eval",
            )
        if tree is not None and texts and not _compares_only(tree, texts):
            raise self._refusal("texts can be compared with == and != only", "compute what you need before the join")
        self._compile((left, right), over_windows=over_windows)
        self._require_truth()

    def _require_truth(self) -> None:
        """Raises OptionError if it returns neither true or false nor a whole number, such as the bits of a mask."""
        returned = self._condition.nopython_signatures[-1].return_type
        if isinstance(returned, numba_types.Optional):  # None counts as false
            returned = returned.type
        if not isinstance(returned, numba_types.Boolean | numba_types.Integer):
            found = "a float" if isinstance(returned, numba_types.Float) else str(returned)
            raise self._refusal(f"it returns {found}, not true or false", "compare it: left.price > right.most")

    def _compile(self, kinds: tuple[Kinds, Kinds], *, over_windows: bool) -> None:
        """Lets Numba compile it over these types; raises OptionError if it cannot."""
        assert self.function is not None
        none, words, at = np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(AT, np.int64)
        pairs = Pairs.room(0)
        left, right = (np.zeros(0, _record_type(kinds[s], self.names[s], self._constants)) for s in (0, 1))
        with first_call(self.function, "where", "use arithmetic, comparisons, and functions of math"):
            if over_windows:
                self._window_kernel(left, right, none, none, words, words, pairs, 0, pairs, at)
            else:
                self._kernel(left, right, none, none, at)

    def _refusal(self, reason: str, todo: str) -> OptionError:
        where = self.text if self.function is None else f"{place_of(self.function)}: {self.text}"
        return OptionError(f"where: {reason}", where=where, todo=todo)

    # ------------------------------------------------------------------ at work

    def holds(self, sides: tuple[Columns, Columns], kinds: tuple[Kinds, Kinds], rows: int) -> Judgement:
        """Returns the pairs of rows that satisfy it, and those it raises for; InputError if it is not known here."""
        left, right = self.rows(sides, kinds, (rows, rows))
        if not self._kernel.signatures:
            self._compile(kinds, over_windows=False)
        true, at, failed = np.zeros(rows, np.uint8), np.zeros(AT, np.int64), []
        valid = left.valid & right.valid
        while at[0] < rows:
            try:
                self._kernel(left.values, right.values, valid, true, at)
            except Exception as problem:  # of the user's making, for this pair; the next ones have their turn
                failed.append((int(at[0]), f"{type(problem).__name__}: {problem}"))
                at[0] += 1
        return Judgement(true, failed)

    def over_windows(self, kinds: tuple[Kinds, Kinds]) -> Any:
        """Returns the loop of `meeting_kernels` over stretches of rows, with the condition in it."""
        if not self._window_kernel.signatures:
            self._compile(kinds, over_windows=True)
        return self._window_kernel

    def rows(
        self, sides: tuple[Columns, Columns], kinds: tuple[Kinds, Kinds], many: tuple[int, int]
    ) -> tuple[ConditionRows, ConditionRows]:
        """Returns the rows of both sides as kernels take them, so many of each; InputError if it is not known here."""
        if self.function is None:
            raise InputError(
                "where: this program does not have the function of the join",
                where=self.text,
                todo="start the join from the program that defines the function",
            )
        codes = _codes(sides, kinds, self._constants)
        left, right = (
            ConditionRows(
                np.zeros(many[s], _record_type(kinds[s], self.names[s], self._constants)), np.ones(many[s], np.uint8)
            )
            for s in (0, 1)
        )
        for s, rows in enumerate((left, right)):
            for column, values in sides[s].items():
                rows.valid[:] &= validity(values)
                kind = kinds[s][column]
                rows.values[column] = codes[s, column] if kind in _TEXTS else _numbers(values, kind)
        for i in range(len(self._constants)):
            left.values[f"_text{i}"] = codes[2, str(i)]
        return left, right

    @cached_property
    def _constants(self) -> tuple[bytes, ...]:
        """Texts that it compares with."""
        found = _Coded()
        if (tree := self._tree) is not None:
            found.visit(tree)
        return tuple(found.texts)

    @cached_property
    def _condition(self) -> Any:
        assert self.function is not None
        first, *others = self.parts
        if (tree := self._tree) is not None:
            first = FunctionPart(first.name, None, _Coded().visit(tree))
        return compiled(self.function, [first, *others])

    @cached_property
    def _window_kernel(self) -> Any:
        condition = self._condition

        @njit(inline="always")
        def holds(left, right):  # type: ignore[no-untyped-def]
            return bool(condition(left, right))

        @njit(nogil=True)
        def each(  # type: ignore[no-untyped-def]
            left, right, left_valid, right_valid, left_times, right_times, stretches, many, pairs, at
        ):
            return meet_stretches(
                holds, left, right, left_valid, right_valid, left_times, right_times, stretches, many, pairs, at
            )

        return each

    @cached_property
    def _kernel(self) -> Any:
        condition = self._condition

        @njit(nogil=True)
        def each(left, right, valid, true, at):  # type: ignore[no-untyped-def]
            for i in range(at[0], len(true)):
                at[0] = i
                true[i] = valid[i] != 0 and bool(condition(left[i], right[i]))
            at[0] = len(true)

        return each


@dataclass(frozen=True, slots=True)
class ConditionRows:
    """Rows of one side: the columns that a condition names."""

    values: npt.NDArray[Any]
    valid: npt.NDArray[np.uint8]
    """0 where one of them is null."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement of a condition on some pairs."""

    true: npt.NDArray[np.uint8]
    """1 where it holds."""
    failed: Sequence[tuple[int, str]]
    """The pairs for which it raised, and what; it does not hold for them."""


# ---------------------------------------------------------------------- what it names


def _attributes(tree: ast.FunctionDef) -> set[tuple[int, str]]:
    """Returns the sides and columns that are named; raises OptionError if a tuple is used in any other way."""
    named = list(named_columns(tree, _parameter))
    inside = {node.value for node, _, _ in named}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in PARAMETERS and node not in inside:
            raise _whole_tuple(node.id)
    return {(PARAMETERS.index(parameter), column) for _, parameter, column in named}


def _parameter(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) and node.id in PARAMETERS else None


def _loaded(code: types.CodeType) -> set[tuple[int, str]]:
    """Returns the sides and columns that a function without source names."""
    found, instructions = set(), list(dis.get_instructions(code))
    for one, following in zip(instructions, [*instructions[1:], None], strict=True):
        if one.opname.startswith("LOAD_FAST"):
            for name in one.argval if isinstance(one.argval, tuple) else (one.argval,):
                if name in code.co_varnames[:2]:
                    if following is None or not following.opname.startswith("LOAD_ATTR"):
                        raise _whole_tuple(PARAMETERS[code.co_varnames.index(name)])
                    found.add((code.co_varnames.index(name), str(following.argval)))
    return found


def _whole_tuple(name: str) -> OptionError:
    what, todo = whole_row(name)
    return OptionError(f"where: {what}", todo=todo)


def _compares_only(tree: ast.FunctionDef, texts: set[tuple[int, str]]) -> bool:
    """Returns whether texts are compared with texts, by == and !=, and nothing else is done to them."""
    columns = {
        n for n, parameter, column in named_columns(tree, _parameter) if (PARAMETERS.index(parameter), column) in texts
    }

    def is_text(node: ast.AST) -> bool:
        return node in columns or (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)))

    compared = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and compares_texts_only(node):
            operands = [node.left, *node.comparators]
            if all(map(is_text, operands)):
                compared.update(operands)
    return all(node in compared for node in ast.walk(tree) if is_text(node))


class _Coded(ast.NodeTransformer):
    """Constant texts become columns of left that stand for them."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Replaces a text by a column."""
        number = text_number(node, self.texts)
        return node if number is None else ast.Attribute(ast.Name("left", ast.Load()), f"_text{number}", ast.Load())


# ---------------------------------------------------------------------- columns as numbers


def _dtype(kind: str) -> type | None:
    if kind == "boolean":
        return np.bool_
    if kind in _WORDS or kind in _TEXTS:
        return np.int64
    return np.float64 if kind in _FLOATS or decimal_of(kind) else None


def _record_type(kinds: Kinds, names: tuple[str, ...], constants: tuple[bytes, ...]) -> np.dtype[Any]:
    fields: list[tuple[str, Any]] = [(c, _dtype(kinds[c])) for c in names]
    fields += [(f"_text{i}", np.int64) for i in range(len(constants))]
    return np.dtype(fields or [("_", np.uint8)], align=True)


def _numbers(values: pa.Array, kind: str) -> npt.NDArray[Any]:
    if kind in _FLOATS or decimal_of(kind):
        return doubles_of(values, kind)[0].view(np.float64)
    return words_of(values, kind)[0]


def _codes(
    sides: tuple[Columns, Columns], kinds: tuple[Kinds, Kinds], constants: tuple[bytes, ...]
) -> dict[tuple[int, str], npt.NDArray[np.int64]]:
    """Returns for each column of texts numbers that are equal where the texts are; those of constants as side 2."""
    found = {
        (s, c): values.cast(pa.binary())
        for s, side in enumerate(sides)
        for c, values in side.items()
        if kinds[s][c] in _TEXTS
    }
    found |= {(2, str(i)): pa.array([text], pa.binary()) for i, text in enumerate(constants)}
    if not found:
        return {}
    numbers = pa.concat_arrays(list(found.values())).dictionary_encode().indices.fill_null(-1)
    every, codes, at = np.asarray(numbers).astype(np.int64), {}, 0
    for place, values in found.items():
        codes[place] = every[at : at + len(values)]
        at += len(values)
    return codes
