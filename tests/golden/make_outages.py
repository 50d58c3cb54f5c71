"""Makes the golden streams of an operator with a bound, format 5: one story, frozen in each state of it.

`python -m tests.golden.make_outages` was run by the version that first had this format; what is there is never written
again. In `up_failure` there are forks and tentative tuples, in `stabilization` an undo, the first corrections, more
guesses and a root of the index; in `stable` all is corrected, reconciliation is done, a milestone tells of the outage
and the first commits are dropped.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from strandline.checkpoint.policy import cec
from strandline.clock import ManualClock
from strandline.inputs.stream_definition import output_spec
from strandline.log.operator_state.upstream import Origin, upstream_of
from strandline.log.reading.tentative_results import changes
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream import quiet
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.stream.spec import StreamSpec
from strandline.log.upkeep.dropping import drop_commits
from strandline.operators.aggregate import aggregates as agg
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.aggregate.windows import time_window
from strandline.running import tick as ticks
from strandline.running.element import Element
from strandline.running.fork import Caches
from strandline.running.promise import Promise
from strandline.running.state.state_cache import StateCache
from strandline.running.step import Logs
from strandline.running.tick import Operation, Work, Worked
from strandline.running.watch import Watch
from tests.golden.make_several import CLOCK_US, COLUMNS, rows
from tests.support.operator_streams import append_rows, published_results
from tests.support.with_tentative import with_tentative

FOLDER = Path(__file__).parent / "outages"
PARTITIONS = 2
UNION = replace(
    AggregateDefinition.of(
        time_window(12),
        {"total": agg.sum("v"), "n": agg.count_all()},
        {name: kind for name, kind in COLUMNS.items() if name != "tags"},
        ["k"],
        "t",
    ),
    more_times=("t",),
)
PROMISE = Promise(3_000_000)
COLUMN_NAMES = ["k", "window_end", "total", "n"]


class Stage(NamedTuple):
    """Tuples of inputs, then ticks of a second each."""

    name: str
    feeds: Sequence[tuple[int, int, int]]
    """Number of the input, first time, end."""
    ticks: int = 1


STORY = (
    Stage("begin", [(0, 0, 30), (1, 0, 30)]),
    Stage("up_failure", [(0, 30, 66)], 4),  # the right stays away for longer than the bound
    Stage("stabilization", [(1, 30, 44), (0, 66, 84)]),
    Stage("stable", [(1, 44, 84)]),
    Stage("end", [(0, 84, 120), (1, 84, 120)]),
)
FROZEN = [stage.name for stage in STORY[1:4]]


class Outages:
    """Two inputs, the operator over their union, and its driver."""

    def __init__(self, folder: Path, clock: ManualClock) -> None:
        """Opens streams that are there, as a driver does that starts."""
        self._folder = folder
        self.clock = clock
        self.inputs = tuple(Log.open(LocalStorage(folder / name), clock) for name in ("left", "right"))
        self.output = Log.open(LocalStorage(folder / "output"), clock)
        state, known = self.output.state, [log.state.boundary for log in self.inputs]
        states = [log.state for log in self.inputs]
        self._watch = Watch.resumed(known, state.outage, clock.steady_us(), PROMISE.bound_us, states)

    def live(self, stages: Sequence[Stage]) -> None:
        """What happens in these stages."""
        for stage in stages:
            for number, first, end in stage.feeds:
                found = [row for row in rows(number, first, end) if row["t"] < end]
                log = self.inputs[number]
                append_rows(log, {p: [r for r in found if _partition(r["k"]) == p] for p in range(PARTITIONS)})
                quiet.pass_time(log, end, "golden-run")
            for _ in range(stage.ticks):
                self._tick()

    def finish(self) -> None:
        """Nothing will follow."""
        for log in self.inputs:
            quiet.finish(log, "golden-run")
        while not self.output.state.finished:
            self._tick()

    def _tick(self) -> None:
        self.clock.advance(1)
        element = Element(UNION, cec(extent=8, replay=4))
        operation = Operation(element, PROMISE, element.input(self.inputs), self.output, self.clock)
        writer = Writer("golden-query", "golden-run", self.output.state.seq + 1)
        self._watch = operation.tick(self._watch, lambda works: self._run(works, element), writer).watch

    def _run(self, works: Sequence[Work], element: Element) -> list[Worked]:
        logs, cache = Logs(self.output, self.inputs), self._folder / "cache"
        return [
            ticks.run(w, element, logs, Caches(*(StateCache(cache / f"{c}{w.partition}") for c in "sf")), self.clock)
            for w in works
        ]


def _partition(key: str | None) -> int:
    return 0 if key in (None, "key0") else 1


def content(output: Log) -> dict[str, Any]:
    """What readers get, in plain JSON values: the state, results, those with tentative ones, and all that happened."""
    outage = output.state.outage
    assert outage is not None
    partitions = range(PARTITIONS)
    return {
        "outage": outage.to_json(),
        "results": [published_results(output, p).select(COLUMN_NAMES).to_pylist() for p in partitions],
        "tentative": [[r for t in with_tentative(output, p, COLUMN_NAMES) for r in t.to_pylist()] for p in partitions],
        "told": [[r for t in changes(output, p, columns=COLUMN_NAMES) for r in t.to_pylist()] for p in partitions],
        "counted": [standing.results for standing in output.state.standings],
    }


def create(folder: Path, clock: ManualClock) -> None:
    """Empty streams."""
    fields = [{"name": n, "type": kind, "nullable": True, "metadata": {}} for n, kind in COLUMNS.items()]
    spec = StreamSpec("", {"type": "struct", "fields": fields}, ("k",), "t", PARTITIONS, 0)
    inputs = [Log.create(LocalStorage(folder / n), replace(spec, id=f"golden-{n}"), clock) for n in ("left", "right")]
    upstream = upstream_of([Origin(log.spec.id, "") for log in inputs])
    result = replace(output_spec(UNION, spec), id="golden-output", upstream=upstream)
    Log.create(LocalStorage(folder / "output"), result, clock)


def make() -> None:
    """The story from its beginning to its end."""
    clock, expected = ManualClock(CLOCK_US), {}
    with tempfile.TemporaryDirectory() as temporary:
        made = Path(temporary)
        create(made, clock)
        streams = Outages(made, clock)
        for stage in STORY:
            streams.live([stage])
            expected[stage.name] = content(streams.output)
            if stage.name == "stabilization":
                streams.output.fold()
            if stage.name == "stable":
                drop_commits(streams.output, keep_commits=2, keep_us=0, every=1, unique=lambda: "golden")
            if stage.name in FROZEN:
                for name in ("left", "right", "output"):
                    shutil.copytree(made / name, FOLDER / stage.name / name)
        streams.finish()
        expected["end"] = content(streams.output)
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    if FOLDER.exists():
        print(f"{FOLDER} is frozen; streams that exist keep working")
    else:
        make()
