"""The error that stopped a query, found in Spark's text: errors of its tasks, sources and JVM reach us as text only."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from strandline import errors
from strandline.errors import NoSpaceError, SecondWriterError, SparkSilentError, StrandlineError
from strandline.spark.query import spark_log

_OURS = re.compile(
    r"^strandline\.errors\.(?P<kind>\w+): (?P<what>.*)(?:\n  where: (?P<where>.*))?(?:\n  to do: (?P<todo>.*))?",
    re.MULTILINE,
)
_CAUSE = re.compile(
    r"^Caused by: (?P<java>.+?)(?=Traceback \(most recent call last\):$|$)"
    r"|Traceback \(most recent call last\):\n(?:[ \t].*\n)*(?P<python>\S.*)$",
    re.MULTILINE,
)
"""A cause as the JVM prints it, or the line below a traceback of Python. In a text the innermost comes last."""
_LINE_MAX = 300
_NO_SPACE = ("No space left on device", "Disk quota exceeded", "ENOSPC")
_CONCURRENT = ("CONCURRENT_STREAM_LOG_UPDATE", "Multiple streaming queries are concurrently using")

_NOT_CONNECTED = "Python worker failed to connect back"
"""Spark says this 10 s after it has started the Python process of a streaming read, a limit that no setting changes."""


def failure_in(text: str, where: str) -> StrandlineError | None:
    """Returns the error that this text tells of, however deep it lies; None if it is none that we know."""
    if told := list(_OURS.finditer(text)):
        last = told[-1]  # those before it are its causes
        kind = getattr(errors, last["kind"], StrandlineError)
        return kind(last["what"], where=last["where"] or "", todo=last["todo"] or "")
    if any(mark in text for mark in _NO_SPACE):
        return NoSpaceError(
            "no space left while Spark wrote a batch; nothing of it was published",
            where=where,
            todo="free space (strandline collect, truncate), then start the query again: it repeats the batch",
        )
    if any(mark in text for mark in _CONCURRENT):
        return SecondWriterError(
            "another query writes this stream (it uses the same Spark checkpoint)",
            where=where,
            todo="let one writer at a time write a stream; this one has stopped",
        )
    if _NOT_CONNECTED in text:
        return SparkSilentError(
            "the Python process that reads a stream for Spark has not started within 10 s; nothing is lost",
            where=where,
            todo="start the query again when the machine is less busy; if it fails again, the log has the cause",
        )
    return None


def in_short(problem: BaseException) -> str:
    """Returns what has gone wrong as a person wants to read it: of an error of Spark's its innermost cause, in a line.

    Spark's own text has 200 lines; all of them stay in the error, and in Spark's log.
    """
    if isinstance(problem, StrandlineError):
        return str(problem)
    text = str(problem)
    if causes := list(_CAUSE.finditer(text)):
        told = causes[-1]["python"] or causes[-1]["java"]
    else:
        told = f"{type(problem).__name__}: {text.strip().splitlines()[0] if text.strip() else ''}"
    told = told if len(told) <= _LINE_MAX else told[:_LINE_MAX] + " …"
    log = spark_log.current()
    return told if log is None else f"{told} (Spark's log: {log})"


def meaning(problem: Exception, where: str) -> Exception:
    """Returns the error of ours that an error of Spark tells of; the same one if there is none."""
    return problem if isinstance(problem, StrandlineError) else failure_in(str(problem), where) or problem


@contextlib.contextmanager
def translated(where: str) -> Iterator[None]:
    """Raises errors of Spark as what they mean."""
    try:
        yield
    except Exception as problem:
        if (found := meaning(problem, where)) is problem:
            raise
        raise found from None
