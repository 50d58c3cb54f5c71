"""The state of a stream: the fold of its commits, but for the list of its blocks (that is `index`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from strandline.errors import CorruptManifestError
from strandline.log.operator_state.outage import Outage
from strandline.log.operator_state.standing import Standing
from strandline.log.storage.storage import Durability
from strandline.log.stream.append_commit import least_format
from strandline.log.stream.commit import Commit
from strandline.log.stream.json_part import JsonPart
from strandline.log.stream.manifest import FORMAT, FORMAT_2, FORMAT_3, Writer
from strandline.log.stream.milestone import Milestone
from strandline.units import Retention, first_of_all


@dataclass(frozen=True, slots=True)
class Registration(JsonPart):
    """A consumer as it was registered. How far it has come since is not part of the state; see `consumers`."""

    name: str
    needs: tuple[int, ...]
    seq: int
    published_us: int


@dataclass(frozen=True, slots=True)
class LogState(JsonPart):
    """Where a stream stands after the commit `seq` (-1: nothing was ever committed)."""

    ONLY_IF_SAID = "standings finished retention revised durability milestone added outage tip"
    PARTS: ClassVar = {
        "writer": Writer,
        "consumers": Registration,
        "standings": Standing,
        "milestone": Milestone,
        "outage": Outage,
    }

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
    announced: tuple[int, ...] = ()
    """Collect commits whose files may not all be deleted yet."""
    consumers: tuple[Registration, ...] = ()
    standings: tuple[Standing, ...] = ()
    """Where the operator that writes this stream stands, per partition."""
    finished: bool = False
    """Nothing will ever be appended again."""
    retention: Retention | None = None
    """How long the writer of the last append keeps tuples, if that is not what stream.json says."""
    revised: Mapping[str, Any] | None = None
    """Of an operator's stream: what of the operator is not as stream.json says."""
    durability: Durability = "fsync"
    """Of the last append: "os" if a power loss may take it back."""
    milestone: Milestone | None = None
    """The newest one; it may not be marked yet."""
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
        if commit.seq != self.seq + 1:
            problem: str | None = "the sequence has a gap"
        elif commit.before and self.tip and commit.before != self.tip:
            problem = f"its writer had seen another commit {self.seq}, which is lost"
        else:
            problem = commit.problem(self)
        if problem:
            raise CorruptManifestError(
                f"commit {commit.seq} ({commit.kind}) cannot follow commit {self.seq}: {problem}",
                where=f"stream {commit.stream}",
                todo="run `strandline verify` on the stream",
            )
        return replace(self, seq=commit.seq, tip=link_to(commit), **commit.changes(self))

    @property
    def format(self) -> int:
        """The version of files that tell of this state: the least whose readers understand them."""
        otherwise = FORMAT_3 if self.added else FORMAT_2 if self.milestone else FORMAT
        return least_format(self.standings, self.outage, otherwise)


def link_to(commit: Commit) -> str:
    """Returns what the next commit says of this one."""
    return commit.checksum
