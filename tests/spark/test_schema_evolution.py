"""A source that gets a new column: the stream goes on, whoever reads it."""

import pyarrow as pa
import pytest

import strandline as sl
from tests.support.machine import patience

pytestmark = pytest.mark.spark

SECOND = 1_000_000


@pytest.mark.long
@pytest.mark.parametrize("blocks", ["native", "arrow"])
def test_a_new_column_goes_on_in_the_same_stream(spark, feed, items, drain, content, replayed, tmp_path, blocks):
    path = tmp_path / "items"
    source = feed(items(6))
    options = {"lateness": "2 s", "partitions": 1, "blocks": blocks}
    drain(source.df, path, **options)
    source.schema = source.schema.append(pa.field("note", pa.string()))
    source.add([{**row, "note": f"n{i}"} for i, row in enumerate(items(4, first=6))])
    source.add([{"k": 1, "v": "late", "at": 2 * SECOND, "note": "late"}])

    with pytest.raises(sl.SchemaError, match="'note' is not in the stream") as error:
        drain(source.df, path, **options)
    assert 'schema_evolution="add"' in error.value.todo
    running = sl.stream(str(path)).read_stream(spark)  # planned before the column came
    drain(source.df, path, schema_evolution="add", **options)

    expected = [None] * 6 + [f"n{i}" for i in range(4)]
    assert [row["note"] for row in content(path)[0]] == expected
    stream = sl.stream(str(path))
    assert [r["note"] for r in stream.read(spark).orderBy("at").collect()] == expected
    assert stream.read(spark).where("note is null").count() == 6
    assert [r["note"] for r in stream.read(spark, late=True).collect()] == ["late"]
    through_python = spark.read.format("strandline").load(str(path)).orderBy("at").collect()
    assert [r["note"] for r in through_python] == expected
    assert [r["v"] for batch in replayed(running) for r in batch] == [f"v{i}" for i in range(10)]
    if blocks == "native":
        noted = stream.window(sl.count_window(2)).aggregate(notes=sl.count("note"), n=sl.count_all())
        noted.start(spark, str(tmp_path / "noted"), trigger="available-now").await_termination(patience(120))
        found = sl.stream(str(tmp_path / "noted")).read(spark).orderBy("window_end").collect()
        assert [(r["notes"], r["n"]) for r in found] == [(0, 2), (1, 2), (1, 2), (1, 2), (1, 2)]


def test_a_start_that_is_refused_has_added_no_column(spark, feed, items, tmp_path):
    path = tmp_path / "items"
    source = feed(items(6))
    with sl.persist(source.df, str(path), key="k", time="at").start() as running:
        running.process_all_available()
        wider = feed(items(4), name="wider")
        wider.schema = wider.schema.append(pa.field("note", pa.string()))
        with pytest.raises(sl.SecondWriterError):
            sl.persist(wider.df, str(path), key="k", time="at", schema_evolution="add").start()
        source.add(items(6, first=6))
        running.process_all_available()
    assert sl.stream(str(path)).schema.names == ["k", "v", "at"]
    assert sl.stream(str(path)).read(spark).count() == 12
