"""What a log says when somebody else has published, or when something is gone."""

from __future__ import annotations

from strandline.errors import CorruptBlockError, CorruptManifestError, SecondWriterError, StreamFinishedError
from strandline.log.block import Block
from strandline.log.index import ROOT_KEY
from strandline.log.manifest import Writer


def second_writer(seq: int, writer: Writer | None, where: str) -> SecondWriterError:
    """The error of a writer that finds another's append where its own should come next."""
    who = f" (query {writer.query}, run {writer.run}, batch {writer.batch})" if writer else ""
    return SecondWriterError(
        f"another writer has published commit {seq}{who}",
        where=where,
        todo="let one writer at a time write a stream; this one has stopped and published nothing",
    )


def finished(where: str) -> StreamFinishedError:
    """The error of a writer that wants to add to a stream that was finished."""
    return StreamFinishedError(
        "the stream is finished, nothing can be added to it",
        where=where,
        todo="write to a new stream; this one stays readable, also by operators that have not taken it in yet",
    )


def lost_block(block: Block, url: str) -> CorruptBlockError:
    """The error of a reader that does not find the file of a published block."""
    return CorruptBlockError(
        "a published block is gone",
        where=f"{url}/{block.file}, partition {block.partition}, offsets {block.first} to {block.end - 1}",
        todo="restore this file from a copy; everything else of the stream stays readable",
    )


def unindexed(partition: int, first: int, url: str) -> CorruptManifestError:
    """The error of a reader that finds no block for an offset that was published."""
    return CorruptManifestError(
        f"the index knows no block with offset {first}",
        where=f"{url}, partition {partition}",
        todo=f"delete {ROOT_KEY}; the index is rebuilt from the manifests",
    )
