"""Makes the golden streams of stateless operators: a filter with computed columns, format 3, and a union, format 4.

`python -m tests.golden.make_stateless` was run by the version that first had them; what is there is never written
again. Of each there are the inputs, what the operator had made of half of them, and what it made of all. The union has
work before and behind it, and has set tuples aside.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc

from strandline.clock import ManualClock
from strandline.inputs.stream_definition import output_spec
from strandline.log.operator_state.upstream import Origin, upstream_of
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.log.stream.spec import StreamSpec
from strandline.operators.expressions.shape import AS_IS, InputShapes
from strandline.operators.stateless.definition import StatelessDefinition
from tests.golden.make_several import (
    CLOCK_US,
    COLUMNS,
    HALF,
    LATENESS,
    WHOLE,
    append,
    content,
    finish,
    work,
)

FOLDER = Path(__file__).parent / "stateless"
INPUTS = {"filter": ("left",), "union": ("left", "right")}
SCHEMA = {"type": "struct", "fields": [{"name": n, "type": k, "nullable": True} for n, k in COLUMNS.items()]}
SPEC = StreamSpec("", SCHEMA, ("k",), "t", 1, LATENESS)


def definitions() -> dict[str, StatelessDefinition]:
    """The operators as programs of today say them."""
    keep = ("k", "t")
    large = AS_IS.where(pc.field("v") > 3, SPEC.arrow)
    halves = large.select(("k", "t", "tags"), {"half": pc.field("v") / 2.0}, SPEC.arrow, keep)
    inverse = AS_IS.select(("k", "t", "tags"), {"v": pc.divide(pc.scalar(12), pc.field("v"))}, SPEC.arrow, keep)
    output = tuple(COLUMNS.items())
    key, time = (("k", "string"),), ("t", "long")
    of_halves = tuple(halves.columns_over(COLUMNS, SPEC.arrow).items())
    return {
        "filter": StatelessDefinition(of_halves, key, time, shape=halves),
        "union": StatelessDefinition(output, key, time, ("t",), large, InputShapes.of([AS_IS, inverse])),
    }


def make(name: str, folder: Path) -> None:
    """Makes the streams of one operator."""
    definition, clock = definitions()[name], ManualClock(CLOCK_US)
    with tempfile.TemporaryDirectory() as temporary:
        made = Path(temporary)
        inputs = [Log.create(LocalStorage(made / n), replace(SPEC, id=f"golden-{n}"), clock) for n in INPUTS[name]]
        upstream = upstream_of([Origin(log.spec.id, "") for log in inputs])
        result = replace(output_spec(definition, SPEC), id="golden-output", created_by="strandline", upstream=upstream)
        output = Log.create(LocalStorage(made / "output"), result, clock)
        append(inputs, 0, HALF)
        work(definition, inputs, output, made / "cache")
        for stream in (*INPUTS[name], "output"):
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
