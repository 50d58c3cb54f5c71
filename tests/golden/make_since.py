"""Makes the golden streams of operators that begin in the middle of their inputs, format 6.

`python -m tests.golden.make_since` was run by the version that first had this format; what is there is never written
again. There are two inputs, an operator over the first that began at a time, one that began at offsets, and one over
both that began at the latest: what they had made of half of the inputs, and what they made of all.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from strandline.checkpoint.policy import cec
from strandline.clock import ManualClock
from strandline.inputs.stream_definition import output_spec
from strandline.log.operator_state.beginning import Since
from strandline.log.operator_state.upstream import Origin, upstream_of
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream import quiet
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.stream.spec import StreamSpec
from strandline.operators.aggregate import aggregates as agg
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.aggregate.windows import Window, count_window, time_window
from strandline.running import step
from strandline.running.element import Element
from strandline.running.since import begun
from strandline.running.state.state_cache import StateCache
from strandline.running.step import Done, Logs, Step
from strandline.running.tick import run_batch
from tests.golden.make_several import CLOCK_US, LATENESS, rows
from tests.support.operator_streams import append_rows, published_results

FOLDER = Path(__file__).parent / "since"
INPUTS = ("input", "other")
SINCE: dict[str, Since] = {"time": 14, "offsets": {0: 12}, "latest": "latest"}
FIRST, HALF, WHOLE = 20, 40, 60


def definition(name: str) -> AggregateDefinition:
    """The operator with this name, as programs of today say it."""
    window: Window = count_window(3) if name == "offsets" else time_window(6)
    found = {"total": agg.sum("v"), "n": agg.count_all()}
    made = AggregateDefinition.of(window, found, {"k": "string", "t": "long", "v": "long"}, ["k"], "t")
    return replace(made, more_times=("t",)) if name == "latest" else made


def inputs_of(name: str, inputs: Sequence[Log]) -> Sequence[Log]:
    """Those that the operator reads."""
    return inputs if name == "latest" else inputs[:1]


def append(inputs: Sequence[Log], first: int, end: int) -> None:
    """Some commits of each input."""
    for number, log in enumerate(inputs):
        plain = [{n: v for n, v in row.items() if n != "tags"} for row in rows(number, first, end)]
        for at in range(0, len(plain), 5):
            append_rows(log, {0: plain[at : at + 5]})


def work(name: str, inputs: Sequence[Log], output: Log, cache: Path) -> None:
    """Takes in all that can be taken in."""
    clock, begins = ManualClock(CLOCK_US), output.spec.begins
    element = Element(definition(name), cec(extent=8, replay=4), "set_aside", 7, begins=begins)

    def run(steps: Sequence[Step]) -> list[Done]:
        return [step.run(s, element, Logs(output, tuple(inputs)), StateCache(cache / s.attempt), clock) for s in steps]

    number = 0
    while run_batch(element, inputs, output, run, Writer("golden-query", "golden-run", number), clock):
        number += 1


def make(folder: Path) -> None:
    """Makes all streams."""
    clock, columns = ManualClock(CLOCK_US), (("k", "string"), ("t", "long"), ("v", "long"))
    fields: list[Any] = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in columns]
    with tempfile.TemporaryDirectory() as temporary:
        made = Path(temporary)
        spec = StreamSpec("golden-input", {"type": "struct", "fields": fields}, ("k",), "t", 1, LATENESS)
        inputs = [Log.create(LocalStorage(made / n), replace(spec, id=f"golden-{n}"), clock) for n in INPUTS]
        append(inputs, 0, FIRST)
        outputs = {}
        for name, since in SINCE.items():
            own = inputs_of(name, inputs)
            upstream = upstream_of([Origin(log.spec.id, "") for log in own])
            new = replace(output_spec(definition(name), spec), id=f"golden-{name}", upstream=upstream)
            new = begun(new, since, own, Element(definition(name), cec()))
            outputs[name] = Log.create(LocalStorage(made / name), new, clock)
        append(inputs, FIRST, HALF)
        for name, output in outputs.items():
            work(name, inputs_of(name, inputs), output, made / "cache" / name)
        for name in (*INPUTS, *SINCE):
            shutil.copytree(made / name, folder / name)
        append(inputs, HALF, WHOLE)
        for log in inputs:
            quiet.finish(log, "golden-run")
        wanted = {}
        for name, output in outputs.items():
            work(name, inputs_of(name, inputs), output, made / "cache" / name)
            wanted[name] = published_results(output, 0).to_pylist()
        (folder / "expected.json").write_text(json.dumps(wanted, indent=1) + "\n")


if __name__ == "__main__":
    if FOLDER.exists():
        print(f"{FOLDER} is frozen; streams that exist keep working")
    else:
        make(FOLDER)
