"""Makes the golden streams of an operator over replicas, format 5: an input, two replicas, and what is made of them.

`python -m tests.golden.make_replicas` was run by the version that first had this format; what is there is never written
again. There is what the operator had made of half of the input, when it had read the first replica; and what it made of
all.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from strandline.checkpoint.policy import Policy, cec
from strandline.clock import ManualClock
from strandline.inputs.input_of import input_of
from strandline.inputs.stream_definition import output_spec
from strandline.log.operator_state.upstream import Origin, group_of, upstream_of
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream import quiet
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.stream.spec import REPLICAS_FORMAT, StreamSpec
from strandline.operators.aggregate import aggregates as agg
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.aggregate.windows import time_window
from strandline.running import step
from strandline.running.element import Element
from strandline.running.state.state_cache import StateCache
from strandline.running.step import Done, Logs, Step
from strandline.running.tick import run_batch
from tests.golden.make_several import CLOCK_US, HALF, LATENESS, WHOLE, rows
from tests.support.operator_streams import append_rows, published_results

FOLDER = Path(__file__).parent / "replicas"
NAMES = ("input", "one", "other", "output")
POLICIES = {"one": cec(extent=8, replay=4), "other": cec(extent=30, replay=0), "output": cec(extent=8, replay=2)}
"""They differ, so that the replicas have other footprints, and results other offsets."""


def replicated() -> AggregateDefinition:
    """The operator that is there twice."""
    kinds = {"k": "string", "t": "long", "v": "long"}
    return AggregateDefinition.of(time_window(4), {"v": agg.sum("v"), "n": agg.count_all()}, kinds, ["k"], "t")


def behind() -> AggregateDefinition:
    """The one over both."""
    kinds = {"k": "string", "window_start": "long", "window_end": "long", "v": "long", "n": "long"}
    found = {"total": agg.sum("v"), "n": agg.count_all()}
    return AggregateDefinition.of(time_window(12), found, kinds, ["k"], "window_end")


def append(log: Log, first: int, end: int) -> None:
    """Some commits of the input."""
    plain = [{n: v for n, v in row.items() if n != "tags"} for row in rows(0, first, end)]
    for at in range(0, len(plain), 10):
        append_rows(log, {0: plain[at : at + 10]})


def work(definition: AggregateDefinition, policy: Policy, input_: Log, output: Log, cache: Path) -> None:
    """Takes in all that can be taken in, from a stream or from one of several replicas."""
    replicas = frozenset({0}) if output.spec.format == REPLICAS_FORMAT else frozenset()
    clock, element = ManualClock(CLOCK_US), Element(definition, policy, "set_aside", 7, replicas=replicas)

    def run(steps: Sequence[Step]) -> list[Done]:
        return [step.run(s, element, Logs(output, (input_,)), StateCache(cache / s.attempt), clock) for s in steps]

    number = 0
    while run_batch(element, [input_], output, run, Writer("golden-query", "golden-run", number), clock):
        number += 1


def work_all(streams: Sequence[Log], cache: Path, read: int) -> None:
    """Lets both replicas take in what there is, then the operator behind them, which reads the one with this number."""
    input_, one, other, output = streams
    for name, replica in (("one", one), ("other", other)):
        work(replicated(), POLICIES[name], input_, replica, cache / name)
    chosen = (one, other)[read]
    input_of(behind(), [chosen], output.state.standings).require_same(output.state.standings)
    work(behind(), POLICIES["output"], chosen, output, cache / "output")


def make(folder: Path) -> None:
    """Makes all streams."""
    clock = ManualClock(CLOCK_US)
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in (("k", "string"), *_LONGS)]
    with tempfile.TemporaryDirectory() as temporary:
        made = Path(temporary)
        spec = StreamSpec("golden-input", {"type": "struct", "fields": fields}, ("k",), "t", 1, LATENESS)
        input_ = Log.create(LocalStorage(made / "input"), spec, clock)
        result = replace(output_spec(replicated(), spec), upstream=upstream_of([Origin(spec.id, "")]))
        one, other = (
            Log.create(LocalStorage(made / name), replace(result, id=f"golden-{name}"), clock)
            for name in ("one", "other")
        )
        upstream = upstream_of([Origin(group_of(result), "", ("one", "other"))])
        last = replace(output_spec(behind(), result), id="golden-output", upstream=upstream, format=REPLICAS_FORMAT)
        streams = [input_, one, other, Log.create(LocalStorage(made / "output"), last, clock)]
        append(input_, 0, HALF)
        work_all(streams, made / "cache", 0)
        for name in NAMES:
            shutil.copytree(made / name, folder / name)
        append(input_, HALF, WHOLE)
        quiet.finish(input_, "golden-run")
        work_all(streams, made / "cache", 0)
        wanted = published_results(streams[-1], 0).to_pylist()
        (folder / "expected.json").write_text(json.dumps(wanted, indent=1) + "\n")


_LONGS = (("t", "long"), ("v", "long"))


if __name__ == "__main__":
    if FOLDER.exists():
        print(f"{FOLDER} is frozen; streams that exist keep working")
    else:
        make(FOLDER)
