"""Where an operator stands in one partition after a commit: all that recovery needs to know to begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from strandline.log.operator_state.input_mark import InputMark, Marks, Position
from strandline.log.operator_state.loss import Losses
from strandline.log.stream.json_part import JsonPart

EXTENT_NS, REPLAY_NS = 900.0, 250.0
"""Nanoseconds for a tuple of the extent and for a replayed tuple, until they have been measured."""
FOOTPRINT_NS = 1_000.0
"""Nanoseconds to make a footprint, until they have been measured."""
OPEN_S, START_S = 0.1, 1.0
"""Seconds that a recovery takes before it has read anything, until they have been measured: opening the logs; and in a
new process its start, its imports and the loading of kernels."""

_WEIGHT, _OUTLIER = 0.3, 3.0

Mode = Literal["eventual", "instant", "partial", "none"]


@dataclass(frozen=True, slots=True)
class Standing(JsonPart):
    """Part of every append of an operator's output stream, one a partition."""

    ONLY_IF_SAID = "marks losses times footprint_ns credit_us growth"
    PARTS: ClassVar = {"marks": Marks, "losses": Losses}

    input: int
    """The input tuples before this offset are in the results and the state."""
    commit: int
    """The last commit of the input that was taken in whole, over all partitions."""
    open: int
    """N: open windows."""
    oldest: int
    """T: replay begins at this input offset."""
    extent: int
    """q: so many of the newest tuples of the output hold the eventual checkpoint."""
    replay: int
    """u: so many input tuples have to be replayed; partial: so many would be skipped."""
    mode: Mode = "eventual"
    """The way to recover: by footprints, from the last whole checkpoint (partial: without a replay), or not at all."""
    saved: int = 0
    """instant, partial: windows in the last whole checkpoint, which holds the input before `oldest`."""
    saved_us: int = 0
    """instant, partial: when that was."""
    attempt: str = ""
    """Which attempt made this state, so that what it left on its machine can be told from what others left."""
    host: str = ""
    extent_ns: float = 0.0
    """Nanoseconds to read one tuple of the extent, as measured."""
    replay_ns: float = 0.0
    """Nanoseconds to replay one tuple, as measured."""
    due: int | None = None
    """No window that is open ends before this time; None if that is not known."""
    open_s: float = 0.0
    """Seconds to open the two logs in a recovery, as measured."""
    start_s: float = 0.0
    """Seconds of a new process before its first step, as measured: its start, its imports, the loading of kernels."""

    recovered: Mapping[str, float] | None = None
    """The last recovery: after which commit, extent read, tuples replayed, seconds of each."""
    seen: int = -1
    """The last commit of the input of which anything was taken in."""
    seen_checksum: str = ""
    """Its checksum: should the input be put back and go on otherwise, it will be another one."""
    results: int | None = None
    """The result ordinal: so many results were ever published. None if the stream began before they were counted."""

    marks: Marks | None = None
    """Over several inputs: where in each. Offsets of the input are places in the serialised order then, and `commit`
    and `seen` say nothing. None over one stream."""
    losses: Losses | None = None
    """The cost of failures so far, under policies that do not replay; None if nothing was lost."""
    times: tuple[int, ...] = ()
    """Where some steps ended, and at which time of the input, if the policy has to know how long windows are open."""
    footprint_ns: float = 0.0
    """The cost of making a footprint, as measured; 0 until then."""
    credit_us: float | None = None
    """The time that may still go into G-checks, if the policy bounds it; less than zero if they took too long."""
    growth: float = 0.0
    """The seconds that a second of running adds to a recovery, as measured, if the policy weighs them; 0 until then."""

    @property
    def stands(self) -> Position:
        """The place behind what was taken in."""
        return Position(self.input, None) if self.marks is None else self.marks.stands

    @property
    def replays_from(self) -> Position:
        """A place at which a replay can begin, not behind T."""
        return Position(self.oldest, None) if self.marks is None else self.marks.oldest

    @property
    def input_marks(self) -> tuple[InputMark, ...]:
        """Over several inputs, the mark of each; none over one stream."""
        return () if self.marks is None else self.marks.inputs

    @property
    def read_again(self) -> int:
        """How many input tuples a recovery reads: u, and over several inputs those before T back to where it begins."""
        if not self.replays:
            return 0
        return self.replay if self.marks is None else self.input - self.marks.oldest.ordinal

    @property
    def is_whole(self) -> bool:
        """True if a recovery begins with a checkpoint of the whole state: the footprints of one moment."""
        return self.mode in ("instant", "partial")

    @property
    def replays(self) -> bool:
        """True if a recovery loses nothing: tuples that came since the checkpoint are taken in again."""
        return self.mode in ("eventual", "instant")

    @property
    def lets_go(self) -> bool:
        """True if a failure after it loses state: nothing is kept to recover from."""
        return self.mode == "none"

    @property
    def unit_costs(self) -> tuple[float, float]:
        """Nanoseconds to read a tuple of the extent and to replay a tuple, as measured or as assumed."""
        return self.extent_ns or EXTENT_NS, self.replay_ns or REPLAY_NS

    @property
    def footprint_cost(self) -> float:
        """Nanoseconds to make a footprint, as measured or as assumed."""
        return self.footprint_ns or FOOTPRINT_NS

    @property
    def fixed_costs(self) -> tuple[float, float]:
        """Seconds to open the logs and to start a process, as measured or as assumed."""
        return self.open_s or OPEN_S, self.start_s or START_S

    @property
    def predicted_s(self) -> float:
        """How long a recovery of this partition would take in a process that has run operators before."""
        extent_ns, replay_ns = self.unit_costs
        return self.fixed_costs[0] + (self.extent * extent_ns + self.read_again * replay_ns) / 1e9

    @property
    def predicted_cold_s(self) -> float:
        """How long it would take in a new process, from the start of that."""
        return self.predicted_s + self.fixed_costs[1]

    @property
    def is_measured(self) -> bool:
        """True if all costs that matter to these predictions were measured."""
        is_extent_known = not self.extent or self.extent_ns not in (0.0, EXTENT_NS)  # older versions wrote what they
        is_replay_known = not self.read_again or self.replay_ns not in (0.0, REPLAY_NS)  # assumed
        return is_extent_known and is_replay_known and self.start_s > 0

    def forecast(self) -> dict[str, Any]:
        """Returns what a recovery would read, and how long it would take."""
        return {
            "input": self.input,
            "open_windows": self.open,
            "oldest_input": self.oldest,
            "extent": self.extent,
            "replay": self.replay,
            "read_again": self.read_again,
            "predicted_recovery_s": round(self.predicted_s, 3),
            "predicted_cold_recovery_s": round(self.predicted_cold_s, 3),
            "measured": self.is_measured,
            "footprint_us": round(self.footprint_cost / 1e3, 3),
        }

    def behind(self, tuples: int) -> Standing:
        """Returns the standing when so many tuples of the output follow that are none of its footprints.

        An eventual checkpoint may begin at its end: with tuples that wait since then, whose results are looked for.
        """
        begins = self.extent or (self.replay and not self.is_whole)
        return replace(self, extent=self.extent + tuples) if begins else self

    def started(self, seconds: float) -> Standing:
        """Returns the standing after a new process has taken so long to start."""
        return replace(self, start_s=round(towards(self.start_s or seconds, seconds), 3))


def marks_in(standings: Sequence[Standing]) -> list[Marks]:
    """Returns the marks of an operator over several inputs, per partition; nothing over one stream."""
    return [standing.marks for standing in standings if standing.marks is not None]


def towards(estimate: float, sample: float) -> float:
    """Returns the estimate, moved a little towards a measured value, however far off: it may be anything."""
    return nearer(estimate, min(sample, _OUTLIER * estimate))


def nearer(estimate: float, sample: float) -> float:
    """Returns the estimate, moved a little towards a measured value that is bounded."""
    return estimate + _WEIGHT * (sample - estimate)
