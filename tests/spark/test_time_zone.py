"""Times without a zone are on the clock of the session's zone, in whatever way they are said."""

import datetime as dt

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import strandline as sl

pytestmark = pytest.mark.spark


@pytest.fixture
def in_zone(spark):
    """The session with another time zone, for one test."""
    setting = "spark.sql.session.timeZone"
    before = spark.conf.get(setting)

    def change(zone):
        spark.conf.set(setting, zone)
        sl.register(spark)

    yield change
    change(before)


@pytest.fixture(scope="module")
def path(feed_in, drain, items, tmp_path_factory):
    folder = tmp_path_factory.mktemp("zones")
    drain(feed_in(folder / "feed", items(20), items(20, first=20)).df, folder / "stream")
    return folder / "stream"


def test_every_way_to_read_takes_times_on_the_clock_of_the_session(spark, path, in_zone, replayed):
    stream = sl.stream(str(path))
    for zone, text in (("Asia/Tokyo", "1970-01-01 09:00:30"), ("-03:00", "1969-12-31 21:00:30")):
        in_zone(zone)
        for since in (text, dt.datetime.fromisoformat(text), pd.Timestamp(text), np.datetime64(text)):
            assert stream.read(spark, since=since).count() == 10, (zone, since)
    assert spark.read.format("strandline").option("since", text).load(str(path)).count() == 10
    at_once = spark.read.format("strandline").option("timeZone", "UTC").option("since", "1970-01-01 00:00:30")
    assert at_once.load(str(path)).count() == 10
    assert sum(map(len, replayed(stream.read_stream(spark, start=pd.Timestamp(text))))) == 10
    assert stream.read(spark, since=dt.date(1970, 1, 1)).count() == 0  # midnight is three hours later
    assert stream.read(spark, until=dt.datetime(1970, 1, 1, tzinfo=dt.UTC)).count() == 0


def test_truncation_goes_by_the_zone_of_the_active_session(in_zone, feed, drain, items, tmp_path):
    drain(feed(items(10), items(10, first=10)).df, tmp_path / "s", partitions=1)
    in_zone("Asia/Tokyo")
    stream = sl.stream(str(tmp_path / "s"))
    assert stream.truncate("1970-01-01 00:00:15") == {0: 0}
    assert stream.truncate("1970-01-01 09:00:15") == {0: 10}


def test_a_column_without_a_zone_is_read_as_it_was_written_in_any_session(spark, in_zone, feed, drain, tmp_path):
    schema = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us"))])
    source = feed([{"k": 1, "at": dt.datetime(2026, 1, 1, hour)} for hour in range(10)], schema=schema)
    drain(source.df, tmp_path / "s")
    in_zone("Asia/Tokyo")
    stream = sl.stream(str(tmp_path / "s"))
    assert stream.read(spark, since="2026-01-01 07:00").count() == 3
    through_python = spark.read.format("strandline").load(str(tmp_path / "s"))
    assert through_python.where("at >= timestamp_ntz '2026-01-01 07:00'").count() == 3
    with pytest.raises(sl.OptionError, match="has none"):
        stream.read(spark, since="2026-01-01T07:00Z")
