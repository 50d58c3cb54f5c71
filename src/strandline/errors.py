"""Everything Strandline raises, one root, grouped by what the user must do.

    StrandlineError
    ├── InputError            change the program or the data
    │     OptionError, SchemaError, NullTimeError, AggregateOverflowError, NotRepeatableError
    ├── StreamError           ask for another stream, or for another part of it
    │     StreamNotFoundError, NotAStreamError, StreamMismatchError, FormatVersionError, TruncatedError,
    │     StreamFinishedError, InputWentBackError
    ├── ConflictError         another process is at work
    │     SecondWriterError, CollectedError, DroppedError, ConsumerError
    ├── CorruptionError       restore the file from a copy; the rest stays readable
    │     CorruptBlockError, CorruptManifestError
    ├── StorageError          mend the disk or the store, then start again
    │     NoSpaceError, NoAccessError, UnsafeFolderError, KeyExistsError, KeyMissingError
    ├── SparkCheckpointError  restore Spark's own checkpoint, or begin anew
    └── SparkSilentError      start the query again

After any error, published tuples stay published and readable. A `StrandlineWarning` tells of a problem that stops
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar


class StrandlineError(Exception):
    """Says what happened, where, and what to do about it; `stream` is the address of the stream that it concerns."""

    may_pass: ClassVar[bool] = False
    """True if the same program may go on when it is started again, with nothing else changed."""

    def __init__(self, what: str, *, where: str = "", todo: str = "", stream: str = "") -> None:
        self.what = what
        self.where = where or stream
        self.todo = todo
        self.stream = stream
        super().__init__(what, self.where, todo)

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.todo:
            lines.append(f"  to do: {self.todo}")
        return "\n".join(lines)

    def lies_in(self, url: str) -> bool:
        """Returns whether the error concerns the stream at this address.

        >>> StorageError("no answer", where="streams/a/commits/1.json", stream="streams/a").lies_in("streams/a")
        True
        """
        return bool(self.stream) and self.stream.rstrip("/") == url.rstrip("/")

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross from Spark's workers to the driver by pickle; keyword arguments need help.
        return (_rebuild, (type(self), self.what, self.where, self.todo, self.stream))


def _rebuild(kind: type[StrandlineError], what: str, where: str, todo: str, stream: str) -> StrandlineError:
    return kind(what, where=where, todo=todo, stream=stream)


@contextmanager
def concerning(stream: str) -> Iterator[None]:
    """Notes the address of the stream in every error that leaves the block without one."""
    try:
        yield
    except StrandlineError as problem:
        problem.stream = problem.stream or stream
        raise


class InputError(StrandlineError, ValueError):
    """The program or its data must change."""


class OptionError(InputError):
    """An argument has a value that cannot work."""


class SchemaError(InputError):
    """A column is missing, has the wrong type, or differs from the stream's."""


class NullTimeError(InputError):
    """Tuples without a time arrived."""


class AggregateOverflowError(InputError):
    """A sum does not fit its 64 bits, or 38 digits; nothing of its batch was published."""


class NotRepeatableError(InputError, AssertionError):
    """An operator's results depend on how its input is cut, on a restore or on other objects: see `check_operator`."""


class StreamError(StrandlineError):
    """The stream is not the one that was asked for."""


class StreamNotFoundError(StreamError):
    """There is no stream at this path."""


class NotAStreamError(StreamError):
    """The path holds something else."""


class StreamMismatchError(StreamError):
    """The stream was created with other settings."""


class FormatVersionError(StreamError):
    """The stream was written by a newer Strandline."""


class TruncatedError(StreamError):
    """The tuples asked for were dropped by retention."""


class StreamFinishedError(StreamError):
    """The stream is finished: nothing can be added to it any more."""


class InputWentBackError(StreamError):
    """An operator's input lost tuples that the operator has taken in."""


class ConflictError(StrandlineError):
    """Another process is at work on the stream."""


class SecondWriterError(ConflictError):
    """Another writer has published; this one has stopped."""


class CollectedError(ConflictError):
    """Files of this attempt were collected before it published; run the batch again."""

    may_pass = True


class DroppedError(ConflictError):
    """The commits that this process stood at were dropped in the meantime; start it again."""

    may_pass = True


class ConsumerError(ConflictError):
    """A registered consumer still needs the tuples."""


class CorruptionError(StrandlineError):
    """Bytes on storage are not those that were written."""


class CorruptBlockError(CorruptionError):
    """The bytes of a block are not those that were published."""

    offsets: tuple[int, int] | None = None
    """The first of the block and the one behind its last; None if they are not known."""


class CorruptManifestError(CorruptionError):
    """A manifest, a snapshot or stream.json cannot be trusted."""


class StorageError(StrandlineError):
    """The disk or the store failed."""

    may_pass = True


class NoSpaceError(StorageError):
    """No space left on the device or in the quota."""


class NoAccessError(StorageError):
    """This user, or these credentials, may not read or write there."""


class UnsafeFolderError(StorageError):
    """A folder for files of our own belongs to another user, or is a link."""

    may_pass = False


class KeyExistsError(StorageError):
    """An exclusive create found the key taken."""


class KeyMissingError(StorageError):
    """A key that should be there is not."""


class SparkCheckpointError(StrandlineError):
    """Spark's own checkpoint is lost or stale and cannot be rebuilt."""


class SparkSilentError(StrandlineError):
    """Spark, or a Python process that Spark started, did not answer in time."""

    may_pass = True


class StrandlineWarning(UserWarning):
    """A problem that stops nothing."""
