"""A manifest: one commit of a stream, `commits/<seq>.json`. What no manifest names does not exist.

Seven kinds of commit share one sequence, so the state of a stream is one fold over it:

    append     publishes the blocks of one batch over all partitions at once
    compact    puts one large block in the place of several small ones, offset for offset
    truncate   drops the blocks before a start per partition
    collect    announces files that are about to be deleted; from then on no manifest may name them
    consumer   says that a consumer needs the tuples from an offset per partition on, or none any more
    milestone  names a file with all that commits up to one add up to; commits before it may go then
    schema     adds columns; in the blocks before it, and in those of writers that do not know of it, they are null

Each carries a checksum over its own text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import xxhash

from strandline.errors import CorruptManifestError, FormatVersionError
from strandline.log.operator_state.outage import Outage
from strandline.log.operator_state.standing import Standing
from strandline.log.storage.storage import Durability
from strandline.log.stream.block import Block
from strandline.log.stream.milestone import Milestone

FORMAT = 1
FORMAT_2 = 2
"""Of whatever a reader of format 1 would misunderstand: an append with several blocks of one partition, of which it
would see none, and all that tells of commits that are dropped."""
FORMAT_3 = 3
"""Of whatever tells of columns that were added, which a reader of format 2 would leave out without a word."""
FORMAT_4 = 4
"""Of whatever tells of an operator that does not replay, or has lost something: a reader of format 3 would not know how
to recover it, and would forget what was lost."""
FORMAT_5 = 5
"""Of whatever tells of outages: a reader of format 4 would take tentative tuples for footprints, and lose them when it
compacts."""
_READABLE = (FORMAT, FORMAT_2, FORMAT_3, FORMAT_4, FORMAT_5)
CommitKind = Literal["append", "compact", "truncate", "collect", "consumer", "milestone", "schema"]


@dataclass(frozen=True, slots=True)
class Writer:
    """Who published an append: a Spark query, one run of it, one batch."""

    query: str
    run: str
    batch: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """One commit. Fields that do not belong to its kind are empty."""

    seq: int
    kind: CommitKind
    stream: str
    published_us: int
    blocks: tuple[Block, ...] = ()
    """append and compact, by partition and offset; the late side log is partition P."""
    ends: tuple[int, ...] = ()
    """append: the end offset of every partition and of the late side log, after this commit."""
    boundaries: tuple[int | None, ...] = ()
    """append: per partition, the time before which no tuple will follow (None: not known yet)."""
    time_max: int | None = None
    """append: the largest time seen in the stream so far."""
    writer: Writer | None = None
    durability: Durability = "fsync"
    """append: "os" if its files were not synced, so that a power loss may take it back."""
    standings: tuple[Standing, ...] = ()
    """append of an operator: where it stands, per partition."""
    source: Mapping[str, Any] | None = None
    """append: Spark's offsets of the batch, from which its checkpoint can be rebuilt."""
    finished: bool = False
    """append: nothing will ever follow it; its boundaries are the end of time."""
    revised: Mapping[str, Any] | None = None
    """append of an operator: what of it is not as stream.json says, since a later version of it was given."""
    retention: int | None = None
    """append: how long its writer keeps tuples, if that is not what stream.json says."""
    outage: Outage | None = None
    """append of an operator with a bound: whether inputs are missing, and what it does about it."""
    starts: tuple[int, ...] = ()
    """truncate: the first offset that is kept, per partition."""
    files: tuple[str, ...] = ()
    """collect: the files that are about to go."""
    deleted_through: int = -1
    """collect: the files announced up to this commit are gone."""
    consumer: str = ""
    """consumer: its name."""
    needs: tuple[int, ...] | None = None
    """consumer: the first offset it needs, per partition; None if it has gone."""
    milestone: Milestone | None = None
    """milestone: where it lies and which commits are kept."""
    columns: tuple[Mapping[str, Any], ...] = ()
    """schema: names and types of the columns that are added, in Spark's JSON."""
    before: str = ""
    """The checksum of the commit before this one; empty if its writer did not know it, as in old streams."""
    checksum: str = field(default="", compare=False)
    """Of its file, once there is one."""

    @property
    def named(self) -> set[str]:
        """The keys of the blocks and records of losses that it names: none of them may be announced for deletion."""
        return {b.file for b in self.blocks} | {s.losses.record for s in self.standings if s.losses is not None}


