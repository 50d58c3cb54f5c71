"""Operators as a user meets them: results that Spark agrees with, refusals in words, what can be seen of the state."""

import datetime as dt
import json
import math
import threading
import time
from decimal import Decimal
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import strandline as sl
from strandline.log.audit.stream_audit import verify
from strandline.log.storage.storage_url import open_storage
from strandline.log.stream.log import Log
from strandline.spark.operator import operator_job
from strandline.spark.operator.affinity import on_hosts
from strandline.spark.operator.kernel_shipping import KernelShipping
from strandline.spark.operator.operator_job import OperatorJob
from strandline.spark.query import query as query_
from strandline.spark.query.fused_run import FusedRun
from tests.support.machine import patience

pytestmark = pytest.mark.spark

TYPES = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "dec": pa.decimal128(10, 2),
    "flag": pa.bool_(),
    "day": pa.date32(),
    "moment": pa.timestamp("us", tz="UTC"),
    "text": pa.string(),
    "blob": pa.binary(),
}
WIDE = {"wide": pa.decimal128(30, 4), "widest": pa.decimal128(38, 10)}
READINGS = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), *TYPES.items(), *WIDE.items()])
NUMBERS = ("byte", "short", "int", "long", "float", "double", "dec")
SECOND = 1_000_000
LATENESS_S = 3


def reading(rng, second):
    """A row with awkward values. Sums of its doubles are exact, so that they do not depend on the order."""
    choices = {
        "byte": [-128, 127, 0, 5],
        "short": [-32768, 32767, 7],
        "int": [-(1 << 31), (1 << 31) - 1, 9],
        "long": [-(1 << 53), 1 << 53, 11, 0],
        "float": [-1.5, 0.25, 1e6, 3.0],
        "double": [-1.5, 0.25, 1e9, 3.0, 7.75],
        "dec": [Decimal("-99999999.99"), Decimal("0.01"), Decimal("5.00"), Decimal("12345.67")],
        "wide": [Decimal("-1234567890123456789012.3456"), Decimal("0.0001"), Decimal(1 << 64), Decimal("-7.5000")],
        "widest": [Decimal("98765432109876543210.0123456789"), Decimal("-0.0000000001"), Decimal("3.1400000000")],
        "flag": [True, False],
        "day": [dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(2000, 1, 1)],
        "moment": [dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC), dt.datetime(2024, 2, 29, 1, tzinfo=dt.UTC)],
        "text": ["", "a", "ab", "é", "\U0001f600", "\uffff", "z" * 30],
        "blob": [b"", b"\xff", b"\x00", b"a\x00", b"\x7f\x80"],
    }
    values = {name: None if rng.random() < 0.25 else rng.choice(some) for name, some in choices.items()}
    key = rng.randrange(6)
    if key == 4:  # a key that never has a value
        values = dict.fromkeys(values)
    return {"k": None if key == 5 else key, "at": dt.datetime.fromtimestamp(second, dt.UTC), **values}


