"""What a program can get wrong: an error of ours says what, where and what to do, and the stream is as before."""

import json

import pyarrow as pa
import pytest

import strandline as sl
from tests.support.machine import patience

pytestmark = pytest.mark.spark

SETTINGS = {"key": "k", "time": "at", "partitions": 2, "lateness": "5 s"}


@pytest.fixture(scope="module")
def source(feed_in, items, tmp_path_factory):
    return feed_in(tmp_path_factory.mktemp("bad") / "feed", items(20))


@pytest.fixture(scope="module")
def path(source, drain, tmp_path_factory):
    """A stream that somebody wrote properly."""
    path = tmp_path_factory.mktemp("good") / "stream"
    drain(source.df, path, **SETTINGS)
    return path


@pytest.fixture
def refused(path, spark):
    """Runs what cannot work and looks at the error; the stream must not notice."""

    def run(kind, text, action):
        files = sorted(p for p in path.rglob("*"))
        with pytest.raises(sl.StrandlineError) as raised:
            action()
        error = raised.value
        assert type(error) is kind
        assert text in str(error)
        assert error.what
        assert error.where or error.todo, "it does not help"
        assert sorted(p for p in path.rglob("*")) == files, "it left something behind"
        assert sl.stream(str(path)).read(spark).count() == 20

    return run


BAD_SETTINGS = [
    ({"key": "nope"}, sl.SchemaError, "there is no column 'nope'"),
    ({"key": ["k", "nope"]}, sl.SchemaError, "there is no column 'nope'"),
    ({"key": []}, sl.OptionError, "at least one key column"),
    ({"key": 5}, sl.SchemaError, "key=5"),
    ({"key": [5]}, sl.SchemaError, "5"),
    ({"time": "nope"}, sl.SchemaError, "there is no column 'nope'"),
    ({"time": "v"}, sl.SchemaError, "time column 'v' has type string"),
    ({"time": None}, sl.SchemaError, "time=None"),
    ({"partitions": 0}, sl.OptionError, "partitions=0"),
    ({"partitions": "2"}, sl.OptionError, "partitions='2'"),
    ({"lateness": "soon"}, sl.OptionError, "lateness='soon'"),
    ({"lateness": "5 parsecs"}, sl.OptionError, "parsecs"),
    ({"lateness": -1}, sl.OptionError, "negative"),
    ({"retention": "soon"}, sl.OptionError, "retention='soon'"),
    ({"durability": "maybe"}, sl.OptionError, "durability='maybe'"),
    ({"storage_options": {"anon": True}}, sl.OptionError, "anon"),
    ({"key": "v"}, sl.StreamMismatchError, "created with key=('k',)"),
    ({"key": ["k", "v"]}, sl.StreamMismatchError, "created with key=('k',)"),
    ({"time": "k"}, sl.StreamMismatchError, "created with time='at'"),
    ({"partitions": 3}, sl.StreamMismatchError, "created with partitions=2"),
    ({"lateness": "6 s"}, sl.StreamMismatchError, "created with lateness='5 s'"),
    ({"lateness": None}, sl.StreamMismatchError, "created with lateness='5 s'"),
]


@pytest.mark.parametrize(("changed", "kind", "text"), BAD_SETTINGS, ids=[repr(row[0]) for row in BAD_SETTINGS])
def test_a_setting_that_cannot_work_or_was_another_before(changed, kind, text, source, path, refused):
    refused(kind, text, lambda: sl.persist(source.df, str(path), **{**SETTINGS, **changed}).start())


BAD_COLUMNS = [
    (["k", "at"], sl.SchemaError, "'v' is missing"),
    (["*", "1 as more"], sl.SchemaError, "'more' is not in the stream"),
    (["k", "cast(v as binary) as v", "at"], sl.SchemaError, "'v' is binary, in the stream string"),
    (["at", "k", "v"], sl.SchemaError, "the order is at, k, v"),
    (["*", "1 as _offset"], sl.SchemaError, "'_offset' is reserved"),
    (["*", "1 as _KIND"], sl.SchemaError, "'_kind' is reserved"),
    (["*", "1 as _partition"], sl.SchemaError, "'_partition' is reserved"),
    (["*", "1 as V"], sl.SchemaError, "same name"),
    (["*", "interval 1 day as d"], sl.SchemaError, "column 'd' has type interval day"),
    (["*", "parse_json('1') as j"], sl.SchemaError, "column 'j' has type variant"),
    (["*", "null as n"], sl.SchemaError, "column 'n' has type void"),
    (["array(k) as k", "v", "at"], sl.SchemaError, "key column 'k' has type array"),
    (["cast(k as double) as k", "v", "at"], sl.SchemaError, "key column 'k' has type double"),
    (["k", "v", "cast(at as date) as at"], sl.SchemaError, "time column 'at' has type date"),
]


@pytest.mark.parametrize(("columns", "kind", "text"), BAD_COLUMNS, ids=[", ".join(row[0]) for row in BAD_COLUMNS])
def test_a_schema_that_is_not_the_streams(columns, kind, text, source, path, refused):
    refused(kind, text, lambda: sl.persist(source.df.selectExpr(*columns), str(path), **SETTINGS).start())


BAD_STARTS = [
    ({"trigger": "now"}, "trigger='now'"),
    ({"trigger": "5 parsecs"}, "trigger='5 parsecs'"),
    ({"trigger": 5}, "trigger=5"),
    ({"blocks": "fast"}, "blocks='fast'"),
    ({"spark_checkpoint_dir": "some/../where"}, ".."),
]


