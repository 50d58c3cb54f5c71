"""The streams below a folder, and which of them each is made of, from their stream.json files.

Folders are listed level by level, and none of a stream's own: what is drawn costs a few requests a stream, however long
the streams are. A stream whose folder was moved is known by its id.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from strandline.errors import KeyMissingError, OptionError, StorageError, StrandlineError, StreamNotFoundError
from strandline.log.operator_state.operator_words import WordsOf
from strandline.log.operator_state.origin_logs import is_of
from strandline.log.operator_state.upstream import Origin, origins_of
from strandline.log.reading.summary import Summary, summary
from strandline.log.storage.redaction import redacted_url
from strandline.log.storage.storage_url import open_storage
from strandline.log.stream.log import Log
from strandline.log.stream.spec import KEY

if TYPE_CHECKING:
    from strandline.log.storage.fsspec_storage import FsspecStorage
    from strandline.log.storage.local_storage import LocalStorage

_OWN_FOLDERS = frozenset(
    ("blocks", "commits", "consumers", "late", "losses", "milestones", "snapshots", "spark_checkpoint", "staging")
)
"""Of a stream: no other streams lie there."""
_FOLDERS_MAX = 10_000

Kind = Literal["source", "operator", "missing", "damaged"]


@dataclass(frozen=True, slots=True)
class Reading:
    """A stream that an operator reads."""

    url: str
    is_replica: bool = False
    """One of several, of which the operator reads one at a time."""
    is_circle: bool = False
    """The stream is itself made of the operator's results, which no program can have written."""


@dataclass(frozen=True, slots=True)
class StreamNode:
    """A stream of the graph, or a place where one should be."""

    url: str
    name: str
    """Its path below the folder; its address if it lies elsewhere."""
    kind: Kind
    reads: tuple[Reading, ...] = ()
    summary: Summary | None = None
    problem: str | None = None
    """Why this is all that is known."""
    is_elsewhere: bool = False
    """It does not lie below the folder; what it is made of is not drawn."""
    level: int = 0
    """One more than the highest level of what it reads."""


def stream_graph(folder: str, words_of: WordsOf) -> list[StreamNode]:
    """Returns the streams below a folder and those that they read, each behind those that it is made of.

    A stream that cannot be read is a node with its problem; one that is not where it should be is one of kind missing.
    Raises if there is no such folder, or if it holds too many folders to look for streams. `words_of`: see `summary`.
    """
    return _ordered(_Streams(folder).nodes(words_of))


class _Streams:
    """The streams below a folder, opened, and others that they read."""

    def __init__(self, folder: str) -> None:
        root = open_storage(folder)
        self._root = root.url.rstrip("/")
        self._logs: dict[str, Log] = {}
        self._problems: dict[str, str] = {}
        for below, problem in _stream_folders(root):
            url = f"{self._root}/{below}" if below else root.url
            try:
                if problem is not None:
                    raise problem
                self._logs[url] = Log.open(open_storage(url))
            except StrandlineError as found:
                self._problems[url] = found.what
        self._below = {*self._logs, *self._problems}

    def nodes(self, words_of: WordsOf) -> list[StreamNode]:
        """Returns a node for each stream, and for each place where there should be one."""
        reads = {url: tuple(self._reads(url, log)) for url, log in list(self._logs.items())}
        whole = [self._node(url, reads.get(url, ()), words_of) for url in self._logs]
        return [*whole, *(self._lost(url, problem) for url, problem in self._problems.items())]

    def _node(self, url: str, reads: tuple[Reading, ...], words_of: WordsOf) -> StreamNode:
        log = self._logs[url]
        kind: Kind = "operator" if origins_of(log.spec.upstream) else "source"
        node = StreamNode(redacted_url(url), self._name(url), kind, reads, is_elsewhere=url not in self._below)
        try:
            return replace(node, summary=summary(log, 1, partial(self._read_by, url), words_of))
        except StrandlineError as problem:
            return replace(node, problem=problem.what)

    def _lost(self, url: str, problem: str) -> StreamNode:
        is_below = url in self._below
        kind: Kind = "damaged" if is_below else "missing"
        return StreamNode(redacted_url(url), self._name(url), kind, problem=problem, is_elsewhere=not is_below)

    def _name(self, url: str) -> str:
        if url == self._root:
            return redacted_url(url.rpartition("/")[2])
        return redacted_url(url.removeprefix(f"{self._root}/") if url in self._below else url)

    # ------------------------------------------------------------------ what a stream is made of

    def _reads(self, url: str, log: Log) -> list[Reading]:
        found = [
            Reading(redacted_url(self._find(url, origin, path)), is_replica=bool(origin.replicas))
            for origin in origins_of(log.spec.upstream)
            for path in origin.paths
        ]
        return list(dict.fromkeys(found))  # a self join reads one stream twice

    def _find(self, reader: str, origin: Origin, path: str) -> str:
        """Returns the address of an input: where stream.json says, or else where a stream with its id lies below."""
        url = _address(path)
        if (log := self._logs.get(url)) is not None and is_of(origin, log):
            return url
        moved = [other for other in self._below & self._logs.keys() if is_of(origin, self._logs[other])]
        if origin.replicas:
            moved = [other for other in moved if other.rpartition("/")[2] == url.rpartition("/")[2]]
        if moved:  # of several copies the nearest
            return max(sorted(moved), key=lambda other: len(os.path.commonpath([reader, other])))
        return url if url in self._problems else self._elsewhere(url, origin)

    def _elsewhere(self, url: str, origin: Origin) -> str:
        """Opens an input that does not lie below the folder, or notes why it is missing; returns its address."""
        try:
            if (log := self._logs.get(url)) is None:
                storage = open_storage(url)
                if not storage.exists(KEY):  # an open would list what else is there
                    raise StreamNotFoundError("there is no stream", where=redacted_url(url))
                log = Log.open(storage)
        except StrandlineError as problem:
            self._problems[url] = problem.what
            return url
        if is_of(origin, log):
            self._logs[url] = log
            return url
        missing = f"{url} (as it was)"
        self._problems[missing] = "another stream has taken its place"
        return missing

    def _read_by(self, reader: str, path: str) -> Log:
        """Returns an input of the stream `reader`, whose stream.json calls it by this path."""
        for origin in origins_of(self._logs[reader].spec.upstream):
            if path in origin.paths and (found := self._logs.get(self._find(reader, origin, path))) is not None:
                return found
        raise StreamNotFoundError("there is no such stream", where=redacted_url(path))


