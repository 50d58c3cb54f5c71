"""The state of a stream: the fold of its manifests, but for the list of its blocks (that is `index`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from strandline.errors import CorruptManifestError
from strandline.log.operator_state.outage import Outage, outage_problem
from strandline.log.operator_state.standing import Standing
from strandline.log.storage.storage import Durability
from strandline.log.stream.manifest import (
    FORMAT,
    FORMAT_2,
    FORMAT_3,
    FORMAT_4,
    FORMAT_5,
    Manifest,
    Writer,
    tells_of_losses,
)
from strandline.log.stream.milestone import Milestone
from strandline.units import END_OF_TIME
from strandline.wording import plural


@dataclass(frozen=True, slots=True)
class Registration:
    """A consumer as it was registered. How far it has come since is not part of the state; see `consumers`."""

    name: str
    needs: tuple[int, ...]
    seq: int
    published_us: int


@dataclass(frozen=True, slots=True)
class LogState:
    """Where a stream stands after the commit `seq` (-1: nothing was ever committed)."""

    seq: int
    starts: tuple[int, ...]
    """First offset kept, per partition; the late side log comes last."""
    ends: tuple[int, ...]
    """Next offset to be given, per partition; the late side log comes last."""
    boundaries: tuple[int | None, ...]
    time_max: int | None = None
    writer: Writer | None = None
    source: Mapping[str, Any] | None = None
    published_us: int = 0
    """When the last append was published."""
    durability: Durability = "fsync"
    """Of the last append: "os" if a power loss may take it back."""
    announced: tuple[int, ...] = ()
    """Collect commits whose files may not all be deleted yet."""
    consumers: tuple[Registration, ...] = ()
    standings: tuple[Standing, ...] = ()
    """Where the operator that writes this stream stands, per partition."""
    finished: bool = False
    """Nothing will ever be appended again."""
    retention: int | None = None
    """How long the writer of the last append keeps tuples, if that is not what stream.json says."""
    milestone: Milestone | None = None
    """The newest one; it may not be marked yet."""
    revised: Mapping[str, Any] | None = None
    """Of an operator's stream: what of the operator is not as stream.json says."""
    added: tuple[Mapping[str, Any], ...] = ()
    """Columns that came since the stream was created, in Spark's JSON."""
    outage: Outage | None = None
    """Of the stream of an operator that has, or ever had, a bound: how it is."""
    tip: str = field(default="", compare=False)
    """The checksum of the commit `seq`; empty if it is not known, as in snapshots of earlier versions."""

    @classmethod
    def empty(cls, partitions: int) -> LogState:
        """A stream to which nothing was written."""
        zeros = (0,) * (partitions + 1)
        return cls(seq=-1, starts=zeros, ends=zeros, boundaries=(None,) * partitions)

    @property
    def boundary(self) -> int | None:
        """The time before which no tuple will follow in any partition."""
        known = [b for b in self.boundaries if b is not None]
        return min(known) if len(known) == len(self.boundaries) else None

    def boundaries_until(self, time: int | None) -> tuple[int | None, ...]:
        """The boundaries, moved on to `time` where they are not further already."""
        return self.boundaries if time is None else tuple(time if b is None else max(b, time) for b in self.boundaries)

    def apply(self, m: Manifest) -> LogState:
        """Returns the state after one more commit; raises if it cannot follow. Every manifest comes through here."""
        check_follows(self, m)
        return replace(self._after(m), tip=link_to(m))

    def _after(self, m: Manifest) -> LogState:
        if m.kind == "append":
            return replace(
                self,
                seq=m.seq,
                ends=m.ends,
                boundaries=m.boundaries,
                time_max=m.time_max,
                writer=m.writer,
                source=m.source,
                published_us=m.published_us,
                durability=m.durability,
                standings=m.standings,
                finished=m.finished,
                retention=m.retention,
                revised=m.revised,
                outage=m.outage,
            )
        if m.kind == "truncate":
            starts = tuple(max(old, new) for old, new in zip(self.starts, m.starts, strict=True))
            return replace(self, seq=m.seq, starts=starts)
        if m.kind == "collect":
            pending = tuple(seq for seq in self.announced if seq > m.deleted_through)
            return replace(self, seq=m.seq, announced=(*pending, m.seq) if m.files else pending)
        if m.kind == "consumer":
            others = tuple(c for c in self.consumers if c.name != m.consumer)
            if m.needs is None:
                return replace(self, seq=m.seq, consumers=others)
            registered = Registration(m.consumer, m.needs, m.seq, m.published_us)
            return replace(self, seq=m.seq, consumers=(*others, registered))
        if m.kind == "milestone":
            return replace(self, seq=m.seq, milestone=m.milestone)
        if m.kind == "schema":
            return replace(self, seq=m.seq, added=(*self.added, *m.columns))
        return replace(self, seq=m.seq)

    def to_json(self) -> dict[str, Any]:
        """For the snapshot."""
        body = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _ONLY_IF_SAID}
        if self.standings:
            body["standings"] = [s.to_json() for s in self.standings]
        if self.finished:
            body["finished"] = True
        if self.retention is not None:
            body["retention"] = self.retention
        if self.revised:
            body["revised"] = dict(self.revised)
        if self.durability != "fsync":
            body["durability"] = self.durability
        if self.milestone:
            body["milestone"] = self.milestone.to_json()
        if self.added:
            body["added"] = list(self.added)
        if self.outage is not None:
            body["outage"] = self.outage.to_json()
        if self.tip:
            body["tip"] = self.tip
        writer = None if self.writer is None else asdict(self.writer)
        return {**body, "writer": writer, "consumers": [asdict(c) for c in self.consumers]}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> LogState:
        """From the snapshot."""
        writer = body["writer"]
        return cls(
            seq=body["seq"],
            starts=tuple(body["starts"]),
            ends=tuple(body["ends"]),
            boundaries=tuple(body["boundaries"]),
            time_max=body["time_max"],
            writer=Writer(**writer) if writer else None,
            source=body["source"],
            published_us=body["published_us"],
            durability=body.get("durability", "fsync"),
            announced=tuple(body["announced"]),
            consumers=tuple(Registration(**{**c, "needs": tuple(c["needs"])}) for c in body["consumers"]),
            standings=tuple(Standing.from_json(s) for s in body.get("standings", ())),
            finished=body.get("finished", False),
            retention=body.get("retention"),
            revised=body.get("revised"),
            milestone=Milestone.from_json(body["milestone"]) if "milestone" in body else None,
            added=tuple(body.get("added", ())),
            outage=Outage.from_json(body["outage"]) if "outage" in body else None,
            tip=body.get("tip", ""),
        )

    @property
    def format(self) -> int:
        """The version of files that tell of this state: the least whose readers understand them."""
        if self.outage is not None:
            return FORMAT_5
        if tells_of_losses(self.standings):
            return FORMAT_4
        return FORMAT_3 if self.added else FORMAT_2 if self.milestone else FORMAT


