"""Where a stream lies: its URL and the options of its store, small enough to travel to every task."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from strandline.errors import NotAStreamError, OptionError, StreamNotFoundError
from strandline.log.storage.storage import Durability, Storage
from strandline.log.storage.storage_url import open_storage
from strandline.log.storage.time_limited_storage import TimeLimitedStorage
from strandline.log.stream import log_errors
from strandline.log.stream.block import Block
from strandline.log.stream.log import Log
from strandline.log.stream.partial_log import PartialLog
from strandline.log.stream.partition_view import PartitionView
from strandline.log.stream.spec import StreamSpec


@dataclass(frozen=True)
class Place:
    """A stream's address. Storage is opened where it is used: in the driver, and in each task."""

    url: str
    durability: Durability = "fsync"
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    limit_s: float | None = None
    """For so long an answer of the store is waited for, and then it counts as failed; None: for as long as it takes."""

    def __post_init__(self) -> None:
        # A relative path means another place to a task, whose working directory is not the program's.
        object.__setattr__(self, "url", self.storage().url)

    def storage(self) -> Storage:
        """Opens the store at this address."""
        found = open_storage(self.url, durability=self.durability, **self.options)
        return found if self.limit_s is None else TimeLimitedStorage(found, self.limit_s)

    def within(self, limit_s: float | None) -> Place:
        """Returns this place with a limit: its store has to answer each call within that time. None: as it is."""
        return self if limit_s is None else replace(self, limit_s=limit_s)

    def open(self) -> Log:
        """Opens the stream at this address."""
        return Log.open(self.storage())

    def reopened(self) -> Log:
        """Opens the stream at this address, which was there once; raises `StorageError` if it is not there."""
        try:
            return self.open()
        except (StreamNotFoundError, NotAStreamError) as problem:
            raise log_errors.gone(self.url) from problem

    def unread(self, spec: StreamSpec, blocks: Sequence[Block] = ()) -> Log:
        """Returns a handle on the stream with this `spec` that knows only these blocks, without reading anything."""
        return PartialLog(self.storage(), spec, blocks)

    def below(self, folder: str) -> Place:
        """Returns the place of a folder in this one."""
        return Place(f"{self.url.rstrip('/')}/{folder}", self.durability, self.options)

    def beside(self, url: str) -> Place:
        """Returns another place, in the same store if it has the same kind of address."""
        options = self.options if url.partition("://")[0] == self.url.partition("://")[0] else {}
        return Place(url, self.durability, options)

    @property
    def spark_url(self) -> str:
        """The address as Spark's own file systems want it."""
        path = self.storage().local_path("x")
        return self.url if path is None else spark_file_url(path.parent.resolve())


@dataclass(frozen=True)
class PartitionPlace(Place):
    """The address of a stream, to be opened as a view of one of its partitions."""

    number: int = 0
    """The partition."""
    of: int = 1
    """How many the stream has."""
    readers: int = 1
    """The partitions of the operator that takes it in."""

    def open(self) -> Log:
        """Opens the stream at this address, and shows the partition."""
        return PartitionView(super().open(), self.number, self.readers)

    def unread(self, spec: StreamSpec, blocks: Sequence[Block] = ()) -> Log:
        """Returns a view on a handle that knows only these blocks, see `Place.unread`."""
        whole = super().unread(replace(spec, partitions=self.of), blocks)
        return PartitionView(whole, self.number, self.readers)


def path_text(path: object) -> str:
    """Returns the path of a stream as text; raises `OptionError` for what is no path, such as None."""
    if isinstance(path, str | os.PathLike):
        return str(path)
    raise OptionError(
        f"{path!r} is not the path of a stream", todo='pass a text or a pathlib.Path, for example "streams/minute"'
    )


def spark_file_url(path: Path) -> str:
    """Writes a local path for Spark, which does not decode what follows `file://`: a space is a space."""
    return f"file://{path}"