@pytest.fixture(scope="module")
def readings(feed_in, drain, tmp_path_factory):
    """A stream of four commits whose last tuple closes every window before it."""
    folder = tmp_path_factory.mktemp("readings")
    rng = Random(3)
    seconds = [max(0, i // 4 + rng.randint(-2, 0)) for i in range(800)]
    batches = [[reading(rng, s) for s in seconds[i : i + 200]] for i in range(0, 800, 200)]
    batches[-1].append({"k": 0, "at": dt.datetime.fromtimestamp(10_000, dt.UTC)})
    drain(feed_in(folder / "feed", *batches, schema=READINGS).df, folder / "readings", lateness=f"{LATENESS_S} s")
    return str(folder / "readings")


@pytest.fixture(scope="module")
def run(spark):
    """Runs an aggregation to the end of its input, and returns the query's last progress."""

    def run_(aggregation, path, **options):
        query = aggregation.start(spark, str(path), trigger="available-now", **options)
        assert query.await_termination(patience(120)), "it did not end"
        return query.progress

    return run_


def results(path):
    """Per partition, in order."""
    stream = sl.stream(str(path))
    names = stream.schema.fieldNames()
    found = []
    for p in range(stream.partitions):
        found.append([{n: row[n] for n in names} for row in stream.log(p) if row["_kind"] == 0])
    return found


def plain(rows):
    """Rows as texts that are equal if the values are, whatever order the rows come in."""
    return sorted(json.dumps([_plain(value) for value in row]) for row in rows)


def _plain(value):
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value.hex()
    if isinstance(value, bytearray | bytes):
        return bytes(value).hex()
    return value if isinstance(value, int | bool | str | None) else str(value)


# ---------------------------------------------------------------------- results


def test_over_a_stream_and_fused_give_the_same_results(spark, feed, items, run, tmp_path):
    batches = [items(300, first=300 * i, keys=7) for i in range(3)]

    def average(input_):
        return input_.window(sl.count_window(10)).aggregate(n=sl.count_all(), first=sl.first("v"), last=sl.last("v"))

    source = sl.source(feed(*batches).df, str(tmp_path / "items"), key="k", time="at", lateness="10 s")
    fused = run(average(source), tmp_path / "fused")
    run(average(sl.stream(str(tmp_path / "items"))), tmp_path / "over")
    small = average(sl.stream(str(tmp_path / "items"))).checkpoint(sl.cec(extent="1x", replay=10))
    over = run(small, tmp_path / "small", max_tuples_per_batch=1)
    assert results(tmp_path / "fused") == results(tmp_path / "over") == results(tmp_path / "small")
    assert sum(map(len, results(tmp_path / "over"))) == sum(len(range(k, 900, 7)) // 10 for k in range(7))
    assert fused["input_commit"] == over["input_commit"]
    assert over["commit"] == 2, "a commit of the input a batch"
    assert 0 <= fused["commit"] <= 2, "one that follows may find two commits of the input at once"
    assert fused["tuples"] == 300, "progress has what entered"
    assert fused["open_windows"] == over["open_windows"], "and what the operator made of it"


@pytest.mark.parametrize(
    ("types", "numbers"),
    [
        pytest.param(TYPES, NUMBERS, id=""),
        pytest.param(WIDE, tuple(WIDE), id="decimals of up to 38 digits", marks=pytest.mark.long),
    ],
)
def test_every_aggregate_over_time_windows_is_what_spark_computes(spark, readings, run, types, numbers, tmp_path):
    from pyspark.sql import functions as F

    exact = {"count": (sl.count, F.count), "min": (sl.min, F.min), "max": (sl.max, F.max)}
    sums = {"sum": (sl.sum, F.sum), "avg": (sl.avg, F.avg)}
    moments = {"variance": (sl.variance, F.variance), "stddev": (sl.stddev, F.stddev)}
    order = F.col("_offset")
    ends = {
        "first": (sl.first, lambda c: F.min_by(c, order)),
        "last": (sl.last, lambda c: F.max_by(c, order)),
    }
    ours, theirs = {"rows": sl.count_all()}, [F.count("*").alias("rows")]
    for kinds, functions in ((types, {**exact, **ends}), (numbers, sums), (numbers, moments)):
        for kind in kinds:
            for name, (our, their) in functions.items():
                ours[f"{name}_{kind}"] = our(kind)
                theirs.append(their(kind).alias(f"{name}_{kind}"))
    stream = sl.stream(readings)
    run(stream.window(sl.time_window("10 s", advance="5 s")).aggregate(**ours), tmp_path / "out")
    window = F.window("at", "10 seconds", "5 seconds")
    grouped = stream.read(spark, positions=True).groupBy("k", window.alias("w")).agg(*theirs)
    expected = grouped.where("w.end < timestamp_seconds(10000)")
    names = list(ours)
    exactly = [n for n in names if not n.startswith(("variance", "stddev"))]
    result = sl.stream(str(tmp_path / "out")).read(spark)
    assert [f.dataType for f in result.select(*names).schema] == [f.dataType for f in expected.select(*names).schema]
    found = {(r["k"], r["window_start"], r["window_end"]): r.asDict() for r in result.collect()}
    right = {(r["k"], r["w"]["start"], r["w"]["end"]): r.asDict() for r in expected.collect()}
    assert found.keys() == right.keys()
    assert len(found) > 150
    for window_, b in right.items():
        a = found[window_]
        assert {n: _plain(a[n]) for n in exactly} == {n: _plain(b[n]) for n in exactly}, window_
        for n in set(names) - set(exactly):
            assert a[n] == b[n] or math.isclose(a[n], b[n], rel_tol=1e-9, abs_tol=1e-9), (window_, n)


@pytest.mark.long
def test_distinct_values_percentiles_and_conditions_are_those_of_spark(spark, readings, run, tmp_path):
    from pyspark.sql import functions as F

    ours = {
        "texts": sl.count_distinct("text"),
        "doubles": sl.count_distinct("double"),
        "median": sl.percentile("double", 0.5),
        "high": sl.percentile("int", 0.9),
        "positive": sl.sum("double", where=pc.field("double") > 0),
        "flagged": sl.count_all(where=pc.field("flag")),
    }
    theirs = [
        F.count_distinct("text"),
        F.count_distinct("double"),
        F.percentile("double", 0.5),
        F.percentile("int", 0.9),
        F.sum(F.when(F.col("double") > 0, F.col("double"))),
        F.count_if("flag"),
    ]
    stream = sl.stream(readings)
    run(stream.window(sl.time_window("10 s")).aggregate(**ours), tmp_path / "out")
    grouped = stream.read(spark).groupBy("k", F.window("at", "10 seconds").alias("w"))
    named = [their.alias(name) for name, their in zip(ours, theirs, strict=True)]
    expected = grouped.agg(*named).where("w.end < timestamp_seconds(10000)")
    right = expected.select("k", "w.start", "w.end", *ours).collect()
    result = sl.stream(str(tmp_path / "out")).read(spark)
    found = result.select("k", "window_start", "window_end", *ours).collect()
    assert len(found) > 50
    assert plain(found) == plain(right)
    assert not any(row[f"{name}_is_approximate"] for row in result.collect() for name in ("texts", "median"))


@pytest.mark.long
@pytest.mark.parametrize(
    "gap",
    [
        pytest.param("1500 milliseconds", marks=pytest.mark.long, id="between"),
        pytest.param("2 seconds", id="exactly a gap apart"),
    ],
)
def test_sessions_are_those_of_spark(spark, readings, run, gap, tmp_path):
    """Tuples come by the second: with a gap of whole seconds many are exactly a gap apart."""
    from pyspark.sql import functions as F

    stream = sl.stream(readings)
    aggregates = {"n": sl.count_all(), "total": sl.sum("double"), "least": sl.min("text")}
    run(stream.window(sl.session_window(gap)).aggregate(**aggregates), tmp_path / "out")
    session = F.session_window("at", gap)
    grouped = stream.read(spark).groupBy("k", session.alias("w"))
    expected = grouped.agg(F.count("*"), F.sum("double"), F.min("text")).where("w.end < timestamp_seconds(10000)")
    right = expected.select("k", "w.start", "w.end", *expected.columns[2:]).collect()
    found = sl.stream(str(tmp_path / "out")).read(spark).collect()
    assert len(found) > 50
    assert plain(found) == plain(right)


@pytest.mark.long
def test_an_operator_over_an_operator(spark, readings, run, tmp_path):
    from pyspark.sql import functions as F

    first = sl.stream(readings).window(sl.time_window("5 s")).aggregate(n=sl.count_all(), most=sl.max("text"))
    run(first.checkpoint(sl.cec(extent="1x")), tmp_path / "first", max_tuples_per_batch=1)
    middle = sl.stream(str(tmp_path / "first"))
    second = middle.window(sl.time_window("30 s")).aggregate(n=sl.sum("n"), most=sl.max("most"), windows=sl.count_all())
    run(second, tmp_path / "second", max_tuples_per_batch=1)
    found = sl.stream(str(tmp_path / "second")).read(spark).collect()
    grouped = middle.read(spark).groupBy("k", F.window("window_end", "30 seconds").alias("w"))
    expected = grouped.agg(F.sum("n"), F.max("most"), F.count("*"))
    right = expected.select("k", "w.start", "w.end", *expected.columns[2:]).collect()
    assert len(found) > 30
    assert plain(found) == plain(right)


# ---------------------------------------------------------------------- refusals


def test_time_windows_over_a_stream_in_which_nothing_is_late_are_refused(feed, drain, items, tmp_path):
    drain(feed(items(5)).df, tmp_path / "items")
    stream = sl.stream(str(tmp_path / "items"))
    for window in (sl.time_window("1 s"), sl.session_window("1 s")):
        with pytest.raises(sl.OptionError, match="would never close") as raised:
            stream.window(window).aggregate(n=sl.count_all())
        assert "lateness=" in raised.value.todo
    stream.window(sl.count_window(3)).aggregate(n=sl.count_all())


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (lambda s: s.window(10), sl.OptionError, "window(10) is not a window"),
        (lambda s: s.window(sl.count_window(2)).aggregate(), sl.OptionError, "without an aggregate"),
        (lambda s: s.window(sl.count_window(2)).aggregate(n="k"), sl.OptionError, "n='k' is not an aggregate"),
        (lambda s: s.window(sl.count_window(2)).aggregate(n=sl.sum("nope")), sl.SchemaError, "no column 'nope'"),
        (lambda s: s.window(sl.count_window(2)).aggregate(n=sl.sum("text")), sl.SchemaError, "not take a string"),
        (lambda s: s.window(sl.count_window(2)).aggregate(n=sl.avg("day")), sl.SchemaError, "not take a date"),
        (lambda s: s.window(sl.count_window(2)).aggregate(_n=sl.count_all()), sl.SchemaError, "'_n'"),
        (lambda s: s.window(sl.count_window(2)).aggregate(k=sl.count_all()), sl.SchemaError, "'k'"),
        (lambda s: s.window(sl.count_window(2)).aggregate(window_end=sl.count_all()), sl.SchemaError, "window_end"),
        (lambda s: s.window(sl.count_window(2)).aggregate(n=sl.count_all()).checkpoint("cec"), sl.OptionError, "'cec'"),
        (lambda s: sl.count_window(-1), sl.OptionError, "size=-1"),
        (lambda s: s.window(sl.count_window(0)), sl.OptionError, "for a side of a join"),
        (lambda s: sl.count_window(2, advance=3), sl.OptionError, "advance=3"),
        (lambda s: sl.time_window("1 s", advance="2 s"), sl.OptionError, "larger than size"),
        (lambda s: sl.session_window("now"), sl.OptionError, "session_window: gap"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_starts(readings, build, error, text):
    with pytest.raises(error) as raised:
        build(sl.stream(readings))
    assert text in str(raised.value)
    assert raised.value.todo


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"trigger": "soon"}, "trigger='soon'"),
        ({"max_tuples_per_batch": 0}, "max_tuples_per_batch=0"),
        ({"durability": "maybe"}, "durability='maybe'"),
        ({"retention": "long"}, "retention"),
    ],
)
def test_bad_options_are_refused_and_leave_nothing_behind(spark, readings, options, text, tmp_path):
    counting = sl.stream(readings).window(sl.count_window(5)).aggregate(n=sl.count_all())
    with pytest.raises(sl.OptionError) as raised:
        counting.start(spark, str(tmp_path / "out"), **options)
    assert text in str(raised.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_another_operator_over_an_existing_output_is_refused_saying_what_differs(
    spark, readings, feed, items, drain, run, tmp_path
):
    drain(feed(items(5)).df, tmp_path / "other", lateness="3 s")
    stream, other = sl.stream(readings), sl.stream(str(tmp_path / "other"))
    out = tmp_path / "out"
    run(stream.window(sl.count_window(5)).aggregate(n=sl.count_all(), t=sl.sum("int")), out)
    before = results(out)
    changed = {
        "it has count windows of 5, this program says count windows of 6": stream.window(sl.count_window(6)).aggregate(
            n=sl.count_all(), t=sl.sum("int")
        ),
        "it computes": stream.window(sl.count_window(5)).aggregate(n=sl.count_all(), t=sl.avg("int")),
        "its input is": other.window(sl.count_window(5)).aggregate(n=sl.count_all()),
    }
    for text, operator in changed.items():
        with pytest.raises(sl.StreamMismatchError) as raised:
            operator.start(spark, str(out), trigger="available-now")
        assert text in str(raised.value), str(raised.value)
        assert "write to a new stream" in raised.value.todo
    with pytest.raises(sl.StreamMismatchError, match="entry point"):
        stream.window(sl.count_window(5)).aggregate(n=sl.count_all()).start(spark, str(tmp_path / "other"))
    assert results(out) == before


@pytest.mark.long
def test_a_policy_may_change_from_start_to_start(spark, feed, items, run, tmp_path):
    source_feed = feed(items(200))
    path = str(tmp_path / "items")

    def counting(policy):
        source = sl.source(source_feed.df, path, key="k", time="at", lateness="10 s")
        return (
            source.window(sl.time_window("7 s", advance="3 s"))
            .aggregate(n=sl.count_all(), last=sl.last("k"))
            .checkpoint(policy)
        )

    policies = [sl.cec(extent=0), sl.instant("1 ms"), sl.cec(recover_within="1 s"), sl.instant("1 hour"), sl.cec()]
    modes = []
    for i, policy in enumerate(policies):
        run(counting(policy), tmp_path / "out")
        modes += {r["mode"] for r in sl.stream(str(tmp_path / "out")).recovery()}
        source_feed.add(items(50, first=200 + 50 * i))
    run(counting(sl.none()), tmp_path / "out")
    assert modes == ["eventual", "instant", "eventual", "instant", "eventual"]
    again = sl.stream(path).window(sl.time_window("7 s", advance="3 s")).aggregate(n=sl.count_all(), last=sl.last("k"))
    run(again, tmp_path / "again")
    assert results(tmp_path / "out") == results(tmp_path / "again")


# ---------------------------------------------------------------------- what can be seen


def test_progress_tells_of_results_footprints_and_recovery(spark, readings, run, tmp_path, monkeypatch):
    counting = sl.stream(readings).window(sl.count_window(7)).aggregate(n=sl.count_all(), last=sl.last("k"))
    progress = run(counting.checkpoint(sl.cec(extent="2x")), tmp_path / "out", max_tuples_per_batch=1)
    expected = {"batch", "commit", "input_commit", "input_tuples", "results", "footprints", "open_windows", "extent"}
    expected |= {
        "predicted_cold_recovery_s",
        "replay",
        "predicted_recovery_s",
        "recovered",
        "state_bytes",
        "step_s",
        "checkpoint_s",
        "operator_s",
    }
    assert expected <= progress.keys()
    assert progress["input_tuples"] == 201
    assert progress["footprints"].keys() == {"g_open", "g_check"}
    assert progress["extent"].keys() == progress["replay"].keys() == {0, 1}
    assert progress["recovered"] == []
    recovery = sl.stream(str(tmp_path / "out")).recovery()
    assert [r["partition"] for r in recovery] == [0, 1]
    assert [r["extent"] for r in recovery] == list(progress["extent"].values())
    assert sum(r["open_windows"] for r in recovery) == progress["open_windows"]
    for r in recovery:
        assert r["oldest_input"] + r["replay"] == r["input"]
        assert 0 < r["predicted_s"] < r["predicted_cold_s"]
        assert not r["measured"], "a handful of tuples says nothing of what one costs"


def test_open_windows_are_those_that_have_no_result_yet(spark, readings, run, tmp_path):
    stream = sl.stream(readings)
    run(stream.window(sl.count_window(7)).aggregate(n=sl.count_all(), t=sl.sum("int")), tmp_path / "out")
    out = sl.stream(str(tmp_path / "out"))
    table = out.open_windows()
    per_key = {r["k"]: r["count"] for r in stream.read(spark).groupBy("k").count().collect()}
    assert {row["k"]: row["_rows"] for row in table.to_pylist()} == {k: n % 7 for k, n in per_key.items() if n % 7}
    assert {"k", "window_start", "_input", "_open", "_opened", "_t_sum", "_partition"} <= set(table.column_names)
    assert out.open_windows(now=True).select(["k", "_rows"]).sort_by("k") == table.select(["k", "_rows"]).sort_by("k")
    with pytest.raises(sl.OptionError, match="no operator writes this stream"):
        stream.open_windows()
    with pytest.raises(sl.OptionError, match="no operator writes this stream"):
        stream.open_windows(now=True)
    with pytest.raises(sl.OptionError, match="no operator writes this stream"):
        stream.recovery()


def test_control_tuples_show_in_the_raw_log_and_nowhere_else(spark, readings, run, replayed, tmp_path):
    path = str(tmp_path / "out")
    counting = sl.stream(readings).window(sl.count_window(120)).aggregate(n=sl.count_all(), last=sl.last("k"))
    run(counting.checkpoint(sl.cec(replay=0)), path, max_tuples_per_batch=1)
    out = sl.stream(path)
    raw = [row for p in range(2) for row in out.log(p)]
    kinds = {kind: sum(row["_kind"] == kind for row in raw) for kind in (0, 1, 2)}
    assert all(kinds.values()), kinds
    assert all(row["n"] is None and row["_input"] is not None for row in raw if row["_kind"])
    assert all(row["n"] == 120 and row["_input"] is None for row in raw if not row["_kind"])
    by_format = spark.read.format("strandline").load(path)
    assert by_format.columns == ["k", "window_start", "window_end", "n", "last"]
    assert by_format.count() == out.read(spark).count() == kinds[0]
    assert plain(by_format.collect()) == plain(out.read(spark).collect())
    assert sum(len(batch) for batch in replayed(out.read_stream(spark))) == kinds[0]


@pytest.mark.long
def test_verify_finds_nothing_wrong_before_and_after_compaction(spark, readings, run, tmp_path):
    path = str(tmp_path / "out")
    sums = sl.stream(readings).window(sl.time_window("5 s")).aggregate(t=sl.sum("double"), last=sl.last("text"))
    run(sums.checkpoint(sl.cec(extent="1x")), path, max_tuples_per_batch=1)
    before, windows = results(path), sl.stream(path).open_windows()
    assert verify(Log.open(open_storage(path))).problems == ()
    from strandline.log.upkeep.compaction import compact

    assert compact(Log.open(open_storage(path)), blocks_min=2).blocks_before > 2
    report = verify(Log.open(open_storage(path)))
    assert report.problems == ()
    assert results(path) == before
    assert sl.stream(path).open_windows() == windows
    assert sl.stream(path).read(spark).count() == sum(map(len, before))


# ---------------------------------------------------------------------- the input, and what goes wrong in it


def test_the_input_is_kept_as_far_as_a_recovery_would_need_it(spark, feed, drain, items, run, tmp_path, monkeypatch):
    monkeypatch.setattr(operator_job, "_REGISTER_EVERY_S", 3600.0)  # a slow machine must not move the mark meanwhile
    batches = [items(50, first=50 * i) for i in range(4)]
    drain(feed(*batches).df, tmp_path / "items", lateness="1 s")
    stream = sl.stream(str(tmp_path / "items"))
    run(
        stream.window(sl.count_window(1000))
        .aggregate(n=sl.count_all(), last=sl.last("k"))
        .checkpoint(sl.cec(extent=10_000)),
        tmp_path / "o",
    )
    id_ = Log.open(open_storage(str(tmp_path / "o"))).spec.id
    oldest = [r["oldest_input"] for r in sl.stream(str(tmp_path / "o")).recovery()]
    consumer = {c.name: c for c in stream.describe().consumers}[f"operator-{id_}"]
    assert consumer.writes == str(tmp_path / "o")
    assert len(oldest) == 2
    with pytest.raises(sl.ConsumerError, match="the operator 'o', which writes"):
        stream.truncate(before=stream.offsets())
    assert consumer.name == f"operator-{id_}"
    stream.unregister_consumer(consumer.name)
    assert stream.truncate(before=stream.offsets()) == stream.offsets()


@pytest.mark.long
def test_a_sum_that_overflows_names_key_and_window_and_the_output_stays_as_it_was(spark, feed, run, tmp_path):
    schema = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])

    def rows(first, value):
        return [{"k": "the key" if i % 2 else None, "v": value, "at": (first + i) * SECOND} for i in range(10)]

    source_feed = feed(rows(0, 1), schema=schema)
    path, out = str(tmp_path / "items"), tmp_path / "out"

    def summing():
        source = sl.source(source_feed.df, path, key="k", time="at", lateness="1 s")
        return source.window(sl.time_window("100 s")).aggregate(total=sl.sum("v"))

    run(summing(), out)
    source_feed.add(rows(200, 1))
    run(summing(), out)
    before = results(out)
    assert sum(map(len, before)) == 2
    source_feed.add(rows(210, 1 << 62))
    with pytest.raises(sl.StrandlineError) as raised:
        run(summing(), out)
    assert "(total) does not fit 64 bits" in str(raised.value)
    assert "k='the key'" in str(raised.value) or "k=None" in str(raised.value)
    assert "window_start=" in str(raised.value)
    assert type(raised.value).__name__ == "AggregateOverflowError"
    assert results(out) == before
    assert verify(Log.open(open_storage(str(out)))).problems == ()


