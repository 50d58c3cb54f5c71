"""Figure 3.10: two nodes without state in a row; the second one is killed, comes back, and catches up."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.harness import generate, say
from benchmarks.papers.figure import Claim, Data, Experiment, Figure, Panel, Size
from benchmarks.papers.thesis.killed_programs import ENOUGH, FILES, FIRST, LAST, READY, SENT, TUPLE_BYTES
from strandline.clock import SYSTEM_CLOCK
from strandline.errors import StreamNotFoundError
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log

_LOOK_S = 0.05
_FEED_S = 0.5
_PATIENCE_S = 240
_COURSE_S = 2.0
"""How long each value of the course is for: some times as long as a batch."""
_CAUGHT_UP_S = 2.0
"""The last stream has caught up when it has all but the tuples of this time."""


@dataclass(frozen=True)
class _Plan:
    rate: int
    """Tuples a second."""
    settle_s: float
    before_s: float
    down_s: float
    after_s: float


_PLANS = {
    "tiny": _Plan(500, 0.1, 0.6, 0.4, 0.6),
    "small": _Plan(1_500, 3, 15, 8, 15),
    "full": _Plan(3_000, 10, 52, 34, 60),
}


def measure(size: Size, folder: Path) -> Data:
    """Kills a filter without Spark, and then one in Spark, which a test of some seconds leaves out."""
    ways = {"plain": ("plain-entry", "plain-filter"), "spark": ("entry", "filter")}
    found = {}
    for way, nodes in ways.items():
        if way == "spark" and size == "tiny":
            continue
        place = folder / way
        place.mkdir()
        found[way] = _Scenario(place, nodes, _PLANS[size]).run()
        say(f"killed: {way} { ({name: v for name, v in found[way].items() if name not in ('first', 'last')}) }")
    return found


@dataclass
class _Scenario:
    """One kill: what the streams of both nodes have at each moment."""

    folder: Path
    nodes: tuple[str, str]
    plan: _Plan
    seen: list[tuple[float, int, int]] = field(default_factory=list)
    """The moment, and how many tuples the first and the last stream have."""

    def run(self) -> dict[str, object]:
        """Runs the nodes and kills the second one; returns the course of both streams, and the moments."""
        plan = self.plan
        with self._feeding(), self._node(self.nodes[0]) as first:
            self._until(lambda: self._count(FIRST) > 0, "the first node publishes")
            with self._node(self.nodes[1]) as filter_:
                self._until(self._has_caught_up, "the last stream has what the first one has")
                began_s = self._until_time(time.monotonic() + plan.settle_s)
                killed_s = self._until_time(began_s + plan.before_s)
                os.killpg(filter_.pid, signal.SIGKILL)
                filter_.wait()
                self._alive = first
            silent_s = self._until_time(killed_s)  # the first look after the kill
            had = self._count(LAST)
            restarted_s = self._until_time(killed_s + plan.down_s)
            known = set(self.folder.glob(f"{READY}-*"))
            with self._node(self.nodes[1]) as filter_:
                ready_s = self._until(lambda: set(self.folder.glob(f"{READY}-*")) != known, "the node is back")
                flowing_s = self._until(lambda: self._count(LAST) > had, "the node publishes again")
                caught_s = self._until(self._has_caught_up, "the node has caught up")
                ended_s = self._until_time(caught_s + plan.after_s)
                self._feeds = False
                (self.folder / SENT).touch()
                first.wait(_PATIENCE_S)
                self._until(lambda: self._count(LAST) >= self._count(FIRST), "the last stream has all")
                (self.folder / ENOUGH).touch()
                filter_.wait(_PATIENCE_S)
        lost, twice = self._compared()
        return {
            **{name: self._course(column, began_s, ended_s) for name, column in (("first", 1), ("last", 2))},
            "killed_s": round(killed_s - began_s, 2),
            "restarted_s": round(restarted_s - began_s, 2),
            "ready_s": round(ready_s - began_s, 2),
            "flowing_s": round(flowing_s - began_s, 2),
            "caught_up_s": round(caught_s - began_s, 2),
            "before": self._rate(2, began_s, killed_s),
            "down": self._rate(2, silent_s, ready_s),
            "first_down": self._rate(1, killed_s, ready_s),
            "replaying": self._rate(2, ready_s, caught_s),
            "after": self._rate(2, caught_s, ended_s),
            "lost": lost,
            "twice": twice,
        }

    # ------------------------------------------------------------------ the nodes

    @contextmanager
    def _node(self, node: str) -> Iterator[subprocess.Popen[bytes]]:
        """Starts a node, and ends it and all that it has started."""
        log = (self.folder / "nodes.log").open("a")
        child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.papers.thesis.killed_programs", node, self.folder, str(self.plan.rate)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                "STRANDLINE_STATE_DIR": str(self.folder / f"state-{time.monotonic_ns()}"),
            },
            start_new_session=True,
        )
        self._alive = child
        try:
            yield child
        finally:
            log.close()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()

    @contextmanager
    def _feeding(self) -> Iterator[None]:
        """Makes the files that the entry point in Spark is fed with; they get their names while the nodes run."""
        self._is_spark = not self.nodes[0].startswith("plain")
        self._logs: dict[str, Log] = {}
        self._feeds, self._fed, self._fed_s = self._is_spark, itertools.count(), 0.0
        if self._is_spark:
            many = round(self.plan.rate * _FEED_S)
            made = generate(self.folder / "made", TUPLE_BYTES, 2 * many, 8)
            self._made = sorted(made.folder.iterdir())
            (self.folder / FILES).mkdir()
            self._feed()
        yield

    def _feed(self) -> None:
        """Gives the next file its name, if it is time."""
        now = time.monotonic()
        while self._feeds and now - self._fed_s >= _FEED_S:
            self._fed_s = now if not self._fed_s else self._fed_s + _FEED_S
            number = next(self._fed)
            os.link(self._made[number % len(self._made)], self.folder / FILES / f"{number:06d}.parquet")

    # ------------------------------------------------------------------ the receiver

    def _count(self, stream: str) -> int:
        """Returns how many tuples a stream has, as of the last look."""
        log = self._logs.get(stream)
        return log.state.ends[0] if log else 0

    def _look(self) -> None:
        for stream in (FIRST, LAST):
            if stream in self._logs:
                self._logs[stream].refresh()
                continue
            try:
                self._logs[stream] = Log.open(LocalStorage(self.folder / stream, "os"))
            except StreamNotFoundError:
                continue
        self.seen.append((time.monotonic(), self._count(FIRST), self._count(LAST)))

    def _has_caught_up(self) -> bool:
        first, last = self._count(FIRST), self._count(LAST)
        return last > 0 and first - last <= self.plan.rate * _CAUGHT_UP_S

    def _until(self, is_so: object, what: str) -> float:
        """Looks until it is so; returns when that was."""
        assert callable(is_so)
        patience = time.monotonic() + _PATIENCE_S
        while True:
            self._feed()
            self._look()
            if is_so():
                return self.seen[-1][0]
            if time.monotonic() > patience or self._alive.poll() is not None:
                said = (self.folder / "nodes.log").read_text()[-2_000:]
                raise TimeoutError(f"it did not come to pass that {what}: {said}")
            SYSTEM_CLOCK.sleep(_LOOK_S)

    def _until_time(self, moment: float) -> float:
        return self._until(lambda: time.monotonic() >= moment, "time passes")

    # ------------------------------------------------------------------ what was seen

    def _at(self, column: int, moment: float) -> float:
        """Returns how many tuples a stream had at a moment: those of the last look before it."""
        found = [one[column] for one in self.seen if one[0] <= moment]
        return float(found[-1]) if found else 0.0

    def _rate(self, column: int, since: float, until: float) -> float:
        """Returns MB/s between two moments."""
        many = self._at(column, until) - self._at(column, since)
        return round(float(many * TUPLE_BYTES / max(until - since, _LOOK_S) / 1e6), 2)

    def _course(self, column: int, since: float, until: float) -> list[list[float]]:
        """Returns MB/s over time."""
        seconds = np.arange(0, until - since, min(_COURSE_S, (until - since) / 5)).tolist()
        return [[round(b, 2), self._rate(column, since + a, since + b)] for a, b in itertools.pairwise(seconds)]

    def _compared(self) -> tuple[int, int]:
        """Returns how many tuples of the first stream the last one lacks, and how many it has twice."""
        first, last = (self._tuples(stream) for stream in (FIRST, LAST))
        lost = max(0, len(first) - len(last))
        twice = max(0, len(last) - len(first))
        if not lost and not twice and not np.array_equal(first, last):
            raise AssertionError("the last stream has other tuples than the first, or in another order")
        return lost, twice

    def _tuples(self, stream: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        log = Log.open(LocalStorage(self.folder / stream))
        tables = log.read(0, columns=["item_price"])
        return np.concatenate([np.empty(0), *(table.column("item_price").to_numpy() for table in tables)])


# ---------------------------------------------------------------------- the figure


def _main(data: Data) -> Mapping[str, float]:
    """Returns what the claims are about: the filter in Spark."""
    found: Mapping[str, float] = data.get("spark") or data["plain"]
    return found


_COURSE_OF_THE_PAPER = [(-52.0, 26.0), (0.0, 26.0), (0.1, 0.0), (34.0, 0.0), (38.0, 20.0), (112.0, 20.0), (113.0, 25.0)]
"""The text's values, by seconds after the crash at 0:52: back at 1:26, 20 MB/s from 1:30, 25 MB/s from 2:45."""


