"""Registered consumers: who still needs which tuples, so that retention does not take them away.

A registration is a commit. A truncation is one, too, and its writer has seen all commits before it: so the second of
the two knows of the first, and no tuple is dropped that a registered consumer needs. How far a consumer has come
since is a file of its own, `consumers/<name>.json`: reading on costs no commit, and an old word about it does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from strandline.errors import CorruptManifestError, KeyMissingError, OptionError
from strandline.log.stream.commit import Commit
from strandline.log.stream.commit_kinds import ConsumerCommit
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState, Registration
from strandline.log.stream.manifest import FORMAT, read_sealed, seal
from strandline.wording import plural

OPERATOR_PREFIX = "operator-"
"""Of the names of operators; the id of the stream that they write follows, so that nothing they are called or where
that stream lies changes who they are."""
FOLDER = "consumers"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class Consumer:
    """A reader that asked the stream to keep what it has not read yet."""

    name: str
    needs: tuple[int, ...]
    """Per partition, the first offset it still needs."""
    updated_us: int
    writes: str = ""
    """Of an operator: the stream it writes, as far as it has said so."""
    label: str = ""
    """Of an operator: what people call it, by its query's name or the folder that it writes."""

    @property
    def title(self) -> str:
        """The name for people to read. Not unique, unlike `name`."""
        return self.label or folder_name(self.writes) or self.name

    @property
    def text(self) -> str:
        """The consumer, as part of a sentence."""
        if self.writes:
            return f"the operator {self.title!r}, which writes {self.writes},"
        return f"the {'operator' if self.name.startswith(OPERATOR_PREFIX) else 'consumer'} {self.title!r}"


def operator_name(stream_id: str) -> str:
    """Returns the name under which the operator that writes a stream is registered with its input."""
    return f"{OPERATOR_PREFIX}{stream_id}"


def folder_name(path: str) -> str:
    """Returns the last part of a path or URL: the name of an operator whose query has none."""
    return path.rstrip("/").rpartition("/")[2]


def register(log: Log, name: str, needs: Sequence[int], writes: str = "", label: str = "") -> Consumer:
    """Says that the consumer needs the tuples from `needs` on; raises if some of them are gone already."""
    key = _key(name)
    if len(needs) != log.spec.partitions:
        what = f"{plural(len(needs), 'offset')} for {plural(log.spec.partitions, 'partition')}"
        raise OptionError(what, stream=log.storage.url)
    log.refresh()
    known = _registration(log, name)
    if known is None or any(new < old for new, old in zip(needs, _consumer(log, known).needs, strict=True)):
        _publish(log, name, needs)
        known = _registration(log, name)
    updated_us = log.clock.now_us()
    if known is not None:  # it may have been unregistered in this instant
        body = {"format": FORMAT, "name": name, "needs": list(needs), "updated_us": updated_us, "seq": known.seq}
        said = {"writes": writes, "label": label}
        log.storage.put(key, seal({**body, **{name: text for name, text in said.items() if text}}))
    return Consumer(name, tuple(needs), updated_us, writes, label)


def unregister(log: Log, name: str) -> None:
    """Forgets the consumer; no error if it is not known."""
    key = _key(name)
    log.refresh()
    if _registration(log, name) is not None:
        _publish(log, name, None)
    log.storage.delete(key)


def consumers(log: Log) -> Iterator[Consumer]:
    """Yields every registered consumer."""
    return (_consumer(log, registered) for registered in log.state.consumers)


def slowest(log: Log) -> list[Consumer]:
    """Returns the consumers for which the oldest tuple of a partition that any of them needs is kept."""
    known, ends = list(consumers(log)), log.state.ends
    least = [min(needs) for needs in zip(*(c.needs for c in known), strict=True)]
    return [c for c in known if any(n == first < end for n, first, end in zip(c.needs, least, ends, strict=False))]


def _publish(log: Log, name: str, needs: Sequence[int] | None) -> None:
    def make(state: LogState, _seen: Sequence[Commit]) -> ConsumerCommit:
        for partition, offset in enumerate(needs or ()):
            log.require_kept(partition, offset)
        return ConsumerCommit(*log.stamp(state), consumer=name, needs=None if needs is None else tuple(needs))

    log.publish(make, since=log.state.seq)


def _registration(log: Log, name: str) -> Registration | None:
    return next((c for c in log.state.consumers if c.name == name), None)


def _consumer(log: Log, registered: Registration) -> Consumer:
    """Returns the consumer with what its own file says, if that file belongs to this registration and can be read."""
    key = _key(registered.name)
    try:
        body = read_sealed(log.storage, key)
    except (KeyMissingError, CorruptManifestError):
        body = {}
    if body.get("seq") != registered.seq:
        return Consumer(registered.name, registered.needs, registered.published_us)
    needs, updated_us = tuple(body["needs"]), body["updated_us"]
    return Consumer(registered.name, needs, updated_us, body.get("writes", ""), body.get("label", ""))


def _key(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise OptionError(
            f"{name!r} cannot name a consumer", todo="use letters, digits, '-', '_' and '.', at most 100 of them"
        )
    return f"{FOLDER}/{name}.json"
