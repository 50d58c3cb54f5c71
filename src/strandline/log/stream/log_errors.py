"""The errors of a log: there is no stream, another writer has published, or something is gone.

A writer or a reader raises what a function here returns.
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.errors import (
    CollectedError,
    ConflictError,
    CorruptBlockError,
    CorruptManifestError,
    InputError,
    NotAStreamError,
    SecondWriterError,
    StorageError,
    StreamError,
    StreamFinishedError,
    StreamMismatchError,
    StreamNotFoundError,
    TruncatedError,
)
from strandline.log.index.index import ROOT_KEY
from strandline.log.storage.storage import Storage, first_key
from strandline.log.stream import spec
from strandline.log.stream.block import Block, damaged
from strandline.log.stream.manifest import Writer


def no_stream(storage: Storage) -> StreamError:
    """Returns the error of opening a place without stream.json."""
    other, url = first_key(storage), storage.url
    if other is not None and storage.exists(spec.RESTORE_KEY):
        return NotAStreamError(
            "`strandline restore` has not finished here: parts of the stream are missing",
            stream=url,
            todo="run the same `strandline restore` again; it goes on where it stopped",
        )
    if other is None:
        return StreamNotFoundError(
            "there is no stream here", stream=url, todo="check the path, or start a writer first"
        )
    return NotAStreamError(
        f"this path holds something else (no stream.json, but {other})",
        stream=url,
        todo="choose an empty path, or restore stream.json",
    )


def another_stream(seq: int, stream: str, url: str) -> NotAStreamError:
    return NotAStreamError(
        f"commit {seq} belongs to another stream ({stream})",
        stream=url,
        todo="two streams were mixed in one folder; restore it from a copy",
    )


def second_writer(seq: int, writer: Writer | None, url: str) -> SecondWriterError:
    who = f" (query {writer.query}, run {writer.run}, batch {writer.batch})" if writer else ""
    return SecondWriterError(
        f"another writer has published commit {seq}{who}",
        stream=url,
        todo="let one writer at a time write a stream; this one has stopped and published nothing",
    )


def finished(url: str) -> StreamFinishedError:
    return StreamFinishedError(
        "the stream is finished, nothing can be added to it",
        stream=url,
        todo="write to a new stream; this one stays readable, also by operators that have not taken it in yet",
    )


def unfinished(url: str) -> InputError:
    return InputError(
        "the stream is not finished: its query ended before all input was published, or more came since",
        stream=url,
        todo="start the query again with final=True; for a source that never ends leave final=True out, and call "
        "query.finish()",
    )


def collected(files: Iterable[str], url: str) -> CollectedError:
    return CollectedError(
        f"the batch took so long that its files were collected: {', '.join(sorted(files))}",
        stream=url,
        todo="start the query again; it repeats the batch",
    )


def compacted_meanwhile(partition: int, offset: int, url: str) -> ConflictError:
    return ConflictError(
        f"blocks around offset {offset} were compacted while they were being listed",
        where=f"{url}, partition {partition}",
        stream=url,
        todo="read again",
    )


def truncated(partition: int, offset: int, start: int, url: str) -> TruncatedError:
    return TruncatedError(
        f"offset {offset} was dropped, the partition begins at {start}",
        where=f"{url}, partition {partition}",
        stream=url,
        todo=f"start at offset {start} (or 'earliest'); keep more with retention=, or register as a consumer",
    )


def gone(url: str) -> StorageError:
    """Returns the error of a reader that does not find a stream where it was: not mounted, or moved."""
    return StorageError(
        "the stream is not at this path any more, or files that it has published are missing",
        where=f"{url.rstrip('/')}/{spec.KEY}",
        stream=url,
        todo="mount the disk of the stream, or move the stream back to this path",
    )


def lost_block(block: Block, url: str) -> CorruptBlockError:
    return damaged(block, url, "a published block is gone")


def cut_block(block: Block, size_bytes: int, url: str) -> CorruptBlockError:
    return damaged(block, url, f"a published block has {size_bytes} bytes, the manifest says {block.size_bytes}")


def uncounted(url: str) -> StreamMismatchError:
    return StreamMismatchError(
        "this stream does not number its results: an earlier version of Strandline began it",
        stream=url,
        todo="start the operator with a new output stream if you want replicas of it",
    )


def unindexed(partition: int, first: int, url: str) -> CorruptManifestError:
    return CorruptManifestError(
        f"the index knows no block with offset {first}",
        where=f"{url}, partition {partition}",
        stream=url,
        todo=f"delete {ROOT_KEY}; the index is rebuilt from the manifests",
    )
