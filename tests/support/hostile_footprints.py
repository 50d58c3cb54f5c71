"""Streams whose footprints were forged: other values in the blocks, and sizes and checksums to match in the commits.

A file says what those who wrote it wanted. `python -m tests.support.hostile_footprints NAME SEED COUNT` forges the
footprints of one operator so many times, each time lets `verify` look at the stream and the operator go on from it, and
exits with an error if anything but a StrandlineError comes of it. With NUMBA_BOUNDSCHECK=1 in its environment, an
access outside of an array is such an error.
"""

from __future__ import annotations

import io
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.checkpoint.policy import cec
from strandline.errors import StrandlineError
from strandline.log.stream import block as blocks_
from strandline.log.stream import commit_kinds
from strandline.log.stream.kinds import is_footprint
from strandline.log.stream.log import Log
from strandline.operators.keyed.keyed_operator import TuplePass
from strandline.operators.partition_wide.state_values import StateRow
from strandline.recovery.checkpoint_audit import audit
from strandline.recovery.window_report import saved_windows
from strandline.running.state.state_cache import StateCache
from strandline.testing import MemoryStorage
from tests.golden import make_classes, make_keyed, make_operators, make_several
from tests.support.operator_streams import PLANS, Streams, Tuples

Change = Callable[[pa.Table], pa.Table]
"""What becomes of the footprints of a block."""


@dataclass(frozen=True)
class Case:
    """An operator that has taken in half of its inputs."""

    inputs: Sequence[Log]
    output: MemoryStorage
    work: Callable[[Sequence[Log], Log, Path], None]
    """Takes in the rest, state files in the folder."""


@cache
def case_of(name: str) -> Case:
    """Returns the streams of this name: golden ones, and some of those that other tests make.

    They are the same for all callers: `copy_of` makes an output that may be written to.
    """
    kind, _, which = name.partition(" ")
    if kind == "operators":
        (input_,), output = _golden(make_operators.FOLDER / which, ["input"])
        make_operators.append(input_, 41, 60)
        make_operators.append(input_, 60, 90)
        plan = make_operators.plan(which)
        return Case([input_], output, lambda inputs, log, cache: make_operators.work(plan, inputs[0], log, cache))
    if kind == "several":
        inputs, output = _golden(make_several.FOLDER / which, ["left", "right"])
        make_several.append(inputs, make_several.HALF, make_several.WHOLE)
        make_several.finish(inputs)
        return Case(inputs, output, partial(make_several.work, make_several.definitions()[which]))
    if kind == "keyed":
        inputs, output = _golden(make_keyed.FOLDER / which, list(make_keyed.INPUTS[which]))
        make_keyed.append(inputs, make_keyed.HALF, make_keyed.WHOLE)
        make_keyed.finish(inputs)
        return Case(inputs, output, partial(make_keyed.work, make_keyed.definition(which, 2)))
    if kind == "classes":
        inputs, output = _golden(make_classes.FOLDER, ["left"])
        make_classes.append(inputs, make_classes.HALF, make_classes.WHOLE)
        make_classes.finish(inputs)
        return Case(inputs, output, make_classes.work)
    return _made(which)


NAMES = (
    *(f"operators {name}" for name in make_operators.WINDOWS),
    *(f"several {name}" for name in ("union", "join", "theta", "barrier")),
    *(f"keyed {name}" for name in make_keyed.INPUTS),
    "classes",
    *(f"made {name}" for name in ("tumbling count, strings", "session, sketches", "sliding time, sketches")),
)


def _golden(folder: Path, inputs: Sequence[str]) -> tuple[list[Log], MemoryStorage]:
    return [Log.open(_in_memory(folder / name)) for name in inputs], _in_memory(folder / "output")


def _in_memory(folder: Path) -> MemoryStorage:
    storage = MemoryStorage()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            storage.create(path.relative_to(folder).as_posix(), path.read_bytes())
    return storage


