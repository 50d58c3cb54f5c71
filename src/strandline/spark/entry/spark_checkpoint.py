"""Spark's own checkpoint, compared with the manifests at every start, and mended where that is possible.

Spark writes down which source offsets make up a batch, runs it, and notes that it is done; it syncs none of this to
the disk. The manifests are synced and say what was published. After a crash the two may disagree:

    Spark's log is one batch ahead      normal: that batch runs (again) with the offsets in the log
    … further ahead than that           the stream lost commits (restored from a copy, durability="os"): wind Spark back
    … behind, torn, missing, another's  write it anew from the manifests, if the sources' offsets are all that is needed
                                        (rate, Kafka, Strandline) and no operator before the stream keeps state
    … and otherwise                     stop, and say what to do

Either way a batch is neither lost nor published twice.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strandline.errors import KeyMissingError, SparkCheckpointError
from strandline.log.storage.storage import Storage
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLDER = "spark_checkpoint"
_SELF_CONTAINED = {"rate", "rate-micro-batch", "kafka", "strandline"}
_STATEFUL = re.compile(r"Aggregate|Distinct|Deduplicate\w*|FlatMapGroups\w*|TransformWithState\w*|GlobalLimit")
_NO_OFFSET = "-"
_VERSION = "v1"
_OWNER = "strandline_stream"
"""A file with the id of the stream."""
_SOURCE_FILE_BYTES_MAX = 4096
_SOURCE_FILES_MAX = 8
_LOOK_BACK_COMMITS = 1000


@dataclass(frozen=True)
class SourcePlan:
    """The facts of a query that decide whether its checkpoint can be written anew."""

    sources: tuple[str, ...]
    stateful: bool

    @classmethod
    def of(cls, df: DataFrame) -> SourcePlan:
        """Reads it off the DataFrame's plan."""
        nodes = [node for node in _nodes(df._jdf.queryExecution().analyzed()) if node.isStreaming()]
        sources = tuple(str(node.sourceName()) for node in nodes if node.children().isEmpty())
        return cls(sources, any(_keeps_state(node) for node in nodes))

    @property
    def can_be_rebuilt(self) -> bool:
        """True if the offsets in the manifests are all that Spark needs."""
        return not self.stateful and all(name in _SELF_CONTAINED for name in self.sources)


