"""Registered consumers: who still needs which tuples, so that retention does not take them away."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from strandline.errors import CorruptManifestError, OptionError
from strandline.log.log import Log
from strandline.log.manifest import FORMAT, seal, unseal

_FOLDER = "consumers"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class Consumer:
    """A reader that asked the stream to keep what it has not read yet."""

    name: str
    needs: tuple[int, ...]
    """Per partition, the first offset it still needs."""
    updated_us: int


def register(log: Log, name: str, needs: Sequence[int]) -> Consumer:
    """Says that the consumer needs the tuples from `needs` on; raises if some of them are gone already."""
    key = _key(name)
    if len(needs) != log.spec.partitions:
        raise OptionError(f"{len(needs)} offsets for {log.spec.partitions} partitions", where=log.storage.url)
    consumer = Consumer(name, tuple(needs), log.clock.now_us())
    body = {"format": FORMAT, "name": name, "needs": list(needs), "updated_us": consumer.updated_us}
    log.storage.put(key, seal(body))
    # A truncation that read the consumers before our put may have been published since: look again, after it.
    log.refresh()
    for partition, offset in enumerate(needs):
        log.require_kept(partition, offset)
    return consumer


def unregister(log: Log, name: str) -> None:
    """Forgets the consumer; no error if it is not known."""
    log.storage.delete(_key(name))


def consumers(log: Log) -> Iterator[Consumer]:
    """Every registered consumer."""
    for listed in log.storage.list(_FOLDER):
        if not listed.key.endswith(".json"):
            continue  # a temporary file of a put that is under way
        where = f"{log.storage.url}/{listed.key}"
        body = unseal(log.storage.read(listed.key), where)
        try:
            yield Consumer(body["name"], tuple(body["needs"]), body["updated_us"])
        except (KeyError, TypeError, json.JSONDecodeError) as problem:
            raise CorruptManifestError(
                f"cannot read a consumer: {problem!r}", where=where, todo="delete the file if the consumer is gone"
            ) from problem


def _key(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise OptionError(
            f"{name!r} cannot name a consumer", todo="use letters, digits, '-', '_' and '.', at most 100 of them"
        )
    return f"{_FOLDER}/{name}.json"