def _made(name: str) -> Case:
    folder = tempfile.TemporaryDirectory()
    lost = iter(range(1 << 30))

    def state_cache(_: int) -> StateCache:
        return StateCache(Path(folder.name) / str(next(lost)))

    streams, tuples = Streams(PLANS[name], state_cache), Tuples(Random(7))
    for _ in range(4):
        streams.append(tuples.rows(40))
        streams.drain(cec(extent=1_000, replay=30))
    assert isinstance(streams.output_storage, MemoryStorage)
    before = copy_of(streams.output_storage)
    for _ in range(2):
        streams.append(tuples.rows(40))

    def work(_: Sequence[Log], log: Log, __: Path) -> None:
        streams.output = log
        streams.drain(cec(extent=20, replay=30))

    return Case([streams.input], before, work)


def copy_of(storage: MemoryStorage) -> MemoryStorage:
    """Returns another store with the same files."""
    copy = MemoryStorage()
    for listed in storage.list(""):
        copy.create(listed.key, storage.read(listed.key))
    return copy


# ---------------------------------------------------------------------- forging


def forged(storage: Any, change: Change) -> None:
    """Changes the footprints of every published block, and what commits say of the blocks."""
    spec = Log.open(storage).spec
    for listed in sorted(storage.list("commits"), key=lambda one: str(one.key)):
        commit = commit_kinds.decode(storage.read(listed.key), listed.key)
        blocks = []
        for block in commit.blocks:
            if block.partition == spec.late:
                blocks.append(block)
                continue
            table = blocks_.decode(storage.read(block.file), spec, block.first)
            chosen = is_footprint(table)
            other = change(table.filter(chosen))
            whole = pa.concat_tables([table.filter(pc.invert(chosen)), other])
            data = _encoded(whole.take(pa.array(_order(table, chosen))), spec)
            storage.put(block.file, data)
            blocks.append(replace(block, size_bytes=len(data), checksum=blocks_.checksum(data)))
        changed: dict[str, Any] = {"blocks": tuple(blocks)} if blocks else {}
        storage.put(listed.key, commit_kinds.encode(replace(commit, **changed, before="")))


def _order(table: pa.Table, chosen: pa.ChunkedArray) -> Any:
    """Returns where each tuple of a block is among the others, then the footprints."""
    is_chosen = np.asarray(chosen)
    order = np.empty(len(is_chosen), np.int64)
    order[np.concatenate([np.flatnonzero(~is_chosen), np.flatnonzero(is_chosen)])] = np.arange(len(is_chosen))
    return order


def _encoded(table: pa.Table, spec: Any) -> bytes:
    sink = io.BytesIO()
    with blocks_.block_writer(sink, spec) as writer:
        writer.write_table(table.cast(spec.stored))
    return sink.getvalue()


def with_column(table: pa.Table, name: str, values: Sequence[Any]) -> pa.Table:
    """Returns the table with these values in a column."""
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(name), pa.array(values, table.schema.field(name).type))


def set_first(name: str, value: Any) -> Change:
    """Returns a change of a column in the first footprint of each block; a function makes a new value of the old."""

    def change(table: pa.Table) -> pa.Table:
        values = table.column(name).to_pylist()
        if values:
            values[0] = value(values[0]) if callable(value) else value
        return rechecked(with_column(table, name, values))

    return change


def rechecked(table: pa.Table) -> pa.Table:
    """Returns footprints of a class with checksums to match; others as they are."""
    if "_checksum" not in table.column_names:
        return table
    columns = (table.column(name).to_pylist() for name in ("_row", "_name", "_type", "_bytes"))
    rows = zip(*columns, strict=True)
    return with_column(
        table, "_checksum", [None if data is None else StateRow(n, k, data).checksum(i) for i, n, k, data in rows]
    )


# ---------------------------------------------------------------------- at random

_NUMBERS = (-2, -1, 0, 1, 2, 3, 7, 1 << 24, 1 << 31, 1 << 62, (1 << 63) - 1, -(1 << 63))


