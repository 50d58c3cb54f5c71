"""Tuples with which nothing could go on are set aside, with their reason, and take nothing with them."""

import datetime as dt
import warnings

import pyarrow as pa
import pytest

import strandline as sl
from strandline.clock import SystemClock
from strandline.log.storage.storage_url import open_storage
from strandline.log.stream.log import Log
from strandline.log.stream.spec import StreamSpec
from strandline.spark.entry import set_aside
from strandline.spark.entry.batch_layout import time_literal

pytestmark = pytest.mark.spark

WRITERS = ["native", "arrow"]
FAR = 7_258_118_400_000_000  # the year 2200
END = (1 << 63) - 1


def aside(path, spark):
    """What is in the side log, with its reason, in order."""
    rows = sl.stream(str(path)).read(spark, late=True, positions=True).orderBy("_offset").collect()
    assert [row["_offset"] for row in rows] == list(range(len(rows)))
    return [(row["v"], row["_reason"]) for row in rows]


@pytest.mark.parametrize("blocks", WRITERS)
def test_a_tuple_from_the_future_takes_nothing_with_it(blocks, spark, feed, drain, content, items, tmp_path):
    far = {"k": 1, "v": "far", "at": FAR}
    source = feed(items(10), [*items(10, first=10), far], items(10, first=20))
    with pytest.warns(sl.StrandlineWarning, match=r"1 tuple was set aside.*2200-01-01.*clock of this machine says 20"):
        progress = drain(source.df, tmp_path / "s", lateness="15 s", retention="20 s", blocks=blocks)
    assert (progress["tuples"], progress["late"], progress["late_total"]) == (10, 0, 1)
    assert progress["boundary"] == 14_000_000
    log = Log.open(open_storage(str(tmp_path / "s")))
    assert log.state.time_max == 29_000_000
    found = [row["v"] for rows in content(tmp_path / "s").values() for row in rows]
    assert set(found) >= {f"v{i}" for i in range(10, 30)}, "retention keeps what is not old"
    assert aside(tmp_path / "s", spark) == [("far", "ahead")]


def test_what_is_set_aside_is_counted(spark, feed, drain, items, tmp_path):
    far = {"k": 1, "v": "far", "at": FAR}
    with pytest.warns(sl.StrandlineWarning):
        progress = drain(feed([*items(3, first=100), far, far]).df, tmp_path / "s", lateness="15 s")
    assert (progress["tuples"], progress["late"], progress["set_aside"]) == (3, 0, {"ahead": 2})
    described = sl.stream(str(tmp_path / "s")).describe()
    assert (described.tuples, described.late.tuples, dict(described.set_aside)) == (3, 2, {"ahead": 2})


@pytest.mark.parametrize("max_ahead", [None, "80000 days", dt.timedelta(days=80_000)])
def test_how_far_ahead_is_said_by_the_program(max_ahead, feed, drain, items, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", sl.StrandlineWarning)
        progress = drain(feed([*items(3), {"k": 1, "v": "far", "at": FAR}]).df, tmp_path / "s", max_ahead=max_ahead)
    assert (progress["tuples"], progress["late_total"]) == (4, 0)


def test_a_clock_knows_nothing_of_numbers(spark, feed, drain, tmp_path):
    schema = pa.schema([("k", pa.int64()), ("v", pa.string()), ("at", pa.int64())])
    source = feed([{"k": 1, "v": "v", "at": 1 << 61}], schema=schema)
    with pytest.raises(sl.OptionError, match="max_ahead='1 day' needs a time column of type timestamp"):
        drain(source.df, tmp_path / "s", max_ahead="1 day")
    assert drain(source.df, tmp_path / "s", max_ahead=None)["tuples"] == 1


def test_a_clock_that_is_years_behind_loses_nothing_and_is_loud(spark, feed, drain, items, tmp_path, monkeypatch):
    monkeypatch.setattr(SystemClock, "now_us", lambda _self: 3_600_000_000)  # 1970
    now = [{"k": i, "v": f"now{i}", "at": 1_790_000_000_000_000 + i} for i in range(50)]
    with pytest.warns(sl.StrandlineWarning, match=r"50 tuples .*2026-09-21.*this machine says 1970-01-01 01:00:00"):
        progress = drain(feed(now).df, tmp_path / "s", lateness="1 s")
    assert (progress["tuples"], progress["set_aside"]) == (0, {"ahead": 50})
    assert sorted(aside(tmp_path / "s", spark)) == sorted((f"now{i}", "ahead") for i in range(50))


def raw(rows, schema):
    """A table with times that Python cannot hold, given as numbers."""
    numbers = pa.Table.from_pylist(rows, schema=schema.set(2, pa.field("at", pa.int64())))
    return numbers.set_column(2, schema.field("at"), numbers.column("at").cast(schema.field("at").type))


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "long"])
@pytest.mark.parametrize("blocks", WRITERS)
def test_times_with_which_nothing_can_be_computed_are_set_aside(kind, blocks, spark, feed, drain, tmp_path):
    types = {"timestamp": pa.timestamp("us", tz="UTC"), "timestamp_ntz": pa.timestamp("us"), "long": pa.int64()}
    schema = pa.schema([("k", pa.int64()), ("v", pa.string()), ("at", types[kind])])
    low, high = (-(1 << 62), 1 << 62) if kind == "long" else (-62_135_596_800_000_000, 253_402_300_799_999_999)
    edges = {"last": END, "first": -END - 1, "too large": high + 1, "too small": low - 1}
    fine = {"large": high, "small": low}
    source = feed(schema=schema)
    for times in (fine, edges | fine, edges):
        source.add_table(raw([{"k": i, "v": v, "at": t} for i, (v, t) in enumerate(times.items())], schema))
    with pytest.warns(sl.StrandlineWarning, match="beyond what one can compute with"):
        progress = drain(source.df, tmp_path / "s", max_ahead=None, blocks=blocks)
    assert progress["set_aside"] == {"time": 4}
    # Through Python, too, which knows the reason by another way.
    late = spark.read.format("strandline").option("late", True).option("positions", True).load(str(tmp_path / "s"))
    found = [(row["v"], row["_reason"]) for row in late.select("v", "_reason").collect()]
    assert sorted(found) == sorted((v, "time") for v in [*edges, *edges])
    kept = sl.stream(str(tmp_path / "s")).read(spark).select("v").collect()
    assert sorted(row["v"] for row in kept) == ["large", "large", "small", "small"]


