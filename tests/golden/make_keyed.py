"""Makes the golden streams of a keyed function, over one stream (format 3) and over the union of two (format 4).

`python -m tests.golden.make_keyed` was run by the version that first had such streams; what is there is never written
again. Of each there are the inputs, what two versions of the function had made of half of them, and what the second one
made of all. There are nulls, texts, several results of a call, keys that close and keys that expire.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
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
from strandline.operators.keyed.definition import KeyedDefinition
from strandline.operators.keyed.keyed_function import keyed
from strandline.operators.keyed.record_layout import CLOSE, EMIT
from strandline.operators.one_table import GivenInput
from strandline.running import step
from strandline.running.element import Element
from strandline.running.state.state_cache import StateCache
from strandline.running.step import Done, Logs, Step
from strandline.running.tick import run_batch
from tests.support.operator_streams import Row, append_rows, published_results, set_aside, struct

FOLDER = Path(__file__).parent / "keyed"
COLUMNS = {"k": "string", "t": "long", "v": "long", "name": "string", "price": "decimal(10,2)"}
INPUTS = {"one": ("left",), "union": ("left", "right")}
LATENESS, SECOND_VERSION, HALF, WHOLE = 4, 24, 36, 72
CLOCK_US = 1_767_268_800_000_000
STATE = "n int, total decimal(12,2), last string, lowest double, is_odd boolean"
OUTPUT = "n short, total decimal(12,2), last string, lowest float"
EXPIRE, DIVISOR = 9, 5


def farewell(state: Any, out: Any) -> int:
    """The last word about a key."""
    out[0].n = -state.n
    out[0].total = state.total
    if state.is_null("last"):
        out[0].set_null("last")
    else:
        out[0].last = state.last
    return EMIT if state.is_odd else 0


def first_version(state: Any, row: Any, out: Any) -> int:
    """Some of everything; a tuple now and then fails."""
    state.n += 1
    state.is_odd = state.n % 2 == 1
    state.total += row.price
    if row.is_null("name"):
        state.set_null("last")
    elif row.name == "close":
        out[0].n = state.n
        out[0].last = "closed"
        return EMIT + CLOSE
    else:
        state.last = row.name
    if state.is_new or 7 / (row.v - DIVISOR) < state.lowest:
        state.lowest = 7 / (row.v - DIVISOR)
    out[0].n = len(row.name)
    out[0].last = state.last
    out[0].lowest = state.lowest
    out[1].n = state.n
    out[1].total = state.total
    out[1].set_null("last")
    return 2 * EMIT if state.n % 3 == 0 else EMIT if row.v > 8 else 0


def second_version(state: Any, row: Any, out: Any) -> int:
    """Less; of the same state."""
    state.n += 100
    state.is_odd = not state.is_odd
    state.last = row.k
    out[0].n = state.n
    out[0].total = state.total
    out[0].last = state.last
    out[0].lowest = state.lowest + 7 / (row.v - DIVISOR)
    return EMIT


def definition(name: str, version: int) -> KeyedDefinition:
    """The operator as a program says it."""
    function = {1: first_version, 2: second_version}[version]
    made = keyed(state=STATE, output=OUTPUT, expire=EXPIRE, on_expire=farewell, emit=2, version=version)(function)
    lateness, more = (LATENESS, ()) if name == "one" else (0, ("t",))
    return KeyedDefinition.of(made, GivenInput(COLUMNS, ("k",), "t", lateness), more)


def rows(number: int, first: int, end: int) -> list[Row]:
    """Tuples of five keys, one of them null, a little out of order; the inputs are not alike."""
    found = []
    for i in range(first, end):
        key = (i * (3 + number) + i // 7) % 5
        name = "close" if i % 8 == 7 else None if i % 3 == 1 else "né" * (i % 4)
        time = i + i % 3 + 12 * (i // 20)
        price = None if i % 7 == 3 else Decimal(i * 7919 % 9_000 - 900) / 100
        found.append(
            {
                "k": None if key == 4 else f"key{key}",
                "t": time,
                "v": i * (7 + number) % 11,
                "name": name,
                "price": price,
            }
        )
    return sorted(found, key=lambda row: int(row["t"]))


def append(inputs: Sequence[Log], first: int, end: int) -> None:
    """Two commits of each input."""
    for number, log in enumerate(inputs):
        middle = (first + end) // 2 - number
        append_rows(log, {0: rows(number, first, middle)})
        append_rows(log, {0: rows(number, middle, end)})


def finish(inputs: Sequence[Log]) -> None:
    """Nothing will follow."""
    for log in inputs:
        quiet.finish(log, "golden-run")


def work(d: KeyedDefinition, inputs: Sequence[Log], output: Log, cache: Path) -> None:
    """Takes in all that can be taken in."""
    clock, element = ManualClock(CLOCK_US), Element(d, cec(extent=6, replay=4), "set_aside", tuples_max=1)

    def run(steps: Sequence[Step]) -> list[Done]:
        return [step.run(s, element, Logs(output, tuple(inputs)), StateCache(cache), clock) for s in steps]

    number = 0
    while run_batch(element, inputs, output, run, Writer("golden-query", "golden-run", number), clock):
        number += 1


def content(output: Log) -> dict[str, Any]:
    """Results and what was set aside, as plain JSON values; `_open` depends on where steps end."""
    aside = [{n: v for n, v in row.items() if n != "_open"} for found in set_aside(output).values() for row in found]
    found: dict[str, Any] = json.loads(
        json.dumps({"results": published_results(output, 0).to_pylist(), "aside": aside}, default=str)
    )
    return found


def make(name: str, folder: Path) -> None:
    """Makes the streams of one operator."""
    clock = ManualClock(CLOCK_US)
    with tempfile.TemporaryDirectory() as temporary:
        made = Path(temporary)
        spec = StreamSpec("", struct([*COLUMNS.items()]), ("k",), "t", 1, LATENESS)
        inputs = [Log.create(LocalStorage(made / n), replace(spec, id=f"golden-{n}"), clock) for n in INPUTS[name]]
        upstream = upstream_of([Origin(log.spec.id, "") for log in inputs])
        result = replace(output_spec(definition(name, 1), inputs[0].spec), id="golden-output", upstream=upstream)
        output = Log.create(LocalStorage(made / "output"), result, clock)
        append(inputs, 0, SECOND_VERSION)
        work(definition(name, 1), inputs, output, made / "cache")
        append(inputs, SECOND_VERSION, HALF)
        work(definition(name, 2), inputs, output, made / "cache")
        for stream in (*INPUTS[name], "output"):
            shutil.copytree(made / stream, folder / stream)
        append(inputs, HALF, WHOLE)
        finish(inputs)
        work(definition(name, 2), inputs, output, made / "cache")
        (folder / "expected.json").write_text(json.dumps(content(output), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    for name in INPUTS:
        if (FOLDER / name).exists():
            print(f"{FOLDER / name} is frozen; streams that exist keep working")
        else:
            make(name, FOLDER / name)