@pytest.mark.parametrize("batches", [1, 3])
def test_a_fused_operator_that_fails_ends_its_query_even_if_no_more_input_comes(spark, feed, batches, tmp_path):
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
    rows = [[{"k": 1, "v": 1 << 62, "at": (10 * b + i) * SECOND} for i in range(4)] for b in range(batches)]
    source = sl.source(feed(*rows, schema=schema).df, str(tmp_path / "items"), key="k", time="at")
    query = source.window(sl.count_window(4)).aggregate(total=sl.sum("v")).start(spark, str(tmp_path / "out"))
    with pytest.raises(sl.StrandlineError, match="does not fit 64 bits"):
        query.await_termination(patience(60))
    assert not query.is_active
    assert type(query.exception()).__name__ == "AggregateOverflowError"
    assert sum(sl.stream(str(tmp_path / "items")).offsets().values()) >= 4, "the input itself is published"
    assert results(tmp_path / "out") == [[], []]


def test_a_query_is_active_until_its_operator_has_taken_everything_in(spark, feed, items, tmp_path):
    """However it is waited for."""
    df = feed(*[items(50, first=50 * i) for i in range(3)]).df

    def counting(path):
        source = sl.source(df, str(path), key="k", time="at")
        return source.window(sl.count_window(1)).aggregate(n=sl.count_all())

    query = counting(tmp_path / "s").start(spark, str(tmp_path / "ended"), trigger="available-now")
    while query.is_active:
        time.sleep(0.01)
    assert sum(map(len, results(tmp_path / "ended"))) == 150
    query = counting(tmp_path / "t").start(spark, str(tmp_path / "stopped"))
    while not query.progress:
        time.sleep(0.01)
    query.stop()
    entered = sum(sl.stream(str(tmp_path / "t")).offsets().values())
    assert sum(map(len, results(tmp_path / "stopped"))) == entered > 0


