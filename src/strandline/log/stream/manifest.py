"""The file of a commit, `commits/<seq>.json`: JSON with a checksum over its own text, and the versions of that format.

What no manifest names does not exist. The kinds of commit are in `commit_kinds`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import xxhash

from strandline.errors import CorruptManifestError, FormatVersionError, concerning
from strandline.log.storage.storage import Storage
from strandline.log.stream.block import Block, checksum
from strandline.log.stream.json_part import JsonPart

FORMAT = 1
FORMAT_2 = 2
"""Of files that a reader of format 1 would misunderstand: an append with several blocks of one partition, of which it
would see none, and files that say that commits are dropped."""
FORMAT_3 = 3
"""Of files that name added columns, which a reader of format 2 would leave out without a warning."""
FORMAT_4 = 4
"""Of files that name an operator that does not replay, or its losses: a reader of format 3 could not recover the
operator, and would forget the losses."""
FORMAT_5 = 5
"""Of files that name outages: a reader of format 4 would take tentative tuples for footprints, and lose them when it
compacts."""
_READABLE = (FORMAT, FORMAT_2, FORMAT_3, FORMAT_4, FORMAT_5)


@dataclass(frozen=True, slots=True)
class Writer(JsonPart):
    """The publisher of an append: a Spark query, one run of it, one batch."""

    query: str
    run: str
    batch: int


def commit_key(seq: int) -> str:
    """Returns the key of the manifest of a commit."""
    return f"commits/{seq:020d}.json"


def seq_of(key: str) -> int | None:
    """Returns the number of the commit whose manifest has this key; None for other keys.

    >>> seq_of(commit_key(7)), seq_of("commits/.tmp-1")
    (7, None)
    """
    number = key.removeprefix("commits/").removesuffix(".json")
    return int(number) if number.isdecimal() else None


def seal(body: Mapping[str, Any]) -> bytes:
    """Returns JSON with its own checksum in it, as one line."""
    text = json.dumps(body, separators=(",", ":"))
    return f'{text[:-1]},"checksum":"{_checksum(text)}"}}\n'.encode()


def unseal(data: bytes, where: str) -> dict[str, Any]:
    """Returns the JSON that `seal` made; raises `CorruptManifestError` if it has changed since."""
    try:
        text, mark, rest = data.decode().rpartition(',"checksum":"')
        body: dict[str, Any] = json.loads(text + "}")
    except (ValueError, UnicodeDecodeError) as problem:
        raise untrusted(where, str(problem)) from problem
    if not mark or rest != f'{_checksum(text + "}")}"}}\n':
        raise untrusted(where, "its checksum does not match")
    if body.get("format") not in _READABLE:
        raise FormatVersionError(
            f"the file has format version {body.get('format')}, this Strandline reads versions up to {_READABLE[-1]}",
            where=where,
            todo="upgrade Strandline",
        )
    return body


def read_sealed(storage: Storage, key: str) -> dict[str, Any]:
    """Returns the JSON in a file that `seal` made; the error names the file if it has changed since."""
    with concerning(storage.url):
        return unseal(storage.read(key), f"{storage.url}/{key}")


def read_checked(storage: Storage, key: str, wanted: str, what: str, todo: str) -> bytes:
    """Returns the bytes of a file that another one names with its checksum; the error says of `what` it is a part."""
    data = storage.read(key)
    if checksum(data) != wanted:
        where = f"{storage.url}/{key}"
        raise CorruptManifestError(
            f"{what} has changed since Strandline wrote it", where=where, stream=storage.url, todo=todo
        )
    return data


def checksum_in(data: bytes) -> str:
    """Returns the checksum that a sealed file states."""
    return data.decode().rpartition(',"checksum":"')[2].removesuffix('"}\n')


def _checksum(text: str) -> str:
    return f"xxh3:{xxhash.xxh3_64_hexdigest(text.encode())}"


def untrusted(where: str, why: str) -> CorruptManifestError:
    """Returns the error of a reader that finds other bytes than those that were written."""
    return CorruptManifestError(
        f"cannot trust this file: {why}", where=where, todo="restore it from a copy of the stream"
    )


def block_json(block: Block) -> dict[str, Any]:
    """Returns the part of a manifest that describes a block, without its partition and time of publication."""
    return {
        "first": block.first,
        "end": block.end,
        "file": block.file,
        "rows": dict(block.rows),
        "time": [block.time_min, block.time_max],
        "bytes": block.size_bytes,
        "checksum": block.checksum,
    }


def block_from_json(part: Mapping[str, Any], published_us: int = 0) -> Block:
    """Returns the block that `block_json` and its partition describe."""
    time: Sequence[int] = part["time"]
    return Block(
        partition=part["partition"],
        file=part["file"],
        first=part["first"],
        end=part["end"],
        rows=part["rows"],
        time_min=time[0],
        time_max=time[1],
        size_bytes=part["bytes"],
        checksum=part["checksum"],
        published_us=published_us,
    )
