"""Tables of Spark's catalog, and writing with Spark's own words: what can be shown without Spark."""

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import strandline as sl
from strandline.spark.entry.table_options import options_in, options_of_table, with_options, without_options
from strandline.spark.read.read_options import ReadOptions
from strandline.spark.read.sink_refusal import refused_stream, refused_write

SCHEMA = StructType([StructField("k", LongType()), StructField("v", StringType(), True, {"comment": "a value"})])
# What Spark 4.3 gives for CREATE TABLE … OPTIONS (path '…', positions 'true') TBLPROPERTIES ('a'='b') COMMENT 'c'.
CREATED = {
    "a": "b",
    "comment": "c",
    "location": "file:/streams/items",
    "option.positions": "true",
    "owner": "somebody",
    "path": "file:/streams/items",
    "positions": "true",
    "provider": "strandline",
}


def test_the_options_of_a_table_survive_in_its_schema():
    given = options_of_table(CREATED)
    assert given == {"path": "file:/streams/items", "positions": "true"}
    kept = StructType.fromJson(with_options(SCHEMA, given).jsonValue())
    assert options_in(kept) == given
    assert ReadOptions.of(options_in(kept)).place.url == "/streams/items"
    assert without_options(kept.jsonValue()) == SCHEMA.jsonValue()
    assert options_in(SCHEMA) == {}


def test_options_that_create_no_table_are_left_alone():
    assert options_of_table({"path": "streams/items"}) is None


def test_unknown_options_of_a_table_are_refused_as_anywhere():
    given = options_of_table({**CREATED, "option.positon": "true"})
    with pytest.raises(sl.OptionError, match="unknown option 'positon'"):
        ReadOptions.of(given)


@pytest.mark.parametrize("name", ["storage_options", "storageOptions", "storage_options_secret"])
def test_secrets_do_not_go_into_sparks_catalog(name):
    with pytest.raises(sl.OptionError, match="catalog") as raised:
        options_of_table({**CREATED, f"option.{name}": '{"secret": "hunter2-hunter2"}'})
    assert "hunter2" not in str(raised.value)


def test_a_table_with_columns_has_lost_its_path_and_says_what_to_do():
    with pytest.raises(sl.OptionError, match="created without columns"):
        ReadOptions.of(options_in(SCHEMA))


def test_a_refused_writer_shows_the_line_to_write_instead():
    options = {"path": "streams/items", "checkpointlocation": "x", "key": "id", "time": "at", "lateness": "10 s"}
    line = "sl.persist(df, 'streams/items', key='id', time='at', lateness='10 s').start(spark)"
    assert line in str(refused_stream(options))
    more = {**options, "key": "a, b", "partitions": "4", "maxahead": "1 day"}
    line = "key=['a', 'b'], time='at', partitions=4, lateness='10 s', max_ahead='1 day')"
    assert line in str(refused_stream(more))
    assert "sl.persist(df, path, key=…, time=…).start(spark)" in str(refused_stream({}))
    assert "key='id', time='at', lateness='10 s').start(spark, trigger=\"available-now\")" in str(
        refused_write(options)
    )


def test_a_refused_writer_tells_no_secrets():
    options = {"path": "s3://me:hunter2-hunter2@bucket/x", "storage_options": '{"secret": "hunter2-hunter2"}'}
    for refusal in (refused_stream(options), refused_write(options)):
        assert "hunter2" not in str(refusal)
        assert "storage_options=…" in str(refusal)