def commit_key(seq: int) -> str:
    """Where the manifest of a commit lies."""
    return f"commits/{seq:020d}.json"


def encode(manifest: Manifest) -> bytes:
    """The bytes of a manifest: one line of JSON whose last field is the checksum of the rest."""
    return seal(_body(manifest))


def decode(data: bytes, where: str) -> Manifest:
    """The manifest in these bytes; `CorruptManifestError` if they are not what was written."""
    body = unseal(data, where)
    try:
        return replace(_manifest(body), checksum=checksum_in(data))
    except (KeyError, TypeError, ValueError) as problem:
        raise _corrupt(where, f"{type(problem).__name__}: {problem}") from problem


def seal(body: Mapping[str, Any]) -> bytes:
    """JSON with its own checksum in it."""
    text = json.dumps(body, separators=(",", ":"))
    return f'{text[:-1]},"checksum":"{_checksum(text)}"}}\n'.encode()


def unseal(data: bytes, where: str) -> dict[str, Any]:
    """The JSON that `seal` made, if nothing changed it since."""
    try:
        text, mark, rest = data.decode().rpartition(',"checksum":"')
        body: dict[str, Any] = json.loads(text + "}")
    except (ValueError, UnicodeDecodeError) as problem:
        raise _corrupt(where, str(problem)) from problem
    if not mark or rest != f'{_checksum(text + "}")}"}}\n':
        raise _corrupt(where, "its checksum does not match")
    if body.get("format") not in _READABLE:
        raise FormatVersionError(
            f"format version {body.get('format')}, this Strandline reads versions up to {_READABLE[-1]}",
            where=where,
            todo="upgrade Strandline",
        )
    return body


def checksum_in(data: bytes) -> str:
    """The checksum that a sealed file says of itself."""
    return data.decode().rpartition(',"checksum":"')[2].removesuffix('"}\n')


def _checksum(text: str) -> str:
    return f"xxh3:{xxhash.xxh3_64_hexdigest(text.encode())}"


def _corrupt(where: str, why: str) -> CorruptManifestError:
    return CorruptManifestError(
        f"cannot trust this file: {why}", where=where, todo="restore it from a copy of the stream"
    )


def _body(m: Manifest) -> dict[str, Any]:
    body: dict[str, Any] = {
        "format": _format(m),
        "seq": m.seq,
        "kind": m.kind,
        "stream": m.stream,
        "published_us": m.published_us,
    }
    if m.before:
        body["before"] = m.before
    if m.kind == "append":
        by_partition = _by_partition(m.blocks)
        late = len(m.ends) - 1
        if m.writer is not None:
            body["writer"] = {"query": m.writer.query, "run": m.writer.run, "batch": m.writer.batch}
        if m.durability != "fsync":
            body["durability"] = m.durability
        body["source"] = m.source
        body["time_max"] = m.time_max
        if m.finished:
            body["finished"] = True
        if m.retention is not None:
            body["retention"] = m.retention
        if m.revised:
            body["revised"] = dict(m.revised)
        if m.outage is not None:
            body["outage"] = m.outage.to_json()
        body["partitions"] = [
            _part(by_partition.get(p, ()), m.ends[p]) | {"boundary": m.boundaries[p]} | _operator(m.standings, p)
            for p in range(late)
        ]
        body["late"] = _part(by_partition.get(late, ()), m.ends[late])
    elif m.kind == "compact":
        body["blocks"] = [{"partition": b.partition, **block_json(b)} for b in m.blocks]
    elif m.kind == "truncate":
        body["starts"] = list(m.starts)
    elif m.kind == "consumer":
        body["consumer"] = m.consumer
        body["needs"] = None if m.needs is None else list(m.needs)
    elif m.kind == "schema":
        body["columns"] = list(m.columns)
    elif m.milestone is not None:
        body["milestone"] = m.milestone.to_json()
    else:
        body["files"] = list(m.files)
        body["deleted_through"] = m.deleted_through
    return body


