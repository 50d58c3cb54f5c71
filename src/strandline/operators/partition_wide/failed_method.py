"""A method of a user's class that raised: what, at which of its lines, over which tuples."""

from __future__ import annotations

import traceback
from pathlib import Path

from strandline.errors import InputError

_OURS = Path(__file__).parent
_LINES_MAX = 3
"""So many of the user's own calls are shown, the innermost last."""


def raised(method: str, problem: Exception, where: str, *, may_set_aside: bool = False) -> InputError:
    """Returns the error about a method that raised while it was at `where`."""
    todo = "mend the method; the stream stays as it was"
    if may_set_aside:
        todo += '. Or start(…, on_error="set_aside"): tuples over which it raises go to the side log'
    return InputError(
        f"{method} raised {type(problem).__name__}: {problem}", where=f"{where}; {_lines(problem)}", todo=todo
    )


def _lines(problem: Exception) -> str:
    """Returns where it was raised, in the user's own words: files, lines, functions and what stands there."""
    frames = [f for f in traceback.extract_tb(problem.__traceback__) if Path(f.filename).parent != _OURS]
    shown = frames[-_LINES_MAX:] if len(frames) > _LINES_MAX else frames
    own = frames[:1] if frames and frames[0] not in shown else []
    texts = [f"{f.filename}, line {f.lineno}, in {f.name}" + (f": {f.line}" if f.line else "") for f in [*own, *shown]]
    return "; ".join(texts) or "before its first line"