@pytest.mark.parametrize(("options", "text"), BAD_STARTS, ids=[repr(row[0]) for row in BAD_STARTS])
def test_a_start_that_cannot_work(options, text, source, path, refused):
    refused(sl.OptionError, text, lambda: sl.persist(source.df, str(path), **SETTINGS).start(**options))


def test_a_dataframe_that_is_not_a_stream(spark, path, refused):
    table = spark.createDataFrame([(1, "a", 1)], "k long, v string, at long")
    refused(sl.InputError, "take a streaming DataFrame", lambda: sl.persist(table, str(path), **SETTINGS))


@pytest.mark.parametrize("name", ["a/../b", "..", "", " "])
def test_a_path_that_leads_elsewhere(name, source, path, refused, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    refused(sl.OptionError, "", lambda: sl.persist(source.df, name, **SETTINGS).start())
    refused(sl.OptionError, "", lambda: sl.stream(name))


def test_a_path_that_holds_something_else(source, path, refused, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "diary.txt").write_text("dear diary")
    (tmp_path / "file").write_text("dear diary")
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "stream.json").write_text("{}")
    for name, hint in {"folder": "diary.txt", "json": "stream.json"}.items():
        refused(sl.NotAStreamError, hint, lambda n=name: sl.persist(source.df, str(tmp_path / n), **SETTINGS).start())
        refused(sl.NotAStreamError, hint, lambda n=name: sl.stream(str(tmp_path / n)))
    with pytest.raises(sl.StrandlineError):
        sl.persist(source.df, str(tmp_path / "file"), **SETTINGS).start()
    assert (tmp_path / "file").read_text() == "dear diary"
    assert [p.name for p in (tmp_path / "folder").iterdir()] == ["diary.txt"]


def test_a_path_where_nothing_is(path, refused, tmp_path):
    refused(sl.StreamNotFoundError, "there is no stream here", lambda: sl.stream(str(tmp_path / "nothing")))
    assert not (tmp_path / "nothing").exists()


def test_a_stream_of_a_later_format(source, drain, tmp_path):
    drain(source.df, tmp_path / "s", **SETTINGS)
    file = tmp_path / "s" / "stream.json"
    body = json.loads(file.read_text())
    file.write_text(json.dumps({**body, "format": 99}))
    for action in (
        lambda: sl.stream(str(tmp_path / "s")),
        lambda: sl.persist(source.df, str(tmp_path / "s"), **SETTINGS).start(),
    ):
        with pytest.raises(sl.FormatVersionError, match="version 99") as raised:
            action()
        assert "upgrade" in raised.value.todo
    file.write_text(json.dumps(body, indent=2))
    assert sum(sl.stream(str(tmp_path / "s")).offsets().values()) == 20


BAD_READS = [
    ({"since": "yesterday"}, "since='yesterday'"),
    ({"until": "tomorrow"}, "until='tomorrow'"),
    ({"since": 1.5}, "since=1.5"),
    ({"since": {2: 0}}, "partitions 0 to 1"),
    ({"until": {"0": 5}}, "partitions 0 to 1"),
    ({"since": {0: "five"}}, "partitions 0 to 1"),
    ({"late": True, "since": {0: 1}}, "late=True"),
]


@pytest.mark.parametrize(("bounds", "text"), BAD_READS, ids=[repr(row[0]) for row in BAD_READS])
def test_a_bound_that_is_none(bounds, text, spark, path, refused):
    refused(sl.OptionError, text, lambda: sl.stream(str(path)).read(spark, **bounds))


BAD_STREAM_READS = [
    ({"start": "sometime"}, "start='sometime'"),
    ({"max_tuples_per_batch": 0}, "max_tuples_per_batch='0'"),
    ({"max_tuples_per_batch": -3}, "max_tuples_per_batch='-3'"),
]


@pytest.mark.parametrize(("options", "text"), BAD_STREAM_READS, ids=[repr(row[0]) for row in BAD_STREAM_READS])
def test_an_option_of_a_streaming_read_that_cannot_work(options, text, spark, path, refused):
    refused(sl.OptionError, text, lambda: sl.stream(str(path)).read_stream(spark, **options))


BAD_FORMAT_OPTIONS = [
    ({"sincee": "2026-01-01"}, "unknown option 'sincee'"),
    ({"since": "yesterday"}, "since='yesterday'"),
    ({"late": "perhaps"}, "late='perhaps'"),
]


@pytest.mark.parametrize(("options", "text"), BAD_FORMAT_OPTIONS, ids=[repr(row[0]) for row in BAD_FORMAT_OPTIONS])
def test_a_bad_option_of_the_format_is_named_in_what_spark_raises(options, text, spark, path):
    with pytest.raises(sl.OptionError) as raised:
        spark.read.format("strandline").options(**options).load(str(path)).count()
    assert text in str(raised.value)


def test_a_batch_bound_in_a_streaming_read_is_refused(spark, path):
    with pytest.raises(sl.OptionError, match="use start="):
        df = spark.readStream.format("strandline").option("since", "2026-01-01").load(str(path))
        df.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination(patience(60))


def test_a_column_of_the_stream_that_spark_cannot_hold_is_found_before_anything_is_written(feed, tmp_path):
    nested = pa.schema([("k", pa.int64()), ("at", pa.int64())])
    df = feed([{"k": 1, "at": 1}], schema=nested).df.selectExpr("*", "struct(array(interval 1 year)) as s")
    with pytest.raises(sl.SchemaError, match="column 's'"):
        sl.persist(df, str(tmp_path / "s"), key="k", time="at").start()
    assert not (tmp_path / "s").exists()