class SparkCheckpoint:
    """The folder that Spark calls the checkpoint location of one query."""

    def __init__(self, storage: Storage, plan: SourcePlan) -> None:
        self._storage = storage
        self._plan = plan

    # ------------------------------------------------------------------ while the query runs

    def source(self, batch: int) -> dict[str, Any]:
        """Returns the part of Spark's log about a running batch that a manifest keeps."""
        lines = self._storage.read(f"offsets/{batch}").decode().splitlines()
        return {
            "sources": list(self._plan.sources),
            "version": lines[0],
            "offsets": lines[2:],
            "files": self._source_files(),
        }

    def _source_files(self) -> dict[str, str]:
        """Returns small facts that sources keep for good, such as the time at which `rate` began."""
        if not self._plan.can_be_rebuilt:
            return {}
        listed = [k for k in self._storage.list("sources") if not k.key.rpartition("/")[2].startswith(".")]
        if len(listed) > _SOURCE_FILES_MAX or any(k.size_bytes > _SOURCE_FILE_BYTES_MAX for k in listed):
            return {}
        return {k.key: self._storage.read(k.key).decode() for k in listed}

    def planned_after(self, batch: int) -> bool:
        """Returns whether Spark has begun a batch after this one."""
        return any(b > batch for b in self._batches("offsets"))

    # ------------------------------------------------------------------ before the query starts

    def claim(self, log: Log) -> None:
        """Notes in the folder whose checkpoint it is; raises SparkCheckpointError if a new stream finds another's.

        Its first batch would be the one that Spark has planned for the other. A stream that has something published is
        told from another's checkpoint by `reconcile`.
        """
        owner = self._text(_OWNER)
        if owner not in (None, log.spec.id) and log.state.writer is None:
            raise SparkCheckpointError(
                f"this Spark checkpoint belongs to another stream ({owner}): Spark would go on where that stream "
                "stands",
                where=self._storage.url,
                todo="give every stream a spark_checkpoint_dir of its own, or none; if that stream is gone, delete the "
                "folder",
            )
        if owner != log.spec.id:
            self._write(_OWNER, log.spec.id)

    def reconcile(self, log: Log) -> str | None:
        """Makes Spark go on right after the last published batch; says what had to be done, None if nothing."""
        published = log.state.writer
        if published is None:
            return self._wind_back(-1)
        if not self._agrees(published, log.state.source):
            self._rebuild(log, published)
            return f"rebuilt Spark's checkpoint from the manifests, up to batch {published.batch}"
        self._restore_source_files(log.state.source or {})
        if self._lines(f"commits/{published.batch}", at_least=2) is None:
            self._write(f"commits/{published.batch}", _COMMITTED)
        return self._wind_back(published.batch)

    def _agrees(self, published: Writer, source: Mapping[str, Any] | None) -> bool:
        """Returns whether Spark's log is that of the query that published last, and knows that batch as the manifest
        does."""
        known = self._lines(f"offsets/{published.batch}")
        before = published.batch == 0 or self._lines(f"offsets/{published.batch - 1}") is not None
        return (
            self.query_id() == published.query
            and known is not None
            and (source is None or known[2:] == list(source["offsets"]))
            and before
            and all(self._has_log(i, line) for i, line in enumerate(known[2:]))
        )

    def _has_log(self, source: int, offset_text: str) -> bool:
        """Returns whether a source of files still knows which ones it has read: its offset is the number of a list of
        them."""
        offset = {} if offset_text == _NO_OFFSET else json.loads(offset_text)
        if not isinstance(offset, dict) or "logOffset" not in offset:
            return True
        key = f"sources/{source}/{offset['logOffset']}"
        return self._storage.exists(key) or self._storage.exists(f"{key}.compact")

    def _wind_back(self, batch: int) -> str | None:
        """Takes out of Spark's log what it believes done after `batch`; the next batch keeps its offsets."""
        planned = [b for b in self._batches("offsets") if b > batch]
        done = [b for b in self._batches("commits") if b > batch]
        torn = [b for b in planned if b == batch + 1 and self._lines(f"offsets/{b}") is None]
        if batch < 0 and planned and min(planned) > 0:
            raise self._error(
                f"the stream is empty, but Spark's checkpoint is at batch {max(planned)}", "its first batches are gone"
            )
        for b in sorted({*planned} - {batch + 1} | {*torn}, reverse=True):
            self._delete(f"offsets/{b}")
        for b in sorted(done, reverse=True):
            self._delete(f"commits/{b}")
        if done:
            return f"wound Spark's checkpoint back to batch {batch}: the stream has nothing after it"
        return None

    def _rebuild(self, log: Log, published: Writer) -> None:
        source = log.state.source or {"sources": (), "version": None}
        if obstacle := self._obstacle(source):
            raise self._error(
                f"Spark's checkpoint is lost, stale or torn; the stream stands after batch {published.batch}", obstacle
            )
        for folder in ("offsets", "commits"):
            for b in self._batches(folder):
                self._delete(f"{folder}/{b}")
        self._restore_source_files(source)
        if published.batch > 0:
            self._write(f"offsets/{published.batch - 1}", _offsets_text(self._source_before(log, published) or source))
        self._write(f"offsets/{published.batch}", _offsets_text(source))
        self._write(f"commits/{published.batch}", _COMMITTED)
        self._write("metadata", json.dumps({"id": published.query}))

    def _obstacle(self, source: Mapping[str, Any]) -> str | None:
        """Returns why the manifests are not all that Spark needs; None if they are."""
        ours, theirs = ", ".join(self._plan.sources), ", ".join(source["sources"]) or "nothing that Spark told of"
        if self._plan.stateful:
            return "a stateful operator before the stream keeps its state there"
        if ours != theirs:
            return f"the stream was written from {theirs}, this query reads {ours}"
        if not self._plan.can_be_rebuilt or source["version"] != _VERSION:
            return f"the offsets of its sources ({ours}) mean nothing without it"
        return None

    def _source_before(self, log: Log, published: Writer) -> Mapping[str, Any] | None:
        """Returns the offsets of the batch before; Spark wants them in its log, although it does not use them."""
        for seq in range(log.state.seq, max(log.kept - 1, log.state.seq - _LOOK_BACK_COMMITS), -1):
            m = log.commit(seq)
            if (
                isinstance(m, AppendCommit)
                and m.writer
                and m.writer.query == published.query
                and m.writer.batch == published.batch - 1
            ):
                return m.source
        return None

    def _restore_source_files(self, source: Mapping[str, Any]) -> None:
        for key, text in source.get("files", {}).items():
            if self._text(key) != text:
                self._write(key, text)

    # ------------------------------------------------------------------ files

    def query_id(self) -> str | None:
        """Returns the id of the query whose checkpoint this is; None if there is none."""
        text = self._text("metadata")
        try:
            return None if text is None else str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError):
            return None

    def _lines(self, key: str, at_least: int = 3) -> list[str] | None:
        """Returns the lines of a log file of Spark; None if it is missing or torn."""
        lines = (self._text(key) or "").splitlines()
        if len(lines) < at_least or not re.fullmatch(r"v\d+", lines[0]):
            return None
        try:
            for line in lines[1:]:
                if line != _NO_OFFSET:
                    json.loads(line)
        except ValueError:
            return None
        return lines

    def _batches(self, folder: str) -> list[int]:
        names = (k.key.rpartition("/")[2] for k in self._storage.list(folder))
        return sorted(int(n) for n in names if n.isdigit())

    def _text(self, key: str) -> str | None:
        with contextlib.suppress(KeyMissingError, UnicodeDecodeError):
            return self._storage.read(key).decode()
        return None

    def _write(self, key: str, text: str) -> None:
        self._delete_checksum(key)
        self._storage.put(key, text.encode())

    def _delete(self, key: str) -> None:
        self._delete_checksum(key)
        self._storage.delete(key)

    def _delete_checksum(self, key: str) -> None:
        """Deletes the checksum that Hadoop's local filesystem keeps beside a file; with it, it would refuse what we
        write."""
        folder, _, name = key.rpartition("/")
        self._storage.delete(f"{folder}/.{name}.crc" if folder else f".{name}.crc")

    def _error(self, what: str, why: str) -> SparkCheckpointError:
        return SparkCheckpointError(
            f"{what}, and cannot be rebuilt: {why}",
            where=self._storage.url,
            todo="restore that folder from a copy; or write to a new stream, with the source set to start where this "
            "stream ends. What is published stays readable",
        )


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children().iterator()
    while children.hasNext():
        yield from _nodes(children.next())


def _keeps_state(node: Any) -> bool:
    name = str(node.nodeName())
    if name == "Join":  # with a table it does not
        return bool(node.left().isStreaming() and node.right().isStreaming())
    return _STATEFUL.fullmatch(name) is not None


_COMMITTED = f'{_VERSION}\n{{"nextBatchWatermarkMs":0}}'


def _offsets_text(source: Mapping[str, Any]) -> str:
    metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}}, separators=(",", ":"))
    return "\n".join([_VERSION, metadata, *source["offsets"]])