@pytest.mark.parametrize("blocks", WRITERS)
def test_a_key_that_no_operator_can_hold_is_set_aside(blocks, spark, feed, drain, content, tmp_path):
    schema = pa.schema([("k", pa.string()), ("v", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])
    longest = (1 << 24) - 1 - 5
    rows = [
        {"k": "x" * (longest + 1), "v": "too long", "at": 1},
        {"k": "x" * longest, "v": "longest", "at": 2},
        {"k": "a", "v": "y" * (longest + 9), "at": 3},
        {"k": None, "v": "null", "at": 4},
    ]
    with pytest.warns(sl.StrandlineWarning, match="keys are longer than operators can hold"):
        progress = drain(feed(rows[1:], rows, schema=schema).df, tmp_path / "s", partitions=2, blocks=blocks)
    assert (progress["tuples"], progress["set_aside"]) == (3, {"key": 1})
    assert aside(tmp_path / "s", spark) == [("too long", "key")]
    assert sum(len(rows) for rows in content(tmp_path / "s").values()) == 6


def test_both_writers_set_the_same_aside(spark, feed, drain, content, items, tmp_path, monkeypatch):
    # A limit that ordinary keys reach, so that one batch has every reason.
    monkeypatch.setattr(set_aside, "LENGTH_MAX", 15)
    schema = pa.schema([("k", pa.string()), ("v", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])

    def row(name, second, key="k"):
        return {"k": key, "v": name, "at": second * 1_000_000 if abs(second) < 10**9 else second}

    batches = [
        [row(f"a{i}", 100 + i, f"k{i}") for i in range(20)],
        [row("late", 5), row("far", FAR), row("edge", END), row("key", 110, "a key that is long"), row("on time", 120)],
        [row("late too", 90), row("late, and its key", 90, "a key that is long")],
        [row(f"b{i}", 130 + i, f"k{i}") for i in range(20)],
    ]
    found = {}
    for blocks in WRITERS:
        source = feed(schema=schema, name=f"feed-{blocks}")
        for rows in batches:
            source.add_table(raw(rows, schema))
        with pytest.warns(sl.StrandlineWarning):
            drain(source.df, tmp_path / blocks, lateness="1 s", blocks=blocks)
        late = spark.read.format("strandline").option("late", True).option("positions", True)
        rows = late.load(str(tmp_path / blocks)).select("v", "_offset", "_reason").orderBy("_offset").collect()
        found[blocks] = [(r["v"], r["_reason"]) for r in rows]
        log = Log.open(open_storage(str(tmp_path / blocks)))
        assert [(b.tuples, b.reason) for b in log.blocks(log.spec.late)][:4] == [
            (1, "late"),
            (1, "ahead"),
            (1, "time"),
            (1, "key"),
        ]
    assert found["native"] == found["arrow"]
    assert found["native"] == [
        ("late", "late"),
        ("far", "ahead"),
        ("edge", "time"),
        ("key", "key"),
        ("late too", "late"),
        ("late, and its key", "key"),
    ]
    assert content(tmp_path / "native") == content(tmp_path / "arrow")


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "long"])
def test_any_time_is_a_literal(kind, spark, tmp_path):
    fields = [{"name": "k", "type": "long"}, {"name": "at", "type": kind}]
    spec = StreamSpec("s", {"type": "struct", "fields": fields}, ("k",), "at", 1)
    times = [0, 1, -1, END, -END - 1, 253_402_300_800_000_000, -62_135_596_800_000_001, 1_790_000_000_123_456]
    micros = {"timestamp": "unix_micros(t)", "timestamp_ntz": "unix_micros(CAST(t AS timestamp))", "long": "t"}[kind]
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        for time in times:
            row = (
                spark.range(1)
                .select(time_literal(spec, time).alias("t"))
                .selectExpr(f"{micros} AS t", "typeof(t) AS u")
            )
            assert row.first()["t"] == time, time
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
