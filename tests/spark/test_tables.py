"""Streams in Spark's catalog, as views, and Spark's own ways to write."""

import contextlib

import pytest

import strandline as sl
from tests.support.machine import patience

pytestmark = pytest.mark.spark


@pytest.fixture
def stream_path(feed, items, drain, tmp_path):
    drain(feed(items(10)).df, tmp_path / "s")
    return str(tmp_path / "s")


@pytest.fixture
def name(spark):
    yield "habit"
    with contextlib.suppress(Exception):
        spark.sql("DROP TABLE habit")
    spark.catalog.dropTempView("habit")


def test_a_table_reads_a_stream(spark, replayed, stream_path, name):
    spark.sql(f"CREATE TABLE {name} USING strandline OPTIONS (path '{stream_path}')")
    assert spark.sql(f"SELECT count(*) AS n, sum(k) AS s FROM {name}").first().asDict() == {"n": 10, "s": 20}
    assert spark.read.table(name).where("v = 'v3'").count() == 1
    assert sum(map(len, replayed(spark.readStream.table(name)))) == 10
    assert sum(map(len, replayed(spark.readStream.option("start", "latest").table(name)))) == 0
    # What is read from a table goes into a stream as if it had been read from anywhere else.
    copy, other = (
        sl.persist(df, stream_path, key="k", time="at")._input_spec
        for df in (spark.readStream.table(name), sl.stream(stream_path).read_stream(spark))
    )
    assert copy.schema == other.schema
    spark.sql(f"DROP TABLE {name}")
    assert sum(sl.stream(stream_path).offsets().values()) == 10, "dropping a table leaves the stream alone"


def test_a_table_with_columns_is_refused_when_it_is_read(spark, stream_path, name):
    spark.sql(f"CREATE TABLE {name} (k BIGINT) USING strandline OPTIONS (path '{stream_path}')")
    with pytest.raises(Exception, match="created without columns"):
        spark.table(name).count()


def test_a_table_shows_the_newest_and_a_view_what_there_was(spark, feed, items, drain, replayed, name, tmp_path):
    source = feed(items(10))
    drain(source.df, tmp_path / "s")
    stream = sl.stream(str(tmp_path / "s"))
    spark.sql(f"CREATE TABLE {name}_table USING strandline LOCATION '{tmp_path / 's'}'")
    stream.create_view(name)
    counts = f"SELECT (SELECT count(*) FROM {name}_table) AS t, (SELECT count(*) FROM {name}) AS v"
    assert tuple(spark.sql(counts).first()) == (10, 10)
    source.add(items(5, first=10))
    drain(source.df, tmp_path / "s")
    assert tuple(spark.sql(counts).first()) == (15, 10)
    stream.create_view(spark, name)
    assert tuple(spark.sql(counts).first()) == (15, 15)
    stream.create_view(spark, name, streaming=True)
    assert sum(map(len, replayed(spark.readStream.table(name)))) == 15
    spark.sql(f"DROP TABLE {name}_table")


def test_a_view_needs_a_name(spark, stream_path):
    for arguments in [(spark,), ("a", "b"), (spark, 3)]:
        with pytest.raises(sl.OptionError, match="does not name a view"):
            sl.stream(stream_path).create_view(*arguments)


def test_writing_with_sparks_words_is_refused_with_ours(spark, feed, items, stream_path, tmp_path):
    df = feed(items(5), name="more").df
    writer = df.writeStream.format("strandline").option("key", "k").option("time", "at")
    query = writer.option("checkpointLocation", str(tmp_path / "c")).start(str(tmp_path / "o"))
    with pytest.raises(Exception, match=r"sl\.persist") as raised:
        query.awaitTermination(patience(60))
    assert f"sl.persist(df, '{tmp_path}/o', key='k', time='at').start(spark)" in str(raised.value)
    with pytest.raises(Exception, match=r"sl\.persist") as raised:
        spark.range(3).write.format("strandline").option("key", "id").mode("append").save(str(tmp_path / "o"))
    assert "key='id', time=…).start(spark, trigger=\"available-now\")" in str(raised.value)
    assert not (tmp_path / "o").exists()
