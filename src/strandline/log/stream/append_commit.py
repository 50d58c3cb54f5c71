"""The commit of a batch: blocks of all partitions at once, and where stream and operator stand behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar

from strandline.errors import CorruptManifestError
from strandline.log.operator_state.outage import Outage, outage_problem
from strandline.log.operator_state.standing import Standing
from strandline.log.storage.storage import Durability
from strandline.log.stream.block import Block
from strandline.log.stream.commit import Commit
from strandline.log.stream.json_part import own_fields
from strandline.log.stream.manifest import FORMAT, FORMAT_2, FORMAT_4, FORMAT_5, Writer, block_from_json, block_json
from strandline.units import END_OF_TIME, Retention
from strandline.wording import plural

if TYPE_CHECKING:
    from strandline.log.stream.log_state import LogState


@dataclass(frozen=True, slots=True)
class Append:
    """A batch as its writer hands it to the log."""

    blocks: Sequence[Block] = ()
    """Of all partitions; a partition may have several."""
    _: KW_ONLY
    writer: Writer | None = None
    source: Mapping[str, Any] | None = None
    standings: Sequence[Standing] = ()
    boundaries: Sequence[int | None] | None = None
    """The boundaries that the writer knows; None: as far as lateness allows."""
    revised: Mapping[str, Any] | None = None
    finished: bool = False
    outage: Outage | None = None
    durability: Durability = "fsync"


@dataclass(frozen=True, slots=True)
class AppendCommit(Commit):
    """Publishes the blocks of one batch."""

    kind = "append"

    ELSEWHERE = f"{Commit.ELSEWHERE} blocks ends boundaries standings"
    ONLY_IF_SAID = "writer durability finished retention revised outage"
    PARTS: ClassVar = {"writer": Writer, "outage": Outage}

    blocks: tuple[Block, ...] = ()
    """By partition and offset; the late side log is partition P."""
    ends: tuple[int, ...] = ()
    """The end offset of every partition and of the late side log, after this commit."""
    boundaries: tuple[int | None, ...] = ()
    """Per partition, the time before which no tuple will follow (None: not known yet)."""
    standings: tuple[Standing, ...] = ()
    """In the stream of an operator: where the operator stands, per partition."""
    writer: Writer | None = None
    durability: Durability = "fsync"
    """"os" if its files were not synced, so that a power loss may take it back."""
    source: Mapping[str, Any] | None = None
    """Spark's offsets of the batch, from which its checkpoint can be rebuilt."""
    time_max: int | None = None
    """The largest time in the stream so far."""
    finished: bool = False
    """Nothing will ever follow it; its boundaries are the end of time."""
    retention: Retention | None = None
    """How long its writer keeps tuples, if that is not what stream.json says."""
    revised: Mapping[str, Any] | None = None
    """In the stream of an operator: what differs from stream.json since a later version of the operator was given."""
    outage: Outage | None = None
    """In the stream of an operator with a bound: whether inputs are missing, and how the operator goes on."""

    @property
    def format(self) -> int:
        has_several = len({b.partition for b in self.blocks}) < len(self.blocks)
        return least_format(self.standings, self.outage, FORMAT_2 if has_several else FORMAT)

    @property
    def named(self) -> set[str]:
        return {b.file for b in self.blocks} | {s.losses.record for s in self.standings if s.losses is not None}

    def problem(self, state: LogState) -> str | None:
        if state.finished:
            return "the stream is finished"
        if self.finished and any(b != END_OF_TIME for b in self.boundaries):
            return "it finishes the stream, but its boundary is not the end of time"
        if len(self.ends) != len(state.ends):
            return f"it has {plural(len(self.ends) - 1, 'partition')}, not {len(state.ends) - 1}"
        if problem := self._block_problem(state):
            return problem
        for p, (before, after) in enumerate(zip(state.boundaries, self.boundaries, strict=True)):
            if before is not None and (after is None or after < before):
                return f"the boundary of partition {p} went back from {before} to {after}"
        if problem := self._standing_problem(state):
            return problem
        if problem := outage_problem(state.outage, self.outage, state.ends, self.ends[:-1]):
            return problem
        if state.time_max is not None and (self.time_max is None or self.time_max < state.time_max):
            return "the largest time went back"
        return None

    def _block_problem(self, state: LogState) -> str | None:
        ends = list(state.ends)
        for b in self.blocks:
            p = b.partition
            if not 0 <= p < len(ends):
                return f"there is no partition {p}"
            if b.first != ends[p] or b.end <= b.first:
                stood = f"they stood at {ends[p]}, a block has {b.first} to {b.end}"
                return f"offsets of partition {p} are not dense: {stood}"
            if sum(b.rows.values()) != b.tuples:
                rows = plural(sum(b.rows.values()), "row")
                return f"a block of partition {p} counts {rows} for {plural(b.tuples, 'offset')}"
            before = state.boundaries[p] if p < len(state.boundaries) else None
            # The boundary is of results: what a footprint says of an open window is no promise.
            if before is not None and b.has_results and b.time_min < before:
                return f"partition {p} has a tuple at {b.time_min}, before the boundary {before}"
            ends[p] = b.end
        for p, (found, said) in enumerate(zip(ends, self.ends, strict=True)):
            if found != said:
                return f"offsets of partition {p} are not dense: its blocks end at {found}, it says {said}"
        return None

    def _standing_problem(self, state: LogState) -> str | None:
        if not self.standings:
            lacks = "an operator's stream got an append that does not say where the operator stands"
            return lacks if state.standings else None
        if len(self.standings) != len(self.boundaries):
            of = plural(len(self.boundaries), "partition")
            return f"it says for {len(self.standings)} of {of} where the operator stands"
        new: Counter[int] = Counter()
        for b in self.blocks:
            new[b.partition] += b.results
        for p, now in enumerate(self.standings):
            before = state.standings[p].input if state.standings else 0
            if now.input < before:
                return f"in partition {p} the operator went back from input offset {before} to {now.input}"
            if not 0 <= now.extent <= self.ends[p] or not now.oldest <= now.input:
                return f"in partition {p} the operator stands nowhere: extent {now.extent}, oldest input {now.oldest}"
            known = state.standings[p].results if state.standings else 0
            if now.results is not None and now.results - new[p] != known:
                return f"in partition {p} the operator had {known} results, {new[p]} are new, and it says {now.results}"
        return None

    def changes(self, state: LogState) -> dict[str, Any]:
        own = (f.name for f in fields(AppendCommit) if f.name not in _NOT_OF_STATE)
        return {name: getattr(self, name) for name in own}

    def to_json(self) -> dict[str, Any]:
        blocks = sorted(self.blocks, key=lambda b: (b.partition, b.first))
        by_partition = {p: list(own) for p, own in groupby(blocks, key=lambda b: b.partition)}
        parts = [_part(by_partition.get(p, ()), end) for p, end in enumerate(self.ends)]
        for p, part in enumerate(parts[:-1]):
            part["boundary"] = self.boundaries[p]
            if self.standings:
                part["operator"] = self.standings[p].to_json()
        return {**Commit.to_json(self), "partitions": parts[:-1], "late": parts[-1]}

    @classmethod
    def fields_in(cls, body: Mapping[str, Any]) -> dict[str, Any]:
        parts, published_us = [*body["partitions"], body["late"]], body["published_us"]
        return {
            **own_fields(cls, body),
            "blocks": tuple(
                block_from_json({**block, "partition": p}, published_us)
                for p, part in enumerate(parts)
                for block in part.get("blocks", [part] if "file" in part else ())
            ),
            "ends": tuple(part["end"] for part in parts),
            "boundaries": tuple(part["boundary"] for part in body["partitions"]),
            "standings": tuple(Standing.from_json(p["operator"]) for p in body["partitions"] if "operator" in p),
        }


