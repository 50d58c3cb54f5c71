"""Warnings that name the line of the user's program they concern, or no line at all."""

from __future__ import annotations

import sys
import sysconfig
import warnings
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

from strandline.errors import StrandlineWarning

_PACKAGE = str(Path(__file__).parent)
_OTHERS = ("pyspark", "py4j", "numba", "importlib")
"""Packages that call us, or that we call: a line of theirs tells a user as little as one of ours."""
_NOWHERE: dict[Any, Any] = {}
"""Remembers what was warned of without a line, so that Python's filters show it once."""


def warn(message: str, category: type[Warning] = StrandlineWarning) -> None:
    """Warns at the line of the user's program that led here; without a file and a line if no such line did.

    Threads of ours and callbacks of Spark have no such line: there the warning says "strandline" instead of a file.
    """
    frame = _users_frame(sys._getframe(1))
    if frame is None:
        warnings.warn_explicit(message, category, "strandline", 0, module="strandline", registry=_NOWHERE)
        return
    known = frame.f_globals
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=known.get("__name__"),
        registry=known.setdefault("__warningregistry__", {}),
    )


def _users_frame(frame: FrameType | None) -> FrameType | None:
    """Returns the innermost frame of a user's program."""
    while frame is not None:
        package = (frame.f_globals.get("__name__") or "").partition(".")[0]
        if package not in _OTHERS and not _is_internal(frame.f_code.co_filename):
            return frame
        frame = frame.f_back
    return None


@lru_cache(maxsize=1024)
def _is_internal(file: str) -> bool:
    """Returns whether a file belongs to this package or to Python itself, whose threads begin there."""
    if file.startswith("<frozen "):
        return True
    path = Path(file)
    if path.is_relative_to(_PACKAGE):
        return True
    libraries = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
    installed = {"site-packages", "dist-packages"}
    return any(path.is_relative_to(library) for library in libraries) and not installed & set(path.parts)
