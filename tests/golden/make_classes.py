"""Makes the golden stream of a user's class, whose state has a value of every type.

`python -m tests.golden.make_classes` was run by the version that first had such streams; what is there is never written
again. There are the input, what the class had made of half of it, and what it made of all.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from strandline.checkpoint.policy import instant
from strandline.clock import ManualClock
from strandline.inputs.stream_definition import output_spec
from strandline.log.operator_state.upstream import Origin, upstream_of
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.stream.spec import StreamSpec
from strandline.operators.one_table import GivenInput
from strandline.operators.partition_wide.definition import PartitionWideDefinition
from strandline.operators.partition_wide.user_operator import UserOperator
from strandline.running import step
from strandline.running.element import Element
from strandline.running.state.state_cache import StateCache
from strandline.running.step import Done, Logs, Step
from strandline.running.tick import run_batch
from tests.golden.make_keyed import CLOCK_US, COLUMNS, HALF, LATENESS, WHOLE, append, content, finish
from tests.support.operator_streams import struct

FOLDER = Path(__file__).parent / "classes"


class Every(UserOperator):
    """A number of each kind, all of which change with every tuple; one tuple now and then fails."""

    output = "k string, t long, n long, total double, last string"
    time = "t"

    def __init__(self, rate: float = 0.5, sizes: Sequence[int] = (2, 3)) -> None:
        self.rate = rate
        self.table = np.zeros(sizes, np.float32)
        self.columns = np.asfortranarray(np.zeros(sizes))
        self.small = np.float32(0.0)
        self.seen = pa.array([], pa.string())
        self.values = pa.chunked_array([], pa.int64())
        self.n, self.total, self.is_odd, self.last, self.raw = 0, 0.0, False, "", b""

    def process(self, tuples: pa.Table) -> pa.Table:
        found = [self._row(row) for row in tuples.to_pylist()]
        return pa.Table.from_pylist(found, schema=_SCHEMA)

    def _row(self, row: dict[str, Any]) -> dict[str, Any]:
        share = 7 / (row["v"] - 5)
        self.n += 1
        self.is_odd = not self.is_odd
        self.total += self.rate * share
        self.small = np.float32(self.small + np.float32(share))
        self.table[self.n % 2, self.n % 3] += self.small
        self.columns[self.n % 2, self.n % 3] -= share
        self.last = row["name"] or "né"
        self.raw = self.raw[-3:] + bytes([self.n % 256])
        self.seen = pa.array([*self.seen.to_pylist()[-2:], row["name"]], pa.string())
        self.values = pa.chunked_array([*self.values.chunks[-2:], pa.array([self.n])])
        total = self.total + float(self.table.sum() + self.columns.sum()) + sum(self.raw) + self.is_odd
        last = f"{self.last} {self.seen.to_pylist()} {self.values.to_pylist()}"
        return {"k": row["k"], "t": row["t"], "n": self.n, "total": total, "last": last}

    def get_checkpoint(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _NAMES}

    def restore_checkpoint(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)


_NAMES = ("table", "columns", "small", "seen", "values", "n", "total", "is_odd", "last", "raw")
_SCHEMA = pa.schema(
    [("k", pa.string()), ("t", pa.int64()), ("n", pa.int64()), ("total", pa.float64()), ("last", pa.string())]
)


def definition() -> PartitionWideDefinition:
    """The operator as a program says it."""
    return PartitionWideDefinition.over(Every(), GivenInput(COLUMNS, ("k",), "t", LATENESS))


def work(inputs: Sequence[Log], output: Log, cache: Path) -> None:
    """Takes in all that there is, the state saved by every third step or so."""
    clock = ManualClock(CLOCK_US, tick_us=400_000)
    element = Element(definition(), instant("1 s"), "set_aside", tuples_max=1)

    def run(steps: Sequence[Step]) -> list[Done]:
        return [step.run(s, element, Logs(output, tuple(inputs)), StateCache(cache), clock) for s in steps]

    number = 0
    while run_batch(element, inputs, output, run, Writer("golden-query", "golden-run", number), clock):
        number += 1


def make(folder: Path) -> None:
    """Makes the streams."""
    clock = ManualClock(CLOCK_US)
    with tempfile.TemporaryDirectory() as temporary:
        made = Path(temporary)
        spec = StreamSpec("golden-left", struct([*COLUMNS.items()]), ("k",), "t", 1, LATENESS)
        inputs = [Log.create(LocalStorage(made / "left"), spec, clock)]
        upstream = upstream_of([Origin("golden-left", "")])
        result = replace(output_spec(definition(), spec), id="golden-output", upstream=upstream)
        output = Log.create(LocalStorage(made / "output"), result, clock)
        append(inputs, 0, HALF)
        work(inputs, output, made / "cache")
        for stream in ("left", "output"):
            shutil.copytree(made / stream, folder / stream)
        append(inputs, HALF, WHOLE)
        finish(inputs)
        work(inputs, output, made / "cache")
        (folder / "expected.json").write_text(json.dumps(content(output), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    if FOLDER.exists():
        print(f"{FOLDER} is frozen; streams that exist keep working")
    else:
        make(FOLDER)
