"""What may enter a partition: told from footers and rows, before Spark has to say it of each tuple."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.log.stream.block import Block
from strandline.log.stream.spec import StreamSpec
from strandline.operators.kernels.key_codec import KeyCodec
from strandline.operators.open_windows.record import LENGTH_MAX
from strandline.spark.entry.set_aside import EntryLimits, Expected

NOW = 1_790_000_000_000_000
HOUR = 3_600_000_000


def spec_of(time: str, **keys: str) -> StreamSpec:
    types = {**(keys or {"k": "long"}), "t": time}
    fields = [{"name": name, "type": kind} for name, kind in types.items()]
    return StreamSpec("s", {"type": "struct", "fields": fields}, tuple(keys or ["k"]), "t", 2)


def limits(
    spec: StreamSpec, boundaries: tuple[int | None, ...] = (None, None), max_ahead: int | None = HOUR
) -> EntryLimits:
    return replace(EntryLimits.of(spec, max_ahead), boundaries=boundaries, now_us=NOW)


def test_the_boundary_and_the_clock_part_what_is_late_and_what_is_ahead() -> None:
    found = limits(spec_of("timestamp"), (NOW - 5, None)).by_time
    assert found(0, NOW - 5, NOW + HOUR) == set()
    assert found(0, NOW - 6, NOW + HOUR) == {"late"}
    assert found(0, NOW, NOW + HOUR + 1) == {"ahead"}
    assert found(0, 0, NOW + HOUR + 1) == {"late", "ahead"}
    assert found(1, 0, NOW) == set(), "each partition has its own boundary"


def test_a_time_without_a_zone_is_ahead_if_it_is_so_everywhere() -> None:
    found = limits(spec_of("timestamp_ntz")).by_time
    assert found(0, NOW, NOW + 15 * HOUR) == set()
    assert found(0, NOW, NOW + 15 * HOUR + 1) == {"ahead"}


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_whatever_may_be_ahead_has_64_bits(kind: str) -> None:
    assert limits(spec_of(kind), max_ahead=(1 << 63) - 1).latest == (1 << 63) - 1


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [("long", -(1 << 62), 1 << 62), ("timestamp", -62_135_596_800 * 10**6, 253_402_300_800 * 10**6 - 1)],
)
def test_times_are_kept_from_the_edges(kind: str, low: int, high: int) -> None:
    found = limits(spec_of(kind), max_ahead=None).by_time
    assert found(0, low, high) == set()
    assert found(0, low - 1, high) == {"time"}
    assert found(0, low, high + 1) == {"time"}


@pytest.mark.parametrize("types", [("string",), ("binary",), ("string", "long", "binary"), ("string", "decimal(30,2)")])
def test_the_longest_key_that_is_let_in_is_one_that_operators_hold(types: tuple[str, ...]) -> None:
    spec = spec_of("long", **{f"k{i}": kind for i, kind in enumerate(types)})
    most = limits(spec, max_ahead=None).key_bytes_max
    assert LENGTH_MAX - 40 <= most <= LENGTH_MAX
    for length, is_held in ((most, True), (LENGTH_MAX, False)):
        key = "x" * length
        values = {"string": key, "binary": b"", "long": 1 << 60, "decimal(30,2)": 10**25}
        columns = [pa.array([values[kind]], spec.arrow.field(f"k{i}").type) for i, kind in enumerate(types)]
        if types[0] == "binary":
            columns = [pa.array([key.encode()], pa.binary())]
        rows = pa.RecordBatch.from_arrays([*columns, pa.array([5], pa.int64())], schema=spec.arrow)
        assert limits(spec, max_ahead=None).in_rows(rows, spec, 0) == (set() if is_held else {"key"})
        if is_held:
            KeyCodec(types).encode(columns, 0)


def test_a_file_is_read_only_where_a_long_key_has_room(tmp_path: Path) -> None:
    spec = spec_of("timestamp", k="string")
    bound = limits(spec)
    path = tmp_path / "a.parquet"

    def found(keys: list[str | None], times: list[int | None], compression: str = "lz4") -> set[str]:
        table = pa.table(
            [pa.array(keys, pa.string()), pa.array(times, pa.int64()).cast(spec.arrow.field("t").type)],
            schema=spec.arrow,
        )
        pq.write_table(table, path, compression=compression, use_dictionary=False, row_group_size=2)
        return bound.in_file(path, pq.read_metadata(path), spec, 0)

    assert found(["a", None, "b"], [NOW, NOW, NOW]) == set()
    assert found(["a", None, "b"], [NOW, NOW, NOW + 2 * HOUR]) == {"ahead"}
    assert found(["a", "b", None], [None, None, None]) == set(), "without a time: somebody else's error"
    half, long = "x" * (LENGTH_MAX // 2 + 1), "x" * LENGTH_MAX
    assert found(["a", "b", half, half], [NOW] * 4) == set(), "room for a long one, and none there"
    assert found(["a", "b", "c", long], [NOW] * 4) == {"key"}
    path_gone = tmp_path / "gone.parquet"
    table = pa.table([["a"], pa.array([NOW]).cast(spec.arrow.field("t").type)], schema=spec.arrow)
    pq.write_table(table, path)
    assert bound.in_file(path_gone, pq.read_metadata(path), spec, 0) == set(), "the footer is enough"


def test_what_was_met_lately_is_expected_for_a_while() -> None:
    expected = Expected()
    assert expected.reasons == ()
    assert expected.learn({"key", "late"})
    assert expected.reasons == ("late", "key")
    assert not expected.learn({"late"})
    for _ in range(63):
        expected.next_batch()
    assert expected.reasons == ("late", "key")
    expected.next_batch()
    assert expected.reasons == ()


def test_what_is_met_again_and_again_stays_expected() -> None:
    expected = Expected()
    assert expected.learn({"late", "ahead"})
    written = Block(2, "late/0-u.parquet", 0, 1, {"result": 1}, 0, 0, 1, "")
    for _ in range(200):
        expected.next_batch()
        assert "late" in expected.reasons, "the batch would be written twice"
        expected.met([written])
    assert expected.reasons == ("late",)