_NOT_OF_STATE = ("seq", "stream", "before", "checksum", "blocks")


def _part(blocks: Sequence[Block], end: int) -> dict[str, Any]:
    if not blocks:
        return {"first": end, "end": end}
    if len(blocks) == 1:
        return block_json(blocks[0])
    return {"first": blocks[0].first, "end": blocks[-1].end, "blocks": [block_json(b) for b in blocks]}


def least_format(standings: Sequence[Standing], outage: Outage | None, otherwise: int) -> int:
    """Returns the least version whose readers understand where an operator stands, and what else needs `otherwise`."""
    if outage is not None:
        return FORMAT_5
    return FORMAT_4 if any(s.mode == "partial" or s.losses is not None for s in standings) else otherwise


def require_forward(state: LogState, commit: AppendCommit) -> AppendCommit:
    """Returns the commit; raises if a recovery after it would need more of the past than before.

    That part of the past may be dropped by now. Checked when a commit is published, and not when it is read: early
    versions did publish such commits.
    """
    for p, (before, now) in enumerate(zip(state.standings, commit.standings, strict=False)):
        first_before, first = state.ends[p] - before.extent, commit.ends[p] - now.extent
        if now.oldest < before.oldest or first < first_before:
            raise CorruptManifestError(
                f"after this commit a recovery of partition {p} would need older tuples than before it: the input from "
                f"{now.oldest} on (before: {before.oldest}), the output from {first} on (before: {first_before})",
                where=f"stream {commit.stream}, about to be published",
                todo="this is a defect of Strandline; please report it",
            )
    return commit
