"""Columns that come later: a stream goes on with tuples that have more of them than it was created with.

stream.json never changes. A commit of its own says which columns are added; it is created exclusively like any other,
so there is one schema at each point of the history, and a crash leaves the old one or the new one. A writer that was
at work with the old one meets the commit as that of a second writer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from strandline.clock import SYSTEM_CLOCK, Clock
from strandline.errors import OptionError, StreamNotFoundError
from strandline.log.storage.storage import Storage
from strandline.log.stream import log_errors
from strandline.log.stream.commit import Commit
from strandline.log.stream.commit_kinds import SchemaCommit
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState
from strandline.log.stream.spec import StreamSpec


def checked_evolution(value: str | None) -> str | None:
    """Returns `schema_evolution`; raises `OptionError` if it is neither None nor "add"."""
    if value not in (None, "add"):
        raise OptionError(
            f"schema_evolution={value!r} is unknown", todo='use "add" (new columns at the end), or leave it out'
        )
    return value


def created(storage: Storage, stream: StreamSpec, evolution: str | None, clock: Clock = SYSTEM_CLOCK) -> Log:
    """Creates the stream as `Log.create` does; with "add", first adds the last columns of `stream` if it lacks them."""
    if evolution == "add":
        with contextlib.suppress(StreamNotFoundError):
            add_columns(Log.open(storage, clock), stream)
    return Log.create(storage, stream, clock)


def add_columns(log: Log, asked: StreamSpec) -> SchemaCommit | None:
    """Adds what `asked` has more at its end, and nothing if it differs otherwise; None if there is nothing to add."""
    if asked.operator is not None or not log.spec.additions(asked):
        return None
    log.spec.with_added(log.spec.additions(asked)).require_same(asked, log.storage.url)

    def make(state: LogState, seen: Sequence[Commit]) -> SchemaCommit | None:
        columns = tuple(log.spec.additions(asked))
        if not columns:  # another writer has added them in the meantime
            return None
        if state.finished:
            raise log_errors.finished(log.storage.url)
        return SchemaCommit(*log.stamp(state), columns=columns)

    return log.publish(make, since=log.state.seq)
