"""Makes the golden streams of operators: an input, what an operator had made of half of it, and what it made of all.

`python -m tests.golden.make_operators` was run by the version that had the rules and the state that these streams have;
what is there is never written again. The streams are `sessions` (tuples exactly a gap apart are two sessions) and
`decimals` (sums of decimals in one word); then `sketches` (their bytes, exact and not, and aggregates with conditions).
"""

from __future__ import annotations

import json
import shutil
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from strandline.checkpoint.policy import Policy, cec
from strandline.clock import ManualClock
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.stream.spec import StreamSpec
from strandline.operators.aggregate import aggregates as agg
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.aggregate.windows import Window, count_window
from strandline.running import step
from strandline.running.element import Element
from strandline.running.state.state_cache import StateCache
from strandline.running.step import Logs
from strandline.running.tick import run_batch
from tests.support.operator_streams import append_rows, published_results, struct

FOLDER = Path(__file__).parent / "operators"
COLUMNS = {"k": "long", "t": "long", "v": "long", "price": "decimal(10,2)"}
GAP, LATENESS = 10, 4
WINDOWS = {
    "sessions": Window("session", GAP, GAP),
    "decimals": count_window(5, advance=2),
    "sketches": count_window(12, advance=5),
}
AGGREGATES = {
    "sessions": {"n": agg.count_all(), "total": agg.sum("v"), "last": agg.last("v")},
    "decimals": {"total": agg.sum("price"), "mean": agg.avg("price"), "least": agg.min("price")},
    "sketches": {
        "distinct": agg.count_distinct("v"),
        "many": agg.count_distinct("price", exact_up_to=5),
        "median": agg.percentile("price", 0.5),
        "high": agg.percentile("v", 0.9, exact_up_to=5),
        "last": agg.last("v", where=pc.field("v") > 8),
    },
}

Row = dict[str, Any]


def plan(name: str) -> AggregateDefinition:
    """The operator as a program says it."""
    return AggregateDefinition.of(WINDOWS[name], AGGREGATES[name], COLUMNS, ["k"], "t")


def rows(first: int, end: int) -> list[Row]:
    """Tuples of three keys; those of a key are mostly a gap apart, or a little less or more."""
    found = []
    for i in range(first, end):
        key, turn = i % 3, i // 3
        time = turn * GAP + (0, 0, turn % 3)[key] - (turn % 4 == 3)
        found.append({"k": key, "t": time, "v": i * i % 17, "price": Decimal(i * 7919 % 100_000) / 100})
    return found


def append(log: Log, first: int, end: int) -> None:
    """One commit of the input."""
    append_rows(log, {0: rows(first, end)})


def work(p: AggregateDefinition, input_: Log, output: Log, cache: Path, policy: Policy | None = None) -> None:
    """Takes in all that the input has. Every step begins with a recovery."""
    clock, element = ManualClock(1_767_268_800_000_000), Element(p, policy or cec(extent=6), tuples_max=1)

    def run(steps: list[step.Step]) -> list[step.Done]:
        return [step.run(s, element, Logs(output, (input_,)), StateCache(cache / s.attempt), clock) for s in steps]

    number = 0
    while run_batch(element, (input_,), output, run, Writer("golden-query", "golden-run", number), clock):  # type: ignore[arg-type]
        number += 1


def results(output: Log) -> list[Row]:
    """As plain JSON values."""
    return [{c: str(v) if isinstance(v, Decimal) else v for c, v in row.items()} for row in _rows(output)]


def _rows(output: Log) -> list[Row]:
    found: list[Row] = published_results(output, 0).to_pylist()
    return found


def make(name: str, folder: Path) -> None:
    p = plan(name)
    clock = ManualClock(1_767_268_800_000_000)
    with tempfile.TemporaryDirectory() as temporary:
        made = Path(temporary)
        spec = StreamSpec("golden-input", struct([*COLUMNS.items()]), ("k",), "t", 1, LATENESS)
        input_ = Log.create(LocalStorage(made / "input"), spec, clock)
        operator = {**p.to_json(), "footprints": [list(c) for c in p.control_columns]}
        upstream = {"stream": "golden-input", "path": ""}
        spec = StreamSpec(
            "golden-output", struct(p.result_columns), ("k",), "window_end", 1, 0, operator=operator, upstream=upstream
        )
        output = Log.create(LocalStorage(made / "output"), spec, clock)
        append(input_, 0, 20)
        append(input_, 20, 41)
        work(p, input_, output, made / "cache")
        for stream in ("input", "output"):
            shutil.copytree(made / stream, folder / stream)
        append(input_, 41, 60)
        append(input_, 60, 90)
        work(p, input_, output, made / "cache")
        (folder / "expected.json").write_text(json.dumps(results(output), indent=1) + "\n")
        print(f"made {folder}: {len(results(output))} results")


if __name__ == "__main__":
    for name in WINDOWS:
        if (FOLDER / name).exists():
            print(f"{FOLDER / name} is frozen; streams that exist keep working")
        else:
            make(name, FOLDER / name)
