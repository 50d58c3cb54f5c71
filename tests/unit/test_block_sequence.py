"""Tuples become blocks of bounded size, numbered without a gap, whatever sizes they come in."""

import io
from collections.abc import Sequence
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.log.stream.block import decode
from strandline.log.stream.block_sequence import BlockSequence, Part
from strandline.log.stream.kinds import Kind
from strandline.log.stream.spec import StreamSpec
from tests.support.items import item_spec

FIELDS = [{"name": "k", "type": "long"}, {"name": "text", "type": "string"}, {"name": "t", "type": "long"}]
SPEC = StreamSpec("s", {"type": "struct", "fields": FIELDS}, ("k",), "t", 1)


def part(first: int, rows: int, width: int = 1) -> Part:
    numbers = pa.array(range(first, first + rows), pa.int64())
    return Kind.RESULT, [numbers, pa.array(["x" * width] * rows, pa.string()), numbers]


def written(
    parts: Sequence[Part], spec: StreamSpec = SPEC, **limits: int
) -> tuple[dict[str, bytes], list[tuple[int, int]]]:
    files: dict[str, bytes] = {}
    blocks = list(BlockSequence(spec, 0, 7, "u", files.__setitem__, **limits).write(iter(parts)))
    assert [b.file for b in blocks] == list(files)
    assert [b.first for b in blocks] == [7, *(b.end for b in blocks)][: len(blocks)], "dense"
    assert all(b.size_bytes == len(files[b.file]) for b in blocks)
    return files, [(b.first, b.end) for b in blocks]


def test_small_parts_are_joined_into_one_block_and_one_row_group() -> None:
    files, offsets = written([part(100 * i, 100) for i in range(10)])
    assert offsets == [(7, 1007)]
    (data,) = files.values()
    assert pq.read_metadata(io.BytesIO(data)).num_row_groups == 1
    assert decode(data, SPEC, 7).column("k").to_pylist() == list(range(1000))


def test_wide_tuples_have_small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.log.stream.block.BYTES_PER_GROUP", 10_000)
    files, offsets = written([part(0, 100, width=1_000)])
    (data,) = files.values()
    footer = pq.read_metadata(io.BytesIO(data))
    assert offsets == [(7, 107)]
    assert max(footer.row_group(g).num_rows for g in range(footer.num_row_groups)) in (9, 10)


def test_nothing_makes_no_block() -> None:
    assert written([]) == ({}, [])
    assert written([part(0, 0), part(0, 0)]) == ({}, [])


def test_blocks_are_cut_by_tuples() -> None:
    assert written([part(0, 25), part(25, 1), part(26, 4)], rows_max=10)[1] == [(7, 17), (17, 27), (27, 37)]


def test_blocks_are_cut_by_bytes_and_a_larger_tuple_has_its_own() -> None:
    _, offsets = written([part(0, 4, width=10), part(4, 2, width=5_000), part(6, 4, width=10)], bytes_max=1_000)
    assert offsets == [(7, 11), (11, 12), (12, 13), (13, 17)]


@pytest.mark.parametrize("seed", range(20))
def test_every_tuple_is_in_one_block_in_order(seed: int) -> None:
    rng = Random(seed)
    parts, first = [], 0
    for _ in range(rng.randint(0, 8)):
        parts.append(part(first, rng.randint(0, 40), rng.choice([0, 1, 50])))
        first += len(parts[-1][1][0])
    rows_max, bytes_max = rng.choice([1, 7, 1000]), rng.choice([1, 300, 10**9])
    files, offsets = written(parts, rows_max=rows_max, bytes_max=bytes_max)
    found = [decode(data, SPEC, 7).column("k").to_pylist() for data in files.values()]
    assert [k for ks in found for k in ks] == list(range(first))
    assert all(end - begin <= rows_max for begin, end in offsets)


def test_a_block_is_written_as_soon_as_it_is_full() -> None:
    files: dict[str, bytes] = {}
    sequence = BlockSequence(SPEC, 0, 7, "u", files.__setitem__, rows_max=10)
    seen = []
    for i in range(5):
        written_now = sequence.add(*part(4 * i, 4))
        seen.append([(b.first, b.end) for b in written_now])
    assert seen == [[], [], [(7, 17)], [], []]
    assert len(files) == 1
    assert [(b.first, b.end) for b in sequence.finish()] == [(17, 27)]
    assert sequence.finish() == []


def test_kinds_stay_in_order_over_the_blocks_of_an_operator() -> None:
    fields = [["_input", "long"]]
    spec = item_spec(1)
    spec = StreamSpec("o", spec.schema, ("k",), "t", 1, operator={"window": {}, "aggregates": {}, "footprints": fields})
    numbers = pa.array(range(5), pa.int64())
    results, footprints = [numbers] * 3, [numbers] * 4
    files, offsets = written(
        [(Kind.RESULT, results), (Kind.G_OPEN, footprints), (Kind.G_CHECK, footprints)], spec, rows_max=4
    )
    assert offsets == [(7, 11), (11, 15), (15, 19), (19, 22)]
    kinds = [
        k
        for (first, _), data in zip(offsets, files.values(), strict=True)
        for k in decode(data, spec, first).column("_kind").to_pylist()
    ]
    assert kinds == [0] * 5 + [1] * 5 + [2] * 5
