"""The kinds of commit, and the way from a commit to its manifest and back.

All kinds share one sequence of numbers, so the state of a stream is one fold over it:

    append     publishes the blocks of one batch over all partitions at once (`append_commit`)
    compact    puts one large block in the place of several small ones, offset for offset
    truncate   drops the blocks before a start per partition
    collect    announces files that are about to be deleted; from then on no manifest may name them
    consumer   says that a consumer needs the tuples from an offset per partition on, or none any more
    milestone  names a file that holds the sum of all commits up to one; commits before it may be dropped then
    schema     adds columns; in the blocks before it, and in those of writers that do not know of it, they are null
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.block import Block
from strandline.log.stream.commit import Commit
from strandline.log.stream.log_state import LogState, Registration
from strandline.log.stream.manifest import (
    FORMAT_2,
    FORMAT_3,
    block_from_json,
    block_json,
    checksum_in,
    seal,
    unseal,
    untrusted,
)
from strandline.log.stream.milestone import Milestone
from strandline.wording import plural


@dataclass(frozen=True, slots=True)
class CompactCommit(Commit):
    """Puts blocks in the place of the blocks that hold the same offsets."""

    kind = "compact"

    blocks: tuple[Block, ...] = ()

    def problem(self, state: LogState) -> str | None:
        for b in self.blocks:
            if not state.starts[b.partition] <= b.first < b.end <= state.ends[b.partition]:
                return f"its block {b.first}-{b.end} lies outside of partition {b.partition}"
        return None

    def to_json(self) -> dict[str, Any]:
        return {"blocks": [{"partition": b.partition, **block_json(b)} for b in self.blocks]}

    @classmethod
    def fields_in(cls, body: Mapping[str, Any]) -> dict[str, Any]:
        return {"blocks": tuple(block_from_json(b, body["published_us"]) for b in body["blocks"])}


@dataclass(frozen=True, slots=True)
class TruncateCommit(Commit):
    """Drops all tuples before an offset per partition."""

    kind = "truncate"

    starts: tuple[int, ...]
    """The first offset that is kept, per partition."""

    def problem(self, state: LogState) -> str | None:
        if len(self.starts) != len(state.ends) or any(s > e for s, e in zip(self.starts, state.ends, strict=True)):
            return "it drops tuples that were never there"
        return None

    def changes(self, state: LogState) -> dict[str, Any]:
        return {"starts": tuple(max(old, new) for old, new in zip(state.starts, self.starts, strict=True))}


@dataclass(frozen=True, slots=True)
class CollectCommit(Commit):
    """Announces files that are about to be deleted."""

    kind = "collect"

    files: tuple[str, ...] = ()
    deleted_through: int = -1
    """The files announced up to this commit are deleted."""

    def changes(self, state: LogState) -> dict[str, Any]:
        pending = tuple(seq for seq in state.announced if seq > self.deleted_through)
        return {"announced": (*pending, self.seq) if self.files else pending}


@dataclass(frozen=True, slots=True)
class ConsumerCommit(Commit):
    """Registers a consumer, or takes it out."""

    kind = "consumer"

    consumer: str
    needs: tuple[int, ...] | None
    """The first offset that it needs, per partition; None if it has gone."""

    def problem(self, state: LogState) -> str | None:
        if self.needs is None:
            return None
        if len(self.needs) != len(state.boundaries):
            return f"it has {plural(len(self.needs), 'offset')} for {plural(len(state.boundaries), 'partition')}"
        if any(need < start for need, start in zip(self.needs, state.starts, strict=False)):
            return f"consumer {self.consumer!r} needs tuples that were dropped"
        return None

    def changes(self, state: LogState) -> dict[str, Any]:
        others = tuple(c for c in state.consumers if c.name != self.consumer)
        if self.needs is None:
            return {"consumers": others}
        return {"consumers": (*others, Registration(self.consumer, self.needs, self.seq, self.published_us))}


@dataclass(frozen=True, slots=True)
class MilestoneCommit(Commit):
    """Says where a milestone lies and which commits are kept."""

    kind = "milestone"
    PARTS: ClassVar = {"milestone": Milestone}

    milestone: Milestone

    @property
    def format(self) -> int:
        return FORMAT_2

    def problem(self, state: LogState) -> str | None:
        old, new = state.milestone, self.milestone
        if new.number != (old.number + 1 if old else 0):
            return f"its milestone is not the one after {old and old.number}"
        if not 0 <= new.kept <= new.folded <= state.seq:
            return f"it keeps the commits from {new.kept} on and holds those up to {new.folded}"
        if old and (new.kept < old.kept or new.folded < old.folded):
            return f"it goes back behind milestone {old.number}"
        if state.announced and state.announced[0] < new.kept:
            return f"it drops commit {state.announced[0]}, whose files are not deleted yet"
        return None

    def changes(self, state: LogState) -> dict[str, Any]:
        return {"milestone": self.milestone}


@dataclass(frozen=True, slots=True)
class SchemaCommit(Commit):
    """Adds columns."""

    kind = "schema"

    columns: tuple[Mapping[str, Any], ...]
    """Their names and types, in Spark's JSON."""

    @property
    def format(self) -> int:
        return FORMAT_3

    def problem(self, state: LogState) -> str | None:
        if state.finished or state.standings:
            return "columns are added to a stream that is finished, or an operator's"
        names = [c["name"].lower() for c in (*state.added, *self.columns)]
        if not self.columns or len(set(names)) < len(names):
            return f"it adds no columns, or one of that name twice: {', '.join(names)}"
        return None

    def changes(self, state: LogState) -> dict[str, Any]:
        return {"added": (*state.added, *self.columns)}


_ALL = (AppendCommit, CompactCommit, TruncateCommit, CollectCommit, ConsumerCommit, MilestoneCommit, SchemaCommit)
KINDS: Mapping[str, type[Commit]] = {kind.kind: kind for kind in _ALL}
"""By name, every kind of commit."""


def encode(commit: Commit) -> bytes:
    """Returns the bytes of a manifest: one line of JSON whose last field is the checksum of the rest."""
    return seal(
        {
            "format": commit.format,
            "seq": commit.seq,
            "kind": commit.kind,
            "stream": commit.stream,
            "published_us": commit.published_us,
            **({"before": commit.before} if commit.before else {}),
            **commit.to_json(),
        }
    )


def decode(data: bytes, where: str) -> Commit:
    """Returns the commit in these bytes; raises `CorruptManifestError` if they are not those that were written."""
    body = unseal(data, where)
    try:
        kind = KINDS.get(body["kind"])
        if kind is None:
            raise ValueError(f"unknown kind of commit {body['kind']!r}")
        common = body["seq"], body["stream"], body["published_us"]
        return kind(*common, before=body.get("before", ""), checksum=checksum_in(data), **kind.fields_in(body))
    except (KeyError, TypeError, ValueError) as problem:
        raise untrusted(where, f"{type(problem).__name__}: {problem}") from problem


def announced(commits: Iterable[Commit]) -> set[str]:
    """Returns the files that these commits announce for deletion."""
    return {file for commit in commits if isinstance(commit, CollectCommit) for file in commit.files}
