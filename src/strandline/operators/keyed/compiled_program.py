"""The functions of a keyed operator compiled over the columns of its input, and the loops around them."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numba import from_dtype, typeof, types

from strandline.errors import InputError, OptionError
from strandline.operators.functions.compiled_function import compiled, first_call
from strandline.operators.functions.function_identity import FunctionPart, place_of
from strandline.operators.kernels.kernel_arrays import sealed
from strandline.operators.kernels.kernel_cache import Kernel
from strandline.operators.keyed.function_rewrite import SAME_TEXT, TEXT_LENGTH, Rewrite, Surroundings, refusing
from strandline.operators.keyed.keyed_function import KeyedFunction, UserFunction
from strandline.operators.keyed.keyed_kernels import expiring, replaying, taking_in
from strandline.operators.keyed.record_layout import RESULT_BEGIN, StateLayout, WordLayout, is_computable, row_type
from strandline.operators.keyed.texts import Texts, same_text, text_length

_USE_A_CLASS = "use numbers, comparisons and functions of math; or write a class, in which any Python will do"
_NO_BYTES, _NO_WORDS = np.empty(0, np.uint8), np.empty(0, np.int64)


@dataclass(frozen=True)
class Program:
    """A keyed function over an input with columns of these types."""

    function: KeyedFunction
    types: Mapping[str, str]
    word_key: bool

    @cached_property
    def state(self) -> StateLayout:
        """Where state lies."""
        return StateLayout(self.function.state)

    @cached_property
    def results(self) -> WordLayout:
        """Where results lie."""
        return WordLayout(self.function.output, RESULT_BEGIN)

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """The columns of a row that the function names."""
        return tuple(sorted(self.function.main.use.columns["row"]))

    @cached_property
    def asks(self) -> tuple[str, ...]:
        """Those of which it asks whether they are null."""
        return tuple(sorted(self.function.main.use.nulls["row"]))

    @cached_property
    def row(self) -> np.dtype[Any]:
        """A row as the function sees it."""
        return row_type(self.types, self.reads, self.asks)

    # ------------------------------------------------------------------ compiling

    def require_columns(self) -> None:
        """Raises OptionError if a function names what is not there, or uses it in a way that cannot be."""
        for one in (self.function.main, self.function.on_expire):
            if one is not None:
                self._rewritten(one, [])

    def check(self) -> None:
        """Raises OptionError if a function does not compile."""
        self._main  # noqa: B018
        if self.function.on_expire is not None:
            self._last  # noqa: B018

    def _compiled(self, one: UserFunction) -> Kernel:
        """Returns the function, compiled: the loops around it could not do that, they allocate nothing."""
        function = self._known(one)
        names = {SAME_TEXT: same_text, TEXT_LENGTH: text_length}
        parts = [self._rewritten(one, self._texts), *one.identity.parts[1:]]
        made = compiled(function, parts, names, boundscheck=self.function.emit > 1)
        state, row, result = (from_dtype(d) for d in (self.state.record, self.row, self.results.record))
        out = result if self.function.emit == 1 else types.Array(result, 1, "C")
        texts = typeof(Texts(0, sealed(_NO_BYTES), sealed(_NO_BYTES), sealed(_NO_WORDS)))
        with first_call(function, one.name, _USE_A_CLASS):
            made.compile((state, row, out, texts) if one is self.function.main else (state, out, texts))
        returned = made.nopython_signatures[-1].return_type
        if not isinstance(returned, (types.Integer, types.Boolean)):
            what = "nothing" if isinstance(returned, types.NoneType) else str(returned)
            what = "nothing at one of its ends" if isinstance(returned, types.Optional) else what
            raise OptionError(
                f"{one.name}: it returns {what} where it should return a number",
                where=place_of(function),
                todo="return sl.EMIT, sl.CLOSE, their sum, or 0, at every end of the function",
            )
        return made  # type: ignore[no-any-return]

    def _rewritten(self, one: UserFunction, constants: list[bytes]) -> FunctionPart:
        """Returns the function as Numba can compile it; texts in it are added to the constants."""
        function = self._known(one)
        for name in sorted(one.use.columns["row"]):
            kind = self.types.get(name)
            if kind is not None and not is_computable(kind):
                raise OptionError(
                    f"{one.name}: row.{name} is a {kind}, which a compiled function cannot read",
                    where=place_of(function),
                    todo="use columns that are numbers, booleans, dates, timestamps, decimals of up to 18 digits or "
                    "texts",
                )
        first = one.identity.parts[0]
        tree = first.tree
        assert tree is not None
        kinds = {"state": dict(self.function.state), "row": self.types, "out": dict(self.function.output)}
        given = Surroundings(kinds, self.function.emit, refusing(one.name, function.__code__.co_filename))
        return FunctionPart(first.name, None, Rewrite(given, self.function.nulls, constants).of(tree))

    def _known(self, one: UserFunction) -> Any:
        """Returns the function itself; raises InputError if only its text is known."""
        if one.function is None:
            raise InputError(
                "this program does not have the function of the operator",
                where=one.text,
                todo="start the operator from the program that defines the function",
            )
        return one.function

    @property
    def constants(self) -> list[bytes]:
        """The texts in the functions. Compiling finds them, so this compiles the functions."""
        self.check()
        return self._texts

    @cached_property
    def _texts(self) -> list[bytes]:
        return []

    @cached_property
    def _main(self) -> Kernel:
        return self._compiled(self.function.main)

    @cached_property
    def _last(self) -> Kernel:
        assert self.function.on_expire is not None
        return self._compiled(self.function.on_expire)

    # ------------------------------------------------------------------ the loops

    @property
    def is_clocked(self) -> bool:
        """True if keys expire by the times of tuples, too: their results must have a place among the others."""
        return self.function.on_expire is not None

    @cached_property
    def expire_due(self) -> Kernel:
        """The loop over keys that are due."""
        return expiring(self._last if self.is_clocked else None, self)

    @cached_property
    def step(self) -> Kernel:
        """The loop over tuples."""
        return taking_in(self._main, self.expire_due if self.is_clocked else None, self)

    @cached_property
    def replay(self) -> Kernel:
        """The loop over tuples that were seen before."""
        return replaying(self._main, self)
