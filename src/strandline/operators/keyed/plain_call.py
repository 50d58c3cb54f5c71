"""A user's function called in plain Python: for the specification, and to find the line at which it raised."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Any

from strandline.operators.functions.function_identity import place_of
from strandline.operators.kernels.arrow_words import BYTES, FLOATS


def nothing_of(kind: str) -> Any:
    """Returns what a column of this type is before it is set, and under a null."""
    if kind in BYTES:
        return "" if kind == "string" else b""
    return False if kind == "boolean" else 0.0 if kind in FLOATS else 0


class PlainRecord:
    """State, a row or a result: columns as attributes, and which of them are null."""

    _kinds: Mapping[str, str]
    _nulls: set[str]
    is_new: bool

    def __init__(self, kinds: Mapping[str, str], values: Mapping[str, Any] | None = None, is_new: bool = False) -> None:
        found = values or {}
        kept = {n: nothing_of(kind) if found.get(n) is None else found[n] for n, kind in kinds.items()}
        self.__dict__.update(kept)
        self.__dict__["_kinds"] = kinds
        self.__dict__["_nulls"] = {n for n in found if found[n] is None}
        self.__dict__["is_new"] = is_new

    def __setattr__(self, name: str, value: Any) -> None:
        kind = self._kinds[name]
        whole = kind not in (*BYTES, *FLOATS, "boolean")
        self.__dict__[name] = int(value) if whole else float(value) if kind in FLOATS else value
        self._nulls.discard(name)

    def is_null(self, name: str) -> bool:
        """Returns whether a column is null."""
        return name in self._nulls

    def set_null(self, name: str) -> None:
        """Makes a column null."""
        setattr(self, name, nothing_of(self._kinds[name]))
        self._nulls.add(name)

    @property
    def values(self) -> dict[str, Any]:
        """The columns, None where they are null."""
        return {n: None if n in self._nulls else self.__dict__[n] for n in self._kinds}


def failing_line(function: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    """Returns the file and line at which a call raises; those of the function if it does not here."""
    try:
        function(*arguments)
    except Exception as problem:
        frames = traceback.extract_tb(problem.__traceback__)
        own = [frame for frame in frames if frame.filename == function.__code__.co_filename]
        if own:
            return f"{own[-1].filename}, line {own[-1].lineno}"
    return place_of(function)