_ONLY_IF_SAID = ("standings", "finished", "retention", "durability", "milestone", "added", "revised", "outage", "tip")
"""Left out of a snapshot where there is nothing to say: most streams have none of it."""


def link_to(m: Manifest) -> str:
    """Returns what the next commit says of this one."""
    return m.checksum


def check_follows(state: LogState, m: Manifest) -> None:
    """Raises unless `m` may stand right after `state`: the invariants of the log, checked on writing and on reading."""
    problem = _problem(state, m)
    if problem:
        raise CorruptManifestError(
            f"commit {m.seq} ({m.kind}) cannot follow commit {state.seq}: {problem}",
            where=f"stream {m.stream}",
            todo="run `strandline verify` on the stream",
        )


def _problem(state: LogState, m: Manifest) -> str | None:
    if m.seq != state.seq + 1:
        return "the sequence has a gap"
    if m.before and state.tip and m.before != state.tip:
        return f"its writer had seen another commit {state.seq}, which is lost"
    if m.kind == "append":
        if state.finished:
            return "the stream is finished"
        if m.finished and any(b != END_OF_TIME for b in m.boundaries):
            return "it finishes the stream, but its boundary is not the end of time"
        if len(m.ends) != len(state.ends):
            return f"it has {plural(len(m.ends) - 1, 'partition')}, not {len(state.ends) - 1}"
        if problem := _block_problem(state, m):
            return problem
        for p, (before, after) in enumerate(zip(state.boundaries, m.boundaries, strict=True)):
            if before is not None and (after is None or after < before):
                return f"the boundary of partition {p} went back from {before} to {after}"
        if problem := _standing_problem(state, m) or outage_problem(state.outage, m.outage, state.ends, m.ends[:-1]):
            return problem
        if state.time_max is not None and (m.time_max is None or m.time_max < state.time_max):
            return "the largest time went back"
    elif m.kind == "truncate":
        if len(m.starts) != len(state.ends) or any(s > e for s, e in zip(m.starts, state.ends, strict=True)):
            return "it drops tuples that were never there"
    elif m.kind == "compact":
        for b in m.blocks:
            if not state.starts[b.partition] <= b.first < b.end <= state.ends[b.partition]:
                return f"its block {b.first}-{b.end} lies outside of partition {b.partition}"
    elif m.kind == "milestone":
        return _milestone_problem(state, m.milestone)
    elif m.kind == "schema":
        return _schema_problem(state, m)
    elif m.kind == "consumer" and m.needs is not None:
        if len(m.needs) != len(state.boundaries):
            return f"it has {plural(len(m.needs), 'offset')} for {plural(len(state.boundaries), 'partition')}"
        if any(need < start for need, start in zip(m.needs, state.starts, strict=False)):
            return f"consumer {m.consumer!r} needs tuples that were dropped"
    return None


