"""Makes the golden streams of operators over several inputs, format 4: a union, a join and a barrier.

`python -m tests.golden.make_several` was run by the version that first had this format; what is there is never written
again; "theta", a join of tuples with any keys, came later. Of each there are the inputs, what the operator had made of
half of them, and what it made of all. The join has groups of footprints and a condition, the barrier has set tuples
aside.
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
from strandline.log.operator_state.upstream import Origin, upstream_of
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream import quiet
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.stream.spec import StreamSpec
from strandline.operators.aggregate import aggregates as agg
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.aggregate.windows import time_window
from strandline.operators.barrier.definition import BarrierDefinition, BarrierInput
from strandline.operators.join.definition import JoinDefinition, JoinInput
from strandline.operators.join.join_windows import JoinWindows
from strandline.operators.operator import Definition
from strandline.running import step
from strandline.running.element import Element
from strandline.running.state.state_cache import StateCache
from strandline.running.step import Done, Logs, Step
from strandline.running.tick import run_batch
from tests.support.operator_streams import Row, append_rows, published_results, set_aside

FOLDER = Path(__file__).parent / "several"
COLUMNS: dict[str, Any] = {
    "k": "string",
    "t": "long",
    "v": "long",
    "tags": {"type": "array", "elementType": "long", "containsNull": True},
}
LATENESS, HALF, WHOLE = 4, 30, 60
CLOCK_US = 1_767_268_800_000_000


def definitions() -> dict[str, Definition]:
    """The operators as programs of today say them."""
    kinds = {c: kind for c, kind in COLUMNS.items() if c != "tags"}
    union = AggregateDefinition.of(time_window(12), {"total": agg.sum("v"), "n": agg.count_all()}, kinds, ["k"], "t")
    side = JoinInput(COLUMNS, ("k",), "t")
    own = tuple((c, kind) for c, kind in COLUMNS.items() if c != "k")
    return {
        "union": replace(union, more_times=("t",)),
        "join": JoinDefinition.of(
            side, side, JoinWindows("band", -6, 6, how="full"), lambda left, right: left.v <= right.v, group=2
        ),
        "theta": JoinDefinition.of(
            side,
            side,
            JoinWindows("band", -3, 4, how="left", match="any"),
            lambda left, right: left.k != right.k and left.v + right.v > 9,
            group=2,
        ),
        "barrier": BarrierDefinition((("k", "string"),), (BarrierInput("a", "t", own), BarrierInput("b", "t", own)), 3),
    }


def rows(number: int, first: int, end: int) -> list[Row]:
    """Tuples of four keys, one of them null, a little out of order; the inputs are not alike."""
    found = []
    for i in range(first, end):
        key = (i * (3 + number)) % 4
        tags = None if i % 5 == 0 else [i, number][: i % 3]
        found.append({"k": None if key == 3 else f"key{key}", "t": i + i % 3, "v": i * (7 + number) % 11, "tags": tags})
    return sorted(found, key=lambda row: int(row["t"]))


def append(inputs: Sequence[Log], first: int, end: int) -> None:
    """Some commits of each input; the second one is behind."""
    for number, log in enumerate(inputs):
        middle = (first + end) // 2
        append_rows(log, {0: rows(number, first, middle)})
        append_rows(log, {0: rows(number, middle, end - 3 * number)})
        append_rows(log, {0: rows(number, end - 3 * number, end)})


def finish(inputs: Sequence[Log]) -> None:
    """Nothing will follow."""
    for log in inputs:
        quiet.finish(log, "golden-run")


def work(definition: Definition, inputs: Sequence[Log], output: Log, cache: Path) -> None:
    """Takes in all that can be taken in."""
    clock, element = ManualClock(CLOCK_US), Element(definition, cec(extent=8, replay=4), "set_aside", tuples_max=1)

    def run(steps: Sequence[Step]) -> list[Done]:
        return [step.run(s, element, Logs(output, tuple(inputs)), StateCache(cache / s.attempt), clock) for s in steps]

    number = 0
    while run_batch(element, inputs, output, run, Writer("golden-query", "golden-run", number), clock):
        number += 1


def content(output: Log) -> dict[str, Any]:
    """Results and what was set aside, as plain JSON values; `_open` depends on where steps end."""
    aside = [{n: v for n, v in row.items() if n != "_open"} for found in set_aside(output).values() for row in found]
    return {"results": published_results(output, 0).to_pylist(), "aside": aside}


def make(name: str, folder: Path) -> None:
    """Makes the streams of one operator."""
    definition, clock = definitions()[name], ManualClock(CLOCK_US)
    fields = [{"name": n, "type": kind, "nullable": True, "metadata": {}} for n, kind in COLUMNS.items()]
    with tempfile.TemporaryDirectory() as temporary:
        made = Path(temporary)
        spec = StreamSpec("", {"type": "struct", "fields": fields}, ("k",), "t", 1, LATENESS)
        inputs = [Log.create(LocalStorage(made / n), replace(spec, id=f"golden-{n}"), clock) for n in ("left", "right")]
        upstream = upstream_of([Origin(log.spec.id, "") for log in inputs])
        result = replace(output_spec(definition, inputs[0].spec), id="golden-output", upstream=upstream)
        output = Log.create(LocalStorage(made / "output"), result, clock)
        append(inputs, 0, HALF)
        work(definition, inputs, output, made / "cache")
        for stream in ("left", "right", "output"):
            shutil.copytree(made / stream, folder / stream)
        append(inputs, HALF, WHOLE)
        finish(inputs)
        work(definition, inputs, output, made / "cache")
        (folder / "expected.json").write_text(json.dumps(content(output), indent=1) + "\n")


if __name__ == "__main__":
    for name in definitions():
        if (FOLDER / name).exists():
            print(f"{FOLDER / name} is frozen; streams that exist keep working")
        else:
            make(name, FOLDER / name)