def _panels(data: Data) -> Sequence[Panel]:
    titles = {"spark": "The filter is a Spark program", "plain": "The filter is a process without Spark"}
    panels = []
    for way, title in titles.items():
        if way in data:
            one = data[way]
            killed_s = one["killed_s"]
            moments = ", ".join(
                f"{name} at {one[key] - killed_s:.0f}"
                for name, key in (("started", "restarted_s"), ("back", "ready_s"))
            )
            lines = {"the receiver's": one["last"], "the first node persists": one["first"]}
            panels.append(
                Panel(
                    title,
                    f"seconds after the kill ({moments})",
                    "MB/s",
                    ours={name: [(moment - killed_s, rate) for moment, rate in line] for name, line in lines.items()},
                    paper={"the receiver's": _COURSE_OF_THE_PAPER},
                )
            )
    return panels


def _table(data: Data) -> Sequence[Sequence[str]]:
    def row(name: str, key: str, unit: str, paper: str) -> tuple[str, ...]:
        return (name, *(f"{data[way][key]:g} {unit}".strip() for way in data), paper)

    def after(name: str, key: str, since: str, paper: str) -> tuple[str, ...]:
        return (name, *(f"{data[way][key] - data[way][since]:.1f} s" for way in data), paper)

    return [
        ("", *({"plain": "without Spark", "spark": "Spark"}[way] for way in data), "paper"),
        row("before the kill", "before", "MB/s", "26 MB/s"),
        row("while the node is down", "down", "MB/s", "0"),
        after("from its start until the node is back", "ready_s", "restarted_s", ""),
        after("from then to the first tuple", "flowing_s", "ready_s", "4 s"),
        after("from then until all is caught up", "caught_up_s", "flowing_s", "75 s"),
        row("meanwhile, from when the node is back", "replaying", "MB/s", "about 20 MB/s"),
        row("afterwards", "after", "MB/s", "about 25 MB/s"),
        row("tuples lost", "lost", "", ""),
        row("tuples twice", "twice", "", ""),
    ]