def _block_problem(state: LogState, m: Manifest) -> str | None:
    ends = list(state.ends)
    for b in m.blocks:
        p = b.partition
        if not 0 <= p < len(ends):
            return f"there is no partition {p}"
        if b.first != ends[p] or b.end <= b.first:
            return f"offsets of partition {p} are not dense: they stood at {ends[p]}, a block has {b.first} to {b.end}"
        if sum(b.rows.values()) != b.tuples:
            rows = plural(sum(b.rows.values()), "row")
            return f"a block of partition {p} counts {rows} for {plural(b.tuples, 'offset')}"
        before = state.boundaries[p] if p < len(state.boundaries) else None
        # The boundary is of results: what a footprint says of an open window is no promise.
        if before is not None and b.has_results and b.time_min < before:
            return f"partition {p} has a tuple at {b.time_min}, before the boundary {before}"
        ends[p] = b.end
    for p, (found, said) in enumerate(zip(ends, m.ends, strict=True)):
        if found != said:
            return f"offsets of partition {p} are not dense: its blocks end at {found}, it says {said}"
    return None


def _milestone_problem(state: LogState, new: Milestone | None) -> str | None:
    old = state.milestone
    if new is None or new.number != (old.number + 1 if old else 0):
        return f"its milestone is not the one after {old and old.number}"
    if not 0 <= new.kept <= new.folded <= state.seq:
        return f"it keeps the commits from {new.kept} on and holds those up to {new.folded}"
    if old and (new.kept < old.kept or new.folded < old.folded):
        return f"it goes back behind milestone {old.number}"
    if state.announced and state.announced[0] < new.kept:
        return f"it drops commit {state.announced[0]}, whose files are not deleted yet"
    return None


def _schema_problem(state: LogState, m: Manifest) -> str | None:
    if state.finished or state.standings:
        return "columns are added to a stream that is finished, or an operator's"
    names = [c["name"].lower() for c in (*state.added, *m.columns)]
    if not m.columns or len(set(names)) < len(names):
        return f"it adds no columns, or one of that name twice: {', '.join(names)}"
    return None


def _standing_problem(state: LogState, m: Manifest) -> str | None:
    if not m.standings:
        return (
            "an operator's stream got an append that does not say where the operator stands"
            if state.standings
            else None
        )
    if len(m.standings) != len(m.boundaries):
        return f"it says for {len(m.standings)} of {plural(len(m.boundaries), 'partition')} where the operator stands"
    new: Counter[int] = Counter()
    for b in m.blocks:
        new[b.partition] += b.results
    for p, now in enumerate(m.standings):
        before = state.standings[p].input if state.standings else 0
        if now.input < before:
            return f"in partition {p} the operator went back from input offset {before} to {now.input}"
        if not 0 <= now.extent <= m.ends[p] or not now.oldest <= now.input:
            return f"in partition {p} the operator stands nowhere: extent {now.extent}, oldest input {now.oldest}"
        known = state.standings[p].results if state.standings else 0
        if now.results is not None and now.results - new[p] != known:
            return f"in partition {p} the operator had {known} results, {new[p]} are new, and it says {now.results}"
    return None


def require_forward(state: LogState, m: Manifest) -> Manifest:
    """`m` itself; raises if a recovery after it would need more of the past than before, which may have been let go.

    Asked when a commit is published, and not when it is read: early versions did publish such commits.
    """
    for p, (before, now) in enumerate(zip(state.standings, m.standings, strict=False)):
        first_before, first = state.ends[p] - before.extent, m.ends[p] - now.extent
        if now.oldest < before.oldest or first < first_before:
            raise CorruptManifestError(
                f"in partition {p} the operator would need its input from {now.oldest} and its output from {first} on "
                f"again, where {before.oldest} and {first_before} were enough",
                where=f"stream {m.stream}, about to be published",
                todo="this is a defect of Strandline; please report it",
            )
    return m