def test_a_batch_that_fails_is_not_reported_before_the_operator_is_done(spark, feed, items, tmp_path, monkeypatch):
    """Or whoever starts the query again at once would meet it."""
    catch_up = OperatorJob.catch_up

    def slowly(self, *arguments, **options):
        time.sleep(3)
        return catch_up(self, *arguments, **options)

    monkeypatch.setattr(OperatorJob, "catch_up", slowly)
    bad = [{**row, "at": None} for row in items(5, first=50)]
    source = sl.source(feed(items(50), bad).df, str(tmp_path / "s"), key="k", time="at")
    query = source.window(sl.count_window(1)).aggregate(n=sl.count_all()).start(spark, str(tmp_path / "out"))
    with pytest.raises(sl.NullTimeError):
        query.await_termination(patience(60))
    assert not query.is_active
    assert sum(map(len, results(tmp_path / "out"))) == 50


def test_an_operator_that_is_stopped_while_its_kernels_are_compiled_starts_no_job(
    spark, feed, items, run, eventually, tmp_path, monkeypatch
):
    """`stop` has returned by then: such a job would hold Spark's processors, and no caller could cancel it."""
    compiling, is_stopped, ended, started = threading.Event(), threading.Event(), threading.Event(), []
    ready, close = KernelShipping.ready, FusedRun._close

    def slowly(self):
        compiling.set()
        assert is_stopped.wait(patience(60))
        return ready(self)

    def closing(self):
        close(self)
        ended.set()

    source = sl.source(feed(items(20)).df, str(tmp_path / "s"), key="k", time="at")
    counting = source.window(sl.count_window(1)).aggregate(n=sl.count_all())
    with monkeypatch.context() as patched:
        patched.setattr(KernelShipping, "ready", slowly)
        patched.setattr(FusedRun, "_close", closing)
        patched.setattr(operator_job, "on_hosts", lambda *given: started.append(given) or on_hosts(*given))
        patched.setattr(query_, "_PATIENCE_S", 0.5)
        query = counting.start(spark, str(tmp_path / "out"))
        assert compiling.wait(patience(60))
        query.stop()
        is_stopped.set()
        assert ended.wait(patience(60))
        assert started == []
        assert query.exception() is None
    run(counting, tmp_path / "out")
    assert sum(map(len, results(tmp_path / "out"))) == 20


