"""Makes the golden streams: `python -m tests.golden.make` writes `tests/golden/v<version>` and `tests/golden/cut`.

What is there is never written again: those bytes are what streams out there look like. A new format gets a new version
number, a new folder, and a reader that still reads the old ones.
"""

import datetime as dt
import decimal
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from strandline.clock import ManualClock
from strandline.log.stream import block as blocks_
from strandline.log.stream.append_commit import Append
from strandline.log.stream.block import Block
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.stream.spec import FORMAT, StreamSpec
from strandline.log.upkeep import consumer_registry
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.retention import collect, truncate
from strandline.testing import MemoryStorage

VERSIONS = tuple(range(1, FORMAT + 1))
EXPECTED = Path(__file__).with_name("expected.json")
"""What they all hold."""
CUT = Path(__file__).with_name("cut")
CUT_EXPECTED = Path(__file__).with_name("expected_cut.json")

TYPES: dict[str, Any] = {
    "item_id": "long",
    "name": "string",
    "price": "decimal(10,2)",
    "in_stock": "boolean",
    "tags": {"type": "array", "elementType": "string", "containsNull": True},
    "item_time": "timestamp",
}


def spec_of(version: int) -> StreamSpec:
    """The stream in one format."""
    return replace(SPEC, format=version)


def folder_of(version: int) -> Path:
    """Where its bytes are checked in."""
    return Path(__file__).parent / f"v{version}"


SPEC = StreamSpec(
    id="0f9a4b1e-golden",
    schema={"type": "struct", "fields": [{"name": n, "type": kind} for n, kind in TYPES.items()]},
    key=("item_id",),
    time="item_time",
    partitions=2,
    lateness=10_000_000,
    created_by="strandline golden",
    created_us=1_767_225_600_000_000,
    upstream={"format": "rate"},
)
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)

Row = tuple[object, ...]


def row(number: int, second: int) -> Row:
    """The values of one tuple; the nulls are there to be kept."""
    name = None if number % 5 == 4 else f"Größe {number}"
    tags = [None, [], ["a", None, "b"]][number % 3]
    return number, name, decimal.Decimal(number) / 4, number % 2 == 0, tags, NOON + dt.timedelta(seconds=second)


def make(version: int = FORMAT) -> Log:
    """A stream with every kind of commit in it, an index, late tuples and a consumer."""
    clock = ManualClock(1_767_268_800_000_000)
    log = Log.create(MemoryStorage(clock), spec_of(version), clock)
    append(log, 0, {0: [row(0, 0), row(1, 1)], 1: [row(2, 2)]})
    append(log, 1, {0: [row(3, 10)]})
    append(log, 2, {0: [row(4, 12), row(5, 13)], 1: [row(6, 20)]})
    append(log, 3, {2: [row(7, 5), row(8, 3)]})  # ten seconds later than 20: these are late
    consumer_registry.register(log, "billing", [1, 0])
    clock.advance(1)
    compact(log, blocks_min=3, unique=lambda: "compacted")
    log.fold()
    clock.advance(7_200)
    collect(log, grace_us=3_600_000_000)  # announces the three blocks that were compacted
    append(log, 4, {0: [row(9, 30)], 1: [row(10, 31)]})
    append(log, 5, {})
    consumer_registry.register(log, "billing", [6, 1])
    truncate(log, before_offset={1: 1})
    clock.advance(7_200)
    collect(log, grace_us=3_600_000_000)  # deletes those three, and announces what was truncated
    return log


def make_cut() -> Log:
    """A stream whose batches are cut into several blocks a partition, which have commits of format 2."""
    clock = ManualClock(1_767_268_800_000_000)
    log = Log.create(MemoryStorage(clock), SPEC, clock)
    append(log, 0, {0: [row(0, 0)], 1: [row(1, 0)]})
    append(log, 1, {0: [row(i, 10 * i) for i in range(2, 7)], 1: [row(7, 50)]}, rows_max=2)
    log.fold()
    append(log, 2, {1: [row(i, 60) for i in range(8, 11)], 2: [row(i, 5) for i in range(11, 14)]}, rows_max=1)
    truncate(log, before_offset={1: 1})
    compact(log, blocks_min=3, unique=lambda: "compacted")
    append(log, 3, {0: [row(14, 70), row(15, 71)]}, rows_max=1)
    return log


def append(log: Log, batch: int, rows: dict[int, Sequence[Row]], rows_max: int = 1_000) -> None:
    assert isinstance(log.clock, ManualClock)
    log.clock.advance(1)
    blocks = [
        write(log, p, log.state.ends[p] + at, tuples[at : at + rows_max], f"batch-{batch}")
        for p, tuples in rows.items()
        for at in range(0, len(tuples), rows_max)
    ]
    log.append(Append(blocks, writer=Writer("golden-query", "golden-run", batch), source={"offset": 10 * batch}))


def write(log: Log, partition: int, first: int, rows: Sequence[Row], name: str) -> Block:
    spec = log.spec
    columns = [pa.array(values, f.type) for values, f in zip(zip(*rows, strict=True), spec.arrow, strict=True)]
    data = blocks_.encode_parts([(Kind.RESULT, columns)], spec, first)
    file = spec.file(partition, first, name)
    block = blocks_.describe(data, spec, partition, first, file)
    log.storage.create(file, data)
    return block


def content(log: Log) -> dict[str, list[dict[str, Any]]]:
    """Every tuple of every partition as plain JSON values."""
    return {str(p): list(plain_rows(log.read(p))) for p in range(SPEC.partitions + 1)}


def plain_rows(tables: Iterator[pa.Table]) -> Iterator[dict[str, Any]]:
    for table in tables:
        for values in table.to_pylist():
            yield {**values, "price": str(values["price"]), "item_time": values["item_time"].isoformat()}


def freeze(made: Log, folder: Path, expected: Path) -> None:
    """Writes the files of a stream to a folder that does not exist yet, and beside it what it holds."""
    if folder.exists():
        print(f"{folder} is frozen; a change of the format needs a new version")
        return
    for listed in made.storage.list(""):
        (folder / listed.key).parent.mkdir(parents=True, exist_ok=True)
        (folder / listed.key).write_bytes(made.storage.read(listed.key))
    expected.write_text(json.dumps(content(made), indent=1, ensure_ascii=False) + "\n")
    print(f"made {folder}: {made.state.seq + 1} commits")


if __name__ == "__main__":
    freeze(make(), folder_of(FORMAT), EXPECTED)
    freeze(make_cut(), CUT, CUT_EXPECTED)
