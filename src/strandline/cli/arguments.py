"""Arguments of the commands: the stream, its partitions and columns, and values with units."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.errors import OptionError

if TYPE_CHECKING:
    from strandline.log.stream.log import Log

JSON = "strandline.json"
"""Under this name the context remembers that errors, too, are to be JSON."""


def _remember(context: typer.Context, value: bool) -> bool:
    context.meta[JSON] = value
    return value


StreamPath = Annotated[
    str,
    typer.Argument(
        metavar="PATH", help="The stream: a folder, or a URL such as s3://bucket/items.", show_default=False
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", metavar="", help="Print JSON instead, for programs.", callback=_remember)
]
EndsWithJson = Annotated[bool, typer.Option("--json", metavar="", help="End with the result as one line of JSON.")]
OnePartition = Annotated[int | None, typer.Option(metavar="P", help="Only this partition.", show_default=False)]
SomeColumns = Annotated[str | None, typer.Option(metavar="A,B,…", help="Only these columns.", show_default=False)]

_POLL_S = 0.2
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)


def open_log(path: str) -> Log:
    """Opens the stream at a path or URL."""
    # Here and not above: `strandline --help` should not wait for Arrow.
    from strandline.log.storage.storage_url import open_storage
    from strandline.log.stream.log import Log

    return Log.open(open_storage(path))


def size_value(text: str, option: str) -> int:
    """Returns the bytes of "128MB" (millions), "64 MiB" (powers of 1024) or a plain number."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise OptionError(f"{option}={text!r} is not a size", todo='write it like "128MB", "64 MiB" or 500000')
    base = 1024 if match[3] else 1000
    power = "kmgt".index(match[2].lower()) + 1 if match[2] else 0
    return int(float(match[1]) * base**power)


def chosen_partitions(log: Log, partition: int | None) -> list[int]:
    """Returns the partition that the command line names, or all partitions."""
    partitions = list(range(log.spec.partitions))
    if partition is None:
        return partitions
    if partition not in partitions:
        raise OptionError(
            f"there is no partition {partition}",
            where=log.storage.url,
            todo=f"choose one of 0 to {log.spec.partitions - 1}",
        )
    return [partition]


def arrivals(log: Log, partitions: Sequence[int]) -> Iterator[dict[int, int]]:
    """Yields, whenever commits have come, the offset of each partition from which on it has new tuples; never ends."""
    while True:
        seen = log.state.ends
        while not log.refresh():
            log.clock.sleep(_POLL_S)
        yield {p: max(seen[p], log.state.starts[p]) for p in partitions}


def chosen_columns(log: Log, asked: str, *, positions: Sequence[str] = ()) -> list[str]:
    """Returns the columns that `--columns` names, each once; `positions` are allowed, too."""
    names = [name.strip() for name in asked.split(",") if name.strip()]
    unknown = [name for name in names if name not in (*log.spec.columns, *positions)]
    if unknown or not names:
        raise OptionError(
            f"there is no column {unknown[0]!r}" if unknown else "--columns names no column",
            where=log.storage.url,
            todo=f"choose among {', '.join((*log.spec.columns, *positions))}",
        )
    return list(dict.fromkeys(names))
