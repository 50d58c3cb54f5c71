"""Late tuples go to the side log, tuples without a time stop the query, and neither takes anything with it."""

import shutil

import pytest

import strandline as sl

pytestmark = pytest.mark.spark


def test_late_tuples_are_kept_aside_counted_and_readable(spark, feed, drain, content, items, tmp_path):
    # Boundaries after the batches: 99-10=89, then 149-10=139.
    source = feed(items(100), [*items(11, first=80), *items(50, first=100)], items(140))
    progress = drain(source.df, tmp_path / "s", lateness="10 s")
    assert (progress["tuples"], progress["late"], progress["late_total"]) == (1, 139, 148)
    assert progress["boundary"] == 139_000_000
    assert sum(progress["offsets"].values()) == 100 + 52 + 1

    stream = sl.stream(str(tmp_path / "s"))
    late = stream.read(spark, late=True, positions=True)
    assert sorted(row["_offset"] for row in late.collect()) == list(range(148))
    assert {row["_partition"] for row in late.collect()} == {None}
    expected = sorted([f"v{i}" for i in range(80, 89)] + [f"v{i}" for i in range(139)])
    assert sorted(row["v"] for row in late.collect()) == expected
    since = stream.read(spark, late=True, since="1970-01-01 00:01:20", until="1970-01-01 00:01:22")
    assert sorted(row["v"] for row in since.collect()) == ["v80", "v80", "v81", "v81"]
    through_python = spark.read.format("strandline").option("late", True).load(str(tmp_path / "s"))
    assert sorted(row["v"] for row in through_python.collect()) == expected
    on_time = [row["v"] for rows in content(tmp_path / "s").values() for row in rows]
    assert len(on_time) == 153
    assert not stream.read(spark).join(late, "v", "left_anti").isEmpty()


def test_a_tuple_at_the_boundary_is_not_late(feed, drain, items, tmp_path):
    progress = drain(feed(items(100), items(2, first=88)).df, tmp_path / "s", lateness="10 s")
    assert (progress["tuples"], progress["late"]) == (1, 1)


def test_without_a_lateness_nothing_is_late(feed, drain, items, tmp_path):
    progress = drain(feed(items(5, first=1000), items(5)).df, tmp_path / "s")
    assert (progress["tuples"], progress["late_total"], progress["boundary"]) == (5, 0, None)


def test_a_batch_of_late_tuples_only(spark, feed, drain, items, tmp_path):
    progress = drain(feed(items(5, first=1000), items(5), items(1, first=2000)).df, tmp_path / "s", lateness=0)
    assert progress["late_total"] == 5
    assert sl.stream(str(tmp_path / "s")).read(spark).count() == 6


@pytest.mark.parametrize("blocks", ["native", "arrow"])
def test_tuples_without_a_time_stop_the_query_and_publish_nothing(blocks, feed, drain, content, items, tmp_path):
    source = feed(items(10), [*items(10, first=10), {"k": 1, "v": "no time", "at": None}], items(10, first=20))
    for _ in range(2):  # as often as one starts it
        with pytest.raises(sl.NullTimeError, match=r"1 of .* tuples? have no time") as raised:
            drain(source.df, tmp_path / "s", lateness="5 s", blocks=blocks)
        assert "partition" in raised.value.where
        assert "is not null" in raised.value.todo
        assert sum(map(len, content(tmp_path / "s").values())) == 10
    # The program follows the advice.
    progress = drain(source.df.where("at is not null"), tmp_path / "s", lateness="5 s", blocks=blocks)
    assert progress["batch"] == 2
    found = [row["v"] for rows in content(tmp_path / "s").values() for row in rows]
    assert sorted(found) == sorted(f"v{i}" for i in range(30))


def test_the_side_log_is_followed_as_a_stream(spark, feed, drain, items, replayed, tmp_path):
    source = feed(items(100), items(70))
    drain(source.df, tmp_path / "s", lateness="10 s")
    stream = sl.stream(str(tmp_path / "s"))
    followed = stream.read_stream(spark, late=True, positions=True, max_tuples_per_batch=50)
    first = replayed(followed, tmp_path / "checkpoint")
    assert [len(rows) for rows in first] == [50, 20]
    source.add(items(30, first=5))
    drain(source.df, tmp_path / "s", lateness="10 s")
    second = replayed(followed, tmp_path / "checkpoint")
    assert [row["v"] for rows in second for row in rows] == [f"v{i}" for i in range(5, 35)]
    rows = [row for batch in first + second for row in batch]
    assert [row["_offset"] for row in rows] == list(range(100))
    assert {(row["_partition"], row["_reason"]) for row in rows} == {(None, "late")}
    expected = stream.read(spark, late=True, positions=True).orderBy("_offset").collect()
    assert (rows, followed.columns) == (expected, stream.read(spark, late=True, positions=True).columns)
    assert sum(map(len, replayed(stream.read_stream(spark, late=True, start="latest")))) == 0
    assert [len(b) for b in replayed(stream.read_stream(spark, late=True, start="1970-01-01 00:01:00"))] == [40]


def test_a_query_does_not_change_between_a_stream_and_its_side_log(spark, feed, drain, items, replayed, tmp_path):
    drain(feed(items(100), items(70)).df, tmp_path / "s", lateness="10 s")
    stream = sl.stream(str(tmp_path / "s"))
    for before, after in ((False, True), (True, False)):
        replayed(stream.read_stream(spark, late=before), tmp_path / "checkpoint")
        with pytest.raises(sl.StreamMismatchError, match="late="):
            replayed(stream.read_stream(spark, late=after), tmp_path / "checkpoint")
        shutil.rmtree(tmp_path / "checkpoint")


def test_what_the_side_log_cannot_give_a_streaming_read_is_refused(spark, feed, drain, items, tmp_path):
    drain(feed(items(100), items(70)).df, tmp_path / "s", lateness="10 s")
    stream = sl.stream(str(tmp_path / "s"))
    with pytest.raises(sl.OptionError, match="late=True does not go with tentative=True"):
        stream.read_stream(spark, late=True, tentative=True)
    with pytest.raises(sl.OptionError, match="consumer= does not go with late=True"):
        stream.read_stream(spark, late=True, consumer="report")
    through_the_format = spark.readStream.format("strandline").option("late", True).option("consumer", "report")
    with pytest.raises(sl.OptionError, match="consumer= does not go with late=True"):
        through_the_format.load(str(tmp_path / "s"))