def test_a_query_stops_in_time_though_its_operator_does_not(spark, feed, items, run, eventually, tmp_path, monkeypatch):
    def forever(task):
        time.sleep(600)

    source = sl.source(feed(*[items(20, first=20 * i) for i in range(4)]).df, str(tmp_path / "s"), key="k", time="at")
    counting = source.window(sl.count_window(1)).aggregate(n=sl.count_all())
    with monkeypatch.context() as patched:
        patched.setattr(
            operator_job, "on_hosts", lambda context, tasks, hosts, _: on_hosts(context, tasks, hosts, forever)
        )
        patched.setattr(query_, "_PATIENCE_S", 1.0)
        query = counting.start(spark, str(tmp_path / "out"))
        eventually(lambda: query.progress)
        began = time.monotonic()
        query.stop()
        assert time.monotonic() - began < patience(30)
        assert not query.is_active
        assert query.exception() is None
    run(counting, tmp_path / "out")
    assert sum(map(len, results(tmp_path / "out"))) == 80


def test_what_fails_at_the_start_is_said_in_the_same_words(spark, feed, run, tmp_path):
    """What was published before the operator failed is what it takes in first when it is started again."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
    rows = [{"k": 1, "v": 1 << 62, "at": i * SECOND} for i in range(4)]
    source = sl.source(feed(rows, schema=schema).df, str(tmp_path / "items"), key="k", time="at")
    summing = source.window(sl.count_window(4)).aggregate(total=sl.sum("v"))
    for _ in range(2):
        with pytest.raises(sl.StrandlineError, match="does not fit 64 bits"):
            run(summing, tmp_path / "out")