def any_change(rng: Random) -> Change:
    """Returns a change of some columns in some footprints, the same for all blocks."""

    def change(table: pa.Table) -> pa.Table:
        if not table.num_rows:
            return table
        for _ in range(rng.choice([1, 1, 2, 4])):
            name = rng.choice([c for c in table.column_names if c not in ("_kind",)])
            values, field = table.column(name).to_pylist(), table.schema.field(name)
            chosen = range(len(values)) if rng.random() < 0.2 else rng.sample(range(len(values)), 1)
            for row in chosen:
                values[row] = rng.choice(values) if rng.random() < 0.3 else _other(rng, values[row], field.type)
            table = with_column(table, name, values)
        return rechecked(table) if rng.random() < 0.9 else table

    return change


def _other(rng: Random, value: Any, kind: pa.DataType) -> Any:
    if rng.random() < 0.1:
        return None
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
        limit = 1 << (kind.bit_width - 1)
        near = [(value or 0) + rng.choice([-1, 1])] if isinstance(value, int | None) else []
        return rng.choice([n for n in (*_NUMBERS, *near) if -limit <= n < limit])
    if pa.types.is_floating(kind):
        return rng.choice([0.0, -0.0, float("nan"), float("inf"), -1e308, 5e-324])
    if pa.types.is_boolean(kind):
        return not value
    if pa.types.is_string(kind):
        words = ("", "key0", "{}", '"integer"', '{"arrow": "array"}', '{"numpy": "|O", "shape": [9], "order": "C"}')
        return rng.choice([*words, '{"numpy": "<f8", "shape": [99999999999], "order": "C"}', "x" * 5_000])
    if pa.types.is_binary(kind):
        return _other_bytes(rng, value or b"")
    return value


def _other_bytes(rng: Random, value: bytes) -> bytes:
    """Bytes cut, lengthened, flipped; or words of a sketch replaced, which are longs."""
    what, data = rng.randrange(6), bytearray(value)
    if what == 0:
        return bytes(data[: rng.randrange(len(data) + 1)])
    if what == 1:
        return bytes(data) + rng.randbytes(rng.choice([1, 7, 8, 9, 16, 4_096]))
    if what == 2 and data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return bytes(data)
    if what == 3:
        return (1).to_bytes(8, "little") + rng.randbytes(rng.choice([0, 8, 4_088, 4_096, 4_104]))
    words = [rng.choice([*_NUMBERS, rng.getrandbits(63)]) for _ in range(rng.choice([1, 2, 3, 4, 5, 9, 4_000]))]
    head = rng.choice([0, 1, 2, 45, 53, 54, 63, 64, -1])
    if what == 4 and len(data) >= 16:
        at = 8 * rng.randrange(len(data) // 8)
        data[at : at + 8] = words[0].to_bytes(8, "little", signed=True)
        return bytes(data)
    return b"".join(word.to_bytes(8, "little", signed=True) for word in (head, *words))


def run(name: str, seed: int, count: int) -> int:
    """Forges so many times; returns how many of the streams were refused. Raises what is no StrandlineError."""
    case, refused = case_of(name), 0
    called = TuplePass._call

    def told(tuples: TuplePass, *arguments: Any) -> tuple[int, Exception | None]:
        """Lets errors of bounds through that would be taken for those of a user's function."""
        reason, problem = called(tuples, *arguments)
        if isinstance(problem, IndexError):
            raise OutOfBoundsError from problem
        return reason, problem

    TuplePass._call = told  # type: ignore[method-assign]
    for i in range(count):
        print(f"python -m tests.support.hostile_footprints '{name}' {seed + i} 1", flush=True)
        storage = copy_of(case.output)
        forged(storage, any_change(Random(seed + i)))
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            is_found = bool(audit(Log.open(storage)).problems)
            try:
                saved_windows(Log.open(storage))
                case.work(case.inputs, Log.open(storage), Path(folder))
            except StrandlineError:
                is_found = True
        refused += is_found
    return refused


class OutOfBoundsError(BaseException):
    """Raised if compiled code left its arrays: no handler for the errors of users' functions takes it."""


if __name__ == "__main__":
    print(f"refused: {run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))} of {sys.argv[3]}")
