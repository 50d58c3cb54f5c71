"""Footprints that no operator can have saved are refused where they are loaded, before compiled code sees them."""

from __future__ import annotations

import json
import shutil
import struct
import warnings
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.errors import CorruptBlockError, StrandlineWarning
from strandline.inputs.stream_definition import definition_of
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.operators.aggregate import aggregates as agg
from strandline.operators.aggregate import sketches
from strandline.operators.aggregate.windows import count_window
from strandline.operators.open_windows.payloads import Payloads
from strandline.recovery import eventual_checkpoint
from strandline.recovery.checkpoint_audit import audit
from tests.golden import make_operators
from tests.specification import plain_sketches
from tests.support.hostile_footprints import Change, case_of, copy_of, forged, rechecked, set_first, with_column
from tests.support.operator_streams import plan


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def same_keys(table: pa.Table) -> pa.Table:
    """Every window of one key: more than a tuple can be in."""
    return with_column(table, "k", [1] * len(table))


def in_all(name: str, value: Any) -> Change:
    return lambda table: rechecked(with_column(table, name, [value] * len(table)))


def of_value(name: str, kind: str, data: bytes) -> Change:
    """The value of this name in the state of a class, with a checksum to match."""

    def change(table: pa.Table) -> pa.Table:
        names = table.column("_name").to_pylist()
        for column, value in (("_type", kind), ("_bytes", data)):
            old = table.column(column).to_pylist()
            table = with_column(table, column, [value if n == name else o for n, o in zip(names, old, strict=True)])
        return rechecked(table)

    return change


