"""The story of an operator with a bound, from its manifests: its inputs, its states, its results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from strandline.control_columns import KIND, OFFSET
from strandline.log.operator_state.outage import State
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log

_S = 1_000_000


class InputCommit(NamedTuple):
    """A commit of an input."""

    seconds: float
    tuples: int


@dataclass(frozen=True, slots=True)
class OutputCommit:
    """A commit of the operator: its state, and how many tuples of each kind that readers may see."""

    seconds: float
    state: State
    stable: int = 0
    tentative: int = 0
    undo: int = 0
    rec_done: int = 0


class Told(NamedTuple):
    """Results of one window that came at one moment."""

    seconds: float
    time_s: float
    """The end of their window."""
    is_tentative: bool


@dataclass(frozen=True, slots=True)
class OutageStory:
    """Inputs and output over time, in seconds since it began."""

    seconds: float
    """How long it lasts."""
    inputs: Mapping[str, tuple[InputCommit, ...]]
    moments: tuple[OutputCommit, ...]

    @property
    def states(self) -> list[tuple[float, float, State]]:
        """From when to when it was in which state, in order."""
        found: list[tuple[float, float, State]] = []
        for moment in self.moments:
            if found and found[-1][2] == moment.state:
                continue
            if found:
                found[-1] = (found[-1][0], moment.seconds, found[-1][2])
            found.append((moment.seconds if found else 0.0, self.seconds, moment.state))
        return found


def outage_story(inputs: Mapping[str, Log], output: Log, began_us: int, now_us: int) -> OutageStory:
    """Returns the story since a moment, by the clocks of the publishers. Reads manifests only."""
    return OutageStory(
        (now_us - began_us) / _S,
        {name: tuple(_arrivals(log, began_us)) for name, log in inputs.items()},
        tuple(_moments(output, began_us)),
    )


def _arrivals(log: Log, began_us: int) -> Iterator[InputCommit]:
    for m in log.after(log.kept - 1):
        tuples = sum(b.tuples for b in m.blocks) if isinstance(m, AppendCommit) else 0
        if tuples and m.published_us >= began_us:
            yield InputCommit((m.published_us - began_us) / _S, tuples)


def _moments(log: Log, began_us: int) -> Iterator[OutputCommit]:
    """Yields the stream's commits; the first one that counts has the state of the beginning."""
    state: State = "STABLE"
    for m in log.after(log.kept - 1):
        if not isinstance(m, AppendCommit):
            continue
        state = m.outage.state if m.outage else state
        if m.published_us < began_us:
            continue
        rows = {
            name: sum(b.rows.get(name, 0) for b in m.blocks) for name in ("result", "tentative", "undo", "rec_done")
        }
        yield OutputCommit((m.published_us - began_us) / _S, state, *rows.values())


def told(output: Log, began_us: int) -> list[Told]:
    """Reads the results since then, stable and tentative ones, window by window."""
    found: set[Told] = set()
    ends, published = _publications(output)
    for p in range(output.spec.partitions):
        for table in output.read(p, columns=[output.spec.time]):
            at = np.searchsorted(ends[p], table.column(OFFSET).to_numpy(), side="right")
            kinds, times = table.column(KIND).to_numpy(), table.column(output.spec.time).cast(pa.int64()).to_numpy()
            for kind in (Kind.RESULT, Kind.TENTATIVE):
                for us, time_us in {*zip(published[at[kinds == kind]], times[kinds == kind], strict=True)}:
                    if us >= began_us:
                        found.add(Told((us - began_us) / _S, (time_us - began_us) / _S, kind is Kind.TENTATIVE))
    return sorted(found)


def _publications(output: Log) -> tuple[list[list[int]], np.ndarray]:
    """Returns the end of each partition after each append, and when it was published."""
    appends = [m for m in output.after(output.kept - 1) if isinstance(m, AppendCommit)]
    ends = [[m.ends[p] for m in appends] for p in range(output.spec.partitions)]
    return ends, np.array([m.published_us for m in appends], np.int64)


def longest_waits(results: list[Told]) -> tuple[float, float]:
    """Returns the longest time from the end of a window to its first result, and that to its stable result."""
    first: dict[float, float] = {}
    stable: dict[float, float] = {}
    for one in results:  # in the order of their publication
        first.setdefault(one.time_s, one.seconds - one.time_s)
        if not one.is_tentative:
            stable.setdefault(one.time_s, one.seconds - one.time_s)
    return max(first.values(), default=0.0), max(stable.values(), default=0.0)