def _values(
    before: float,
    down: float,
    replaying: float,
    after: float,
    flowing_s: float = 4.0,
    lost: int = 0,
    first_down: float = 26.0,
) -> Data:
    return {
        "spark": {
            "before": before,
            "down": down,
            "first_down": first_down,
            "replaying": replaying,
            "after": after,
            "ready_s": 34.0,
            "flowing_s": 34.0 + flowing_s,
            "lost": lost,
            "twice": 0,
        }
    }


_PAPER = _values(26, 0, 20, 25)

CLAIMS = (
    Claim(
        "while the second node is down, the receiver gets nothing and the first node goes on persisting",
        holds=lambda data: _main(data)["down"] == 0 and _main(data)["first_down"] >= 0.8 * _main(data)["before"],
        shown_by=_PAPER,
        refuted_by=_values(26, 0, 20, 25, first_down=10),
    ),
    Claim(
        "tuples flow about 4 s after the node is back",
        holds=lambda data: _main(data)["flowing_s"] - _main(data)["ready_s"] <= 5,
        shown_by=_PAPER,
        refuted_by=_values(26, 0, 20, 25, flowing_s=12),
        why_not="the node is back when its Spark has started. What comes then is Spark's first batch, which loads "
        "classes and starts a Python worker; a process without Spark publishes at once, see the table.",
    ),
    Claim(
        "while it replays, throughput is about a quarter lower (20 to 26 MB/s)",
        holds=lambda data: 0.6 <= _main(data)["replaying"] / _main(data)["before"] <= 0.95,
        shown_by=_PAPER,
        refuted_by=_values(26, 0, 5, 25),
        surpassed=lambda data: _main(data)["replaying"] > 0.95 * _main(data)["before"],
        why_not="the source sends at a fixed rate that leaves the node time, so that the node replays faster than "
        "tuples come; and it takes in all that it has missed in one large batch, not block by block.",
    ),
    Claim(
        "afterwards throughput is what it was before (25 to 26 MB/s)",
        holds=lambda data: 0.85 <= _main(data)["after"] / _main(data)["before"] <= 1.2,
        shown_by=_PAPER,
        refuted_by=_values(26, 0, 20, 20),
    ),
    Claim(
        "no tuple is lost and none comes twice",
        holds=lambda data: all(one["lost"] == 0 and one["twice"] == 0 for one in data.values()),
        shown_by=_PAPER,
        refuted_by=_values(26, 0, 20, 25, lost=1),
    ),
)

FIGURE = Figure(
    "thesis-fig3.10",
    "Recovery of a node without state",
    "two Borealis nodes with a filter each, in a row; both persist their output. The second one fails at 0:52 and "
    "comes back at 1:26: it looks for the last tuple that it has stable, and has the first node replay from there.",
    "26 MB/s before the failure; at 1:30 tuples flow again, at about 20 MB/s because the first node reads as well; "
    "from 2:45 on it has caught up and throughput is about 25 MB/s.",
    "two programs of their own Spark, an entry point of files and a filter, both with stable writes; the second one, "
    "with all its processes, gets SIGKILL and is started again some seconds later. It shares two cores and a disk "
    "with the first one, so that the source sends at a fixed rate. Then the same without Spark. The receiver reads "
    "the last stream and compares it with the first, tuple by tuple.",
    _panels,
    CLAIMS,
    table=_table,
)

EXPERIMENT = Experiment("thesis-killed", "thesis", measure, (FIGURE,))