def arrow_with_wild_offsets() -> bytes:
    """An Arrow stream with a text that begins far outside of its bytes."""
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([pa.array(["some", "text"])], names=["value"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    offsets = struct.pack("<3i", 0, 4, 8)
    assert data.count(offsets) == 1
    return data.replace(offsets, struct.pack("<3i", 0, 1 << 30, 8))


def numpy(kind: str, *shape: int) -> str:
    return json.dumps({"numpy": kind, "shape": shape, "order": "C"})


FAR = 1 << 40
OF_WINDOWS = {"_input": (FAR, -1, None), "_rows": (0, -5, None), "_opened": (-1, FAR, None), "_offset": (7, None)}
ARROW = '{"arrow": "array"}'
HOSTILE: dict[str, tuple[str, Change]] = {
    **{f"sketches {c}={v}": ("operators sketches", in_all(c, v)) for c, vs in OF_WINDOWS.items() for v in vs},
    **{f"keyed {c}={v}": ("keyed one", in_all(c, v)) for c, vs in OF_WINDOWS.items() for v in vs},
    "a sketch of an odd length": ("operators sketches", set_first("_distinct_sketch", lambda old: old[:-3])),
    "a sketch without elements": ("operators sketches", in_all("_distinct_sketch", words(0))),
    "a sketch of no kind": ("operators sketches", in_all("_distinct_sketch", words(2, 1))),
    "a sketch that is null": ("operators sketches", in_all("_distinct_sketch", None)),
    "elements out of order": ("operators sketches", in_all("_distinct_sketch", words(0, 3, 1))),
    "an element twice": ("operators sketches", in_all("_distinct_sketch", words(0, 3, 3))),
    "more elements than tuples": ("operators sketches", in_all("_distinct_sketch", words(0, *range(12)))),
    "more elements than are exact": ("operators sketches", in_all("_many_sketch", words(0, *range(6)))),
    "too few registers": ("operators sketches", in_all("_many_sketch", words(1, 5))),
    "a register that is too large": ("operators sketches", in_all("_many_sketch", words(1, 54, *[0] * 511))),
    "keys without counts": ("operators sketches", in_all("_median_sketch", words(0, 1, 1, 2))),
    "a count of nothing": ("operators sketches", in_all("_median_sketch", words(0, 1, 0))),
    "a count of more than there is": ("operators sketches", in_all("_median_sketch", words(0, 1, 1 << 62))),
    "values cut by too few bits": ("operators sketches", in_all("_median_sketch", words(44, 1, 1))),
    "values cut by too many bits": ("operators sketches", in_all("_median_sketch", words(64, 1, 1))),
    "a bucket that cannot be": ("operators sketches", in_all("_median_sketch", words(45, 1 << 40, 1))),
    "a flag that is none": ("operators sketches", in_all("_last_flag", 3)),
    "a value that contradicts its flag": ("operators sketches", in_all("_last_value", None)),
    "too many windows of a key": ("operators sketches", same_keys),
    "more values than tuples": ("operators decimals", in_all("_total_n", 1 << 40)),
    "a sum of larger values": ("operators decimals", in_all("_total_sum", 1 << 62)),
    "a session that ends before it begins": ("operators sessions", in_all("window_end", -(1 << 40))),
    "a session without an end": ("operators sessions", in_all("window_end", None)),
    "a tuple of no side": ("several join", in_all("_side", 2)),
    "a tuple without a place": ("several join", in_all("_ordinal", None)),
    "a tuple that counts as dead": ("several join", set_first("_ordinal", -1)),
    "a tuple from the future": ("several join", set_first("_ordinal", 1 << 40)),
    "a tuple without a time": ("several theta", in_all("right_t", None)),
    "a tuple of no side, whatever the keys": ("several theta", set_first("_side", -1)),
    "a tuple of both inputs": ("several barrier", lambda t: in_all("_at_a", 1)(in_all("_at_b", 1)(t))),
    "a tuple of no input": ("several barrier", lambda t: in_all("_at_a", None)(in_all("_at_b", None)(t))),
    "a tuple that waits from the future on": ("several barrier", set_first("_input", 0)),
    "two states of a key": ("keyed one", in_all("k", "key1")),
    "an array of objects": ("classes", of_value("table", numpy("|O", 3), bytes(24))),
    "an array that is too large": ("classes", of_value("table", numpy("<f8", 1000000000000), b"")),
    "an array of another size": ("classes", of_value("table", numpy("<f8", 3), bytes(16))),
    "a truth value of two": ("classes", of_value("table", numpy("|b1", 1), b"\2")),
    "a number of no bytes": ("classes", of_value("small", '{"number": "<f4"}', b"")),
    "a text that is none": ("classes", of_value("last", '"string"', b"\xff")),
    "an Arrow array outside of its bytes": ("classes", of_value("seen", ARROW, arrow_with_wild_offsets())),
    "no Arrow stream": ("classes", of_value("seen", ARROW, b"nothing of the kind")),
    "a type that is none": ("classes", of_value("n", '"complex"', b"1")),
    "a type that is no JSON": ("classes", of_value("n", "{", b"1")),
}  # fmt: skip


@pytest.mark.parametrize(("name", "change"), HOSTILE.values(), ids=HOSTILE)
def test_what_no_operator_can_have_saved_is_refused_and_found_by_verify(name: str, change: Change) -> None:
    storage = copy_of(case_of(name).output)
    forged(storage, change)
    log = Log.open(storage)
    (standing,) = log.state.standings
    with pytest.raises(CorruptBlockError, match="a footprint holds what no operator can have saved") as refused:
        eventual_checkpoint.load(log, definition_of(log.spec, "here"), 0, standing, log.state.ends[0])
    assert refused.value.offsets is not None
    offset = refused.value.offsets[0]
    assert f".parquet, partition 0, offset {offset}" in refused.value.where
    (problem, *_) = audit(log).problems
    assert refused.value.what in problem.what


def test_a_good_stream_is_not_refused() -> None:
    for name in {name for name, _ in HOSTILE.values()}:
        storage = copy_of(case_of(name).output)
        forged(storage, lambda table: table)
        assert audit(Log.open(storage)).problems == ()


def test_the_command_finds_a_flipped_bit_in_a_sketch(tmp_path: Path) -> None:
    for stream in ("input", "output"):
        shutil.copytree(make_operators.FOLDER / "sketches" / stream, tmp_path / stream)
    forged(LocalStorage(tmp_path / "output"), set_first("_distinct_sketch", lambda old: bytes([2]) + old[1:]))
    result = CliRunner().invoke(app, ["verify", str(tmp_path / "output"), "--json"])
    assert result.exit_code == 1
    assert "the sketch of distinct is none" in json.loads(result.stdout)["problems"][0]["what"]


def test_a_recovery_from_an_unsound_footprint_begins_with_an_older_checkpoint(tmp_path: Path) -> None:
    case = replace(case_of("operators sketches"), output=copy_of(case_of("operators sketches").output))
    newest = Log.open(case.output).state.ends[0] - 1

    def change(table: pa.Table) -> pa.Table:
        old, offsets = (table.column(name).to_pylist() for name in ("_distinct_sketch", "_offset"))
        new = [b"odd" if at == newest else sketch for at, sketch in zip(offsets, old, strict=True)]
        return with_column(table, "_distinct_sketch", new)

    forged(case.output, change)
    log = Log.open(case.output)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StrandlineWarning)
        case.work(case.inputs, log, tmp_path)
    assert make_operators.results(log) == json.loads((make_operators.FOLDER / "sketches/expected.json").read_text())


def test_chunks_of_payloads_lie_inside_of_their_arena() -> None:
    schema = pa.schema([("v", pa.int64())])
    made = Payloads(schema)
    made.add(0, pa.table({"v": [1, 2, 3]}), 3)
    assert Payloads(schema, made.arena, made.table).rows == 3
    for word, value in ((1, 0), (1, -1), (2, -1), (2, 1 << 40), (3, 1 << 40)):
        table = made.table
        table[0, word] = value
        with pytest.raises(ValueError, match="out of bounds"):
            Payloads(schema, made.arena, table)


@pytest.mark.parametrize(
    "aggregate",
    [agg.count_distinct("v"), agg.count_distinct("s", exact_up_to=3), agg.percentile("x", 0.5, exact_up_to=4)],
    ids=repr,
)
def test_what_values_make_is_sound_and_no_list_with_a_change_in_it(aggregate: agg.Aggregate) -> None:
    (a,) = plan(count_window(2), ["k"], n=aggregate).accumulators
    rng = Random(11)
    for _ in range(200):
        many = rng.choice([0, 1, 2, 3, 5, 40, 3_000])
        values = plain_sketches.Values(
            plain_sketches.element(a, {"v": int, "s": str, "x": float}[str(a.column)](rng.randrange(100_000)))
            for _ in range(many)
        )
        sketch, rows = plain_sketches.encoded(a, values), np.array([many])
        assert sketches.first_unsound(a, pa.chunked_array([pa.array([sketch])]), rows) == -1
        if sketch:
            for wrong in (sketch[:-1], sketch[:-8], sketch + sketch[-8:], bytes([99]) + sketch[1:], sketch + sketch):
                found = sketches.first_unsound(
                    a, pa.chunked_array([pa.array([b"", sketch, wrong])]), np.repeat(rows, 3)
                )
                is_shorter = wrong == sketch[:-8] and a.column == "v" and sketch[0] == 0 and many > 1
                assert (found == 2) != is_shorter  # a list without its last element is a list
