"""Messages of programs that an error of ours ends: three lines, with the line of the program that met it.

`sl.session()` sets it up, unless the program has a `sys.excepthook` of its own. STRANDLINE_TRACEBACK=1 leaves
Python's tracebacks as they are. `strandline run`, if it has started the program, learns at the end of the program of an
error that cannot pass, whatever hook the program has.
"""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from pathlib import Path
from types import TracebackType

from strandline import supervision
from strandline.errors import StrandlineError
from strandline.spark.query import running, spark_log
from strandline.spark.query.error_in_text import failure_in

VARIABLE = "STRANDLINE_TRACEBACK"
_OURS = str(Path(__file__).parents[2])
_SPARKS = (f"{os.sep}pyspark{os.sep}", f"{os.sep}py4j{os.sep}", f"{os.sep}threading.py")


def install() -> None:
    """Lets errors of ours that reach the top of the program print as three lines, and Ctrl-C as one."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _tell


def leave_word_at_exit() -> None:
    """Lets `strandline run` learn of the error that ends this program, if a restart would not mend it."""
    atexit.register(_leave_word)


def _leave_word() -> None:
    """Tells the supervisor of the error that Python has passed to `sys.excepthook`.

    Python sets `sys.last_value` before it calls the hook, so the word does not depend on the hook of a program.
    """
    problem = getattr(sys, "last_value", None)
    found = None if problem is None else _ours(problem)
    if found is not None:
        supervision.leave_word(found)


def _tell(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
    has_traceback = bool(os.environ.get(VARIABLE))
    if isinstance(problem, KeyboardInterrupt) and not has_traceback:
        if not running.any_left():  # else the exit hook says what becomes of them
            print(f"{_place(trace)}{str(problem) or 'interrupted'}", file=sys.stderr)
        return
    found = _ours(problem)
    if found is None or has_traceback:
        sys.__excepthook__(kind, problem, trace)
    else:
        print(f"{_place(trace)}{type(found).__name__}: {found}", file=sys.stderr)


def _ours(problem: BaseException) -> StrandlineError | None:
    """Returns the error if it is one of ours, or our error in one of Spark's; None for any other."""
    if isinstance(problem, StrandlineError):
        return problem
    if not type(problem).__module__.startswith(("pyspark.", "py4j.")):
        return None
    found = failure_in(str(problem), "")
    return None if found is None else spark_log.named(found)


def _place(trace: TracebackType | None) -> str:
    """Returns the line of the program that met the error: the innermost one that is neither ours nor Spark's."""
    for frame in reversed(traceback.extract_tb(trace)):
        file = frame.filename
        if not file.startswith(_OURS) and not any(part in file for part in _SPARKS):
            return f"{_short(file)}, line {frame.lineno}: "
    return ""


def _short(file: str) -> str:
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file