def _address(path: str) -> str:
    try:
        return open_storage(path).url
    except OptionError:
        return path


def _stream_folders(root: LocalStorage | FsspecStorage) -> Iterator[tuple[str, StrandlineError | None]]:
    """Yields the folders that hold a stream.json, and those that cannot be listed, with the problem."""
    pending, listed = [""], 0
    while pending:
        folder = pending.pop()
        listed += 1
        if listed > _FOLDERS_MAX:
            raise OptionError(
                f"there are more than {_FOLDERS_MAX:,} folders to look for streams in",
                where=redacted_url(root.url),
                todo="name a folder further down, which holds the streams",
            )
        try:
            names = root.names(folder)
        except KeyMissingError as problem:
            if folder:  # removed meanwhile
                continue
            raise StreamNotFoundError(
                problem.what, where=redacted_url(root.url), todo="name the folder that the streams lie in"
            ) from None
        except StorageError as problem:
            if not folder:
                raise
            yield folder, problem
            continue
        if is_stream := KEY in names:
            yield folder, None
        below = [name[:-1] for name in names if name.endswith("/") and not name.startswith(".")]
        inner = [f"{folder}/{name}".lstrip("/") for name in below if not (is_stream and name in _OWN_FOLDERS)]
        pending += reversed(inner)


def _ordered(nodes: Sequence[StreamNode]) -> list[StreamNode]:
    """Returns each node behind those that it reads, with its level; marks what would make a circle."""
    left = {node.url: node for node in nodes}
    done: dict[str, StreamNode] = {}
    while left:
        ready = [node for node in left.values() if _next(node, left) is None]
        if not ready:
            first = _on_a_circle(left)
            reads = (replace(read, is_circle=True) if read is _next(first, left) else read for read in first.reads)
            left[first.url] = replace(first, reads=tuple(reads))
        for node in ready:
            levels = [done[read.url].level for read in node.reads if not read.is_circle]
            done[node.url] = replace(node, level=1 + max(levels, default=-1))
            del left[node.url]
    return list(done.values())


def _next(node: StreamNode, left: Mapping[str, StreamNode]) -> Reading | None:
    return next((read for read in node.reads if read.url in left and not read.is_circle), None)


def _on_a_circle(left: Mapping[str, StreamNode]) -> StreamNode:
    """Returns a node that is made of its own results, among nodes of which each reads another one."""
    node, seen = next(iter(left.values())), set[str]()
    while node.url not in seen:
        seen.add(node.url)
        read = _next(node, left)
        assert read is not None
        node = left[read.url]
    return node
