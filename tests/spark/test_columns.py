"""Every type that a column can have and every name, through both writers and all the ways of reading."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

import strandline as sl
from strandline.spark.session.session import register

pytestmark = pytest.mark.spark

NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
POINT = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.float64()))])
EVERYTHING = pa.schema(
    [
        ("id", pa.int64()),
        ("a_byte", pa.int8()),
        ("a_short", pa.int16()),
        ("an_int", pa.int32()),
        ("a_float", pa.float32()),
        ("a_double", pa.float64()),
        ("a_bool", pa.bool_()),
        ("a_string", pa.string()),
        ("a_binary", pa.binary()),
        ("a_date", pa.date32()),
        ("a_small_decimal", pa.decimal128(9, 2)),
        ("a_decimal", pa.decimal128(38, 10)),
        ("local", pa.timestamp("us")),
        ("a_struct", POINT),
        ("an_array", pa.list_(POINT)),
        ("a_map", pa.map_(pa.string(), pa.list_(pa.int64()))),
        ("a_deep_map", pa.struct([("m", pa.map_(pa.int32(), pa.map_(pa.string(), pa.timestamp("us", tz="UTC"))))])),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
FULL = {
    "id": 1,
    "a_byte": -128,
    "a_short": 32767,
    "an_int": -(2**31),
    "a_float": 0.1,
    "a_double": float("inf"),
    "a_bool": True,
    "a_string": "snow ❄ \0 line\n",
    "a_binary": b"\x00\xff",
    "a_date": dt.date(1582, 10, 4),
    "a_small_decimal": Decimal("-1234567.89"),
    "a_decimal": Decimal("1234567890123456789012345678.0123456789"),
    "local": dt.datetime(1, 1, 1, 0, 0, 0, 1),
    "a_struct": {"x": 1, "y": [0.5, None]},
    "an_array": [{"x": None, "y": []}, None],
    "a_map": [("a", [1, None]), ("b", None)],
    "a_deep_map": {"m": [(1, [("now", NOON)])]},
    "at": dt.datetime(1900, 1, 1, 0, 0, 0, 7, tzinfo=dt.UTC),
}
ROWS = [
    FULL,
    {**dict.fromkeys(EVERYTHING.names), "id": 2, "at": NOON},
    {**FULL, "id": 3, "a_string": "", "an_array": [], "a_map": [], "at": NOON},
    # The same but for a microsecond in a map: the order must not depend on the one in which they came.
    {**FULL, "id": 4, "a_deep_map": {"m": [(1, [("now", NOON)])]}, "at": NOON},
    {**FULL, "id": 4, "a_deep_map": {"m": [(1, [("now", NOON + dt.timedelta(microseconds=1))])]}, "at": NOON},
]


def by_id(rows):
    return sorted(tuple(map(repr, row.asDict(recursive=True).items())) for row in rows)


@pytest.fixture(params=["native", "arrow"])
def everything(request, feed, drain, tmp_path):
    path = tmp_path / request.param
    drain(feed(ROWS[::-1], schema=EVERYTHING).df, path, key="id", partitions=1, blocks=request.param)
    return path


def test_every_type_comes_back_as_it_was(everything, content):
    expected = pa.Table.from_pylist(ROWS, schema=EVERYTHING).to_pylist()
    assert content(everything)[0] == expected


def test_spark_reads_the_same_by_itself_and_through_python(everything, spark, replayed):
    stream = sl.stream(str(everything))
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY")  # must not move dates before 1582
    natively = stream.read(spark)
    assert natively.schema == stream.schema
    through_python = spark.read.format("strandline").load(str(everything))
    assert through_python.schema == stream.schema
    rows = by_id(natively.collect())
    spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInRead")
    assert len(rows) == len(ROWS)
    assert by_id(through_python.collect()) == rows
    assert by_id(row for batch in replayed(stream.read_stream(spark)) for row in batch) == rows


ODD_NAMES = [
    "a.b",
    "with space",
    "back`tick",
    "ünï ❄",
    "semi;colon,comma",
    "quo\"te's",
    "a=b",
    "{x}[y](z)",
    "per%20cent",
    "_metadata",
    ".dot",
    "select",
]


@pytest.mark.parametrize("blocks", ["native", "arrow"])
def test_columns_may_have_any_name(blocks, spark, feed, drain, content, replayed, tmp_path):
    schema = pa.schema(
        [("the.key `x`", pa.int64()), *[(name, pa.int64()) for name in ODD_NAMES], ("at. `t`", pa.int64())]
    )
    rows = [{name: 100 * i + j for j, name in enumerate(schema.names)} for i in range(6)]
    path = tmp_path / "s"
    source = feed(rows[:3], rows[3:], schema=schema)
    drain(source.df, path, key="the.key `x`", time="at. `t`", lateness=10, blocks=blocks)
    found = [row for part in content(path).values() for row in part]
    assert sorted(found, key=lambda row: row["a=b"]) == rows

    stream = sl.stream(str(path))
    everything = sorted(tuple(row) for row in stream.read(spark).collect())
    assert everything == [tuple(row.values()) for row in rows]
    assert stream.read(spark, since=300, until=500).count() == 2
    assert stream.read(spark, since={0: 1}, positions=True).columns[-2:] == ["_partition", "_offset"]
    assert sorted(tuple(r) for batch in replayed(stream.read_stream(spark)) for r in batch) == everything


@pytest.mark.parametrize(
    "name", ["odd [x]{1} ü %20 #1,b?*", *(pytest.param(n, marks=pytest.mark.long) for n in ("10:30", "-", "day=1"))]
)
def test_a_path_may_have_any_name(name, spark, feed, drain, content, items, replayed, tmp_path):
    path = tmp_path / "a b" / name
    source = feed(items(5), items(5, first=5))
    drain(source.df, path)
    stream = sl.stream(str(path))
    assert sum(map(len, content(path).values())) == 10
    assert stream.read(spark).count() == 10
    assert stream.read(spark, since={0: 1, 1: 1}).count() == 8
    assert sum(map(len, replayed(stream.read_stream(spark)))) == 10
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name], "Spark wrote elsewhere"


@pytest.mark.parametrize("blocks", ["native", "arrow"])
def test_a_relative_path_stays_where_it_was_when_the_program_changes_its_folder(
    blocks, spark, feed, drain, items, replayed, tmp_path, monkeypatch
):
    source = feed(items(5))
    monkeypatch.chdir(tmp_path)  # tasks and the JVM stay in the folder where Spark was started
    drain(source.df, "relative", blocks=blocks)
    stream = sl.stream("relative")
    monkeypatch.chdir("/")
    assert stream.read(spark).count() == 5
    assert sum(map(len, replayed(stream.read_stream(spark)))) == 5
    assert sl.stream(str(tmp_path / "relative")).offsets() == stream.offsets()


SMALL = (pytest.param(kind, marks=pytest.mark.long) for kind in (pa.int16(), pa.int32()))


@pytest.mark.parametrize("kind", [pa.int8(), *SMALL, pa.int64(), pa.timestamp("us")], ids=str)
def test_the_time_may_be_an_integer_or_a_local_timestamp(kind, spark, feed, drain, tmp_path):
    schema = pa.schema([("k", pa.int64()), ("at", kind)])
    source = feed(*[[{"k": 1, "at": t} for t in times] for times in ([-5, 0, 9], [10, 1, -7], [3, 100])], schema=schema)
    if kind == pa.timestamp("us"):
        with pytest.raises(sl.OptionError, match="lateness=10 has no unit"):
            drain(source.df, tmp_path / "s", lateness=10)
    progress = drain(source.df, tmp_path / "s", lateness="10 us" if kind == pa.timestamp("us") else 10)
    assert progress["late_total"] == 1
    assert progress["boundary"] == 90
    stream = sl.stream(str(tmp_path / "s"))
    assert stream.read(spark, since=0, until=10).count() == 4
    assert stream.read(spark, late=True).count() == 1
    register(spark)
    assert spark.read.format("strandline").option("since", -5).option("until", 1).load(str(tmp_path / "s")).count() == 2