def _operator(standings: Sequence[Standing], partition: int) -> dict[str, Any]:
    return {"operator": standings[partition].to_json()} if standings else {}


def tells_of_losses(standings: Sequence[Standing]) -> bool:
    """Whether only readers of format 4 understand these standings."""
    return any(s.mode == "partial" or s.losses is not None for s in standings)


def _format(m: Manifest) -> int:
    if m.outage is not None:
        return FORMAT_5
    if tells_of_losses(m.standings):
        return FORMAT_4
    if m.kind == "schema":
        return FORMAT_3
    has_several = m.kind == "append" and len({b.partition for b in m.blocks}) < len(m.blocks)
    return FORMAT_2 if has_several or m.kind == "milestone" else FORMAT


def _by_partition(blocks: Sequence[Block]) -> dict[int, list[Block]]:
    found: dict[int, list[Block]] = {}
    for block in sorted(blocks, key=lambda b: (b.partition, b.first)):
        found.setdefault(block.partition, []).append(block)
    return found


def _part(blocks: Sequence[Block], end: int) -> dict[str, Any]:
    if not blocks:
        return {"first": end, "end": end}
    if len(blocks) == 1:
        return block_json(blocks[0])
    return {"first": blocks[0].first, "end": blocks[-1].end, "blocks": [block_json(b) for b in blocks]}


def block_json(block: Block) -> dict[str, Any]:
    """What a manifest says of a block, but for its partition and time of publication."""
    return {
        "first": block.first,
        "end": block.end,
        "file": block.file,
        "rows": dict(block.rows),
        "time": [block.time_min, block.time_max],
        "bytes": block.size_bytes,
        "checksum": block.checksum,
    }


def _manifest(body: Mapping[str, Any]) -> Manifest:
    kind: CommitKind = body["kind"]
    published_us = body["published_us"]
    common = {name: body[name] for name in ("seq", "kind", "stream", "published_us")}
    common["before"] = body.get("before", "")
    if kind == "append":
        parts = [*body["partitions"], body["late"]]
        writer = body.get("writer")
        return Manifest(
            **common,
            blocks=tuple(
                block_from_json({**block, "partition": p}, published_us)
                for p, part in enumerate(parts)
                for block in part.get("blocks", [part] if "file" in part else ())
            ),
            ends=tuple(part["end"] for part in parts),
            boundaries=tuple(part["boundary"] for part in body["partitions"]),
            time_max=body["time_max"],
            writer=Writer(**writer) if writer else None,
            durability=body.get("durability", "fsync"),
            source=body["source"],
            finished=body.get("finished", False),
            retention=body.get("retention"),
            revised=body.get("revised"),
            outage=Outage.from_json(body["outage"]) if "outage" in body else None,
            standings=tuple(Standing.from_json(p["operator"]) for p in body["partitions"] if "operator" in p),
        )
    if kind == "compact":
        return Manifest(**common, blocks=tuple(block_from_json(b, published_us) for b in body["blocks"]))
    if kind == "truncate":
        return Manifest(**common, starts=tuple(body["starts"]))
    if kind == "collect":
        return Manifest(**common, files=tuple(body["files"]), deleted_through=body["deleted_through"])
    if kind == "consumer":
        needs = body["needs"]
        return Manifest(**common, consumer=body["consumer"], needs=None if needs is None else tuple(needs))
    if kind == "milestone":
        return Manifest(**common, milestone=Milestone.from_json(body["milestone"]))
    if kind == "schema":
        return Manifest(**common, columns=tuple(body["columns"]))
    raise ValueError(f"unknown kind of commit {kind!r}")


def block_from_json(part: Mapping[str, Any], published_us: int = 0) -> Block:
    """The block that `block_json` and its partition describe."""
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
