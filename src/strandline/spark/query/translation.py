"""Errors of ours that Spark has wrapped in its own, unwrapped where they come back from the JVM.

A DataFrame of `read` is Spark's: what goes wrong in a task that reads a block, or in Spark's Parquet reader, reaches
the program in whatever action it runs, as a wall of text. PySpark turns the JVM's exceptions into its own at one place;
behind it we look whether the exception tells of one of ours, or of a block that is not what was published.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from strandline.errors import StrandlineError, StreamError
from strandline.log.storage.storage_url import open_storage
from strandline.log.stream.log import Log
from strandline.spark.query.error_in_text import failure_in

_BLOCK = re.compile(
    r"file:(?://)?(?P<root>/[^\n]*?)/(?P<file>(?:blocks/p\d{5}|late)/(?P<first>\d{20})[^\s/]*\.parquet)"
)


def install() -> None:
    """Lets Python see our errors where Spark reports one of them. Nothing else changes."""
    captured: Any = importlib.import_module("pyspark.errors.exceptions.captured")
    if not isinstance(captured.convert_exception, _Translating):
        captured.convert_exception = _Translating(captured.convert_exception)


class _Translating:
    """PySpark's way from an exception of the JVM to one of its own, and what that means."""

    def __init__(self, converted: Callable[[Any], Exception]) -> None:
        self._converted = converted

    def __call__(self, of_the_jvm: Any) -> Exception:
        problem = self._converted(of_the_jvm)
        text = str(problem)
        if "strandline.errors." in text:
            return failure_in(text, "") or problem
        return (unreadable_block(text) if "FAILED_READ_FILE" in text else None) or problem


def unreadable_block(text: str) -> StrandlineError | None:
    """Returns the error of the block that this text of Spark's names; None if it names none, or one in order."""
    for found in _BLOCK.finditer(text):
        for root in (found["root"], unquote(found["root"])):
            if (Path(root) / "stream.json").is_file():
                return _looked_at(Log.open(open_storage(root)), found["file"], int(found["first"]))
    return None


def _looked_at(log: Log, file: str, first: int) -> StrandlineError | None:
    """Reads the block again, with its checksum."""
    partition = int(file[len("blocks/p") :][:5]) if file.startswith("blocks/") else log.spec.late
    try:
        block = next((b for b in log.blocks(partition, first, first + 1) if b.file == file), None)
        if block is not None:
            for _ in log.read(partition, block.first, block.end):
                pass
            return None
    except StrandlineError as problem:
        return problem
    return StreamError(
        "a block was compacted and collected, or truncated, after this DataFrame was made",
        where=f"{log.storage.url}/{file}, partition {partition}, from offset {first}",
        stream=log.storage.url,
        todo="call read() again, and use the DataFrame within the grace time of `strandline collect`",
    )
