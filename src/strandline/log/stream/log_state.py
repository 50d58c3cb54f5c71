"""The state of a stream: the fold of its commits, but for the list of its blocks (that is `index`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from strandline.errors import CorruptManifestError
from strandline.log.operator_state.outage import Outage
from strandline.log.operator_state.standing import Standing
from strandline.log.storage.storage import Durability
from strandline.log.stream.append_commit import tells_of_losses
from strandline.log.stream.commit import Commit
from strandline.log.stream.manifest import FORMAT, FORMAT_2, FORMAT_3, FORMAT_4, FORMAT_5, Writer
from strandline.log.stream.milestone import Milestone
from strandline.units import Retention, first_of_all


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
    retention: Retention | None = None
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
        """Returns the state of a stream without commits."""
        zeros = (0,) * (partitions + 1)
        return cls(seq=-1, starts=zeros, ends=zeros, boundaries=(None,) * partitions)

    @property
    def boundary(self) -> int | None:
        """The time before which no tuple will follow in any partition."""
        return first_of_all(self.boundaries)

    def boundaries_until(self, time: int | None) -> tuple[int | None, ...]:
        """Returns the boundaries, moved on to `time` where they are not further already."""
        return self.boundaries if time is None else tuple(time if b is None else max(b, time) for b in self.boundaries)

    def apply(self, commit: Commit) -> LogState:
        """Returns the state after one more commit; raises if it cannot follow. Every commit comes through here."""
        check_follows(self, commit)
        return replace(self, seq=commit.seq, tip=link_to(commit), **commit.changes(self))

    def to_json(self) -> dict[str, Any]:
        """Returns the state as a snapshot holds it."""
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
        """Returns the state that a snapshot holds."""
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


def link_to(commit: Commit) -> str:
    """Returns what the next commit says of this one."""
    return commit.checksum


def check_follows(state: LogState, commit: Commit) -> None:
    """Raises unless the commit may stand right after `state`: the invariants of the log, on writing and on reading."""
    problem = _problem(state, commit)
    if problem:
        raise CorruptManifestError(
            f"commit {commit.seq} ({commit.kind}) cannot follow commit {state.seq}: {problem}",
            where=f"stream {commit.stream}",
            todo="run `strandline verify` on the stream",
        )


def _problem(state: LogState, commit: Commit) -> str | None:
    if commit.seq != state.seq + 1:
        return "the sequence has a gap"
    if commit.before and state.tip and commit.before != state.tip:
        return f"its writer had seen another commit {state.seq}, which is lost"
    return commit.problem(state)
