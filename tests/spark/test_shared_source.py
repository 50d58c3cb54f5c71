"""Several operators on one source: one query reads it, each of them comes, goes and fails by itself."""

import pytest
from pyspark.sql.streaming.readwriter import DataStreamWriter

import strandline as sl
from strandline.spark.query.fused_run import FusedRun
from tests.support.machine import patience

pytestmark = pytest.mark.spark


def count(path):
    return sum(row["_kind"] == 0 for p in range(2) for row in sl.stream(str(path)).log(p))


@pytest.fixture
def source(feed, items, tmp_path):
    """A source, and `operator(size)`: counts over windows of so many tuples."""
    made = feed(items(10, keys=1))
    made.entry = sl.source(made.df, str(tmp_path / "in"), key="k", time="at")
    made.operator = lambda size: made.entry.window(sl.count_window(size)).aggregate(n=sl.count_all())
    return made


def test_operators_of_one_source_share_its_query(spark, source, items, tmp_path):
    a, b = source.operator(5), source.operator(2)
    first = a.start(spark, str(tmp_path / "a"), trigger="50 ms")
    second = b.start(spark, str(tmp_path / "b"))
    assert [str(query.id) for query in spark.streams.active] == [first.id] == [second.id]
    for query in (first, second):
        query.process_all_available()
    assert (count(tmp_path / "a"), count(tmp_path / "b")) == (2, 5)

    first.stop()
    assert not first.is_active
    assert second.is_active
    assert first.await_termination() is True
    assert first.exception() is None
    source.add(items(10, first=10, keys=1))
    second.process_all_available()
    assert (count(tmp_path / "a"), count(tmp_path / "b")) == (2, 10)

    again = a.start(spark, str(tmp_path / "a"), trigger="50 ms")  # goes on where it stood
    again.process_all_available()
    assert count(tmp_path / "a") == 4
    with pytest.raises(sl.OptionError, match="being read already"):
        source.operator(3).start(spark, str(tmp_path / "c"), trigger="available-now")
    with pytest.raises(sl.SecondWriterError):
        source.entry.start()
    with pytest.raises(sl.SecondWriterError, match="an operator of this program"):
        source.operator(2).start(spark, str(tmp_path / "b"))
    second.stop()
    assert again.is_active
    again.stop()
    assert spark.streams.active == []
    assert first.progress["open_windows"] == second.progress["open_windows"] == 0


def test_operators_join_an_entry_point_that_runs_and_outlive_its_handle(spark, source, items, tmp_path):
    entry = source.entry.start(trigger="50 ms")
    entry.process_all_available()
    operator = source.operator(5).start(spark, str(tmp_path / "a"))
    entry.stop()
    assert not entry.is_active
    source.add(items(10, first=10, keys=1))
    operator.process_all_available()
    assert count(tmp_path / "a") == 4
    assert operator.progress["tuples"] == 10
    operator.finish()
    assert sl.stream(str(tmp_path / "in")).is_finished
    assert sl.stream(str(tmp_path / "a")).is_finished
    assert spark.streams.active == []


@pytest.mark.long
def test_what_stops_an_operator_stops_no_other_and_what_stops_the_source_stops_all(spark, feed, items, tmp_path):
    made = feed(items(10, keys=1))
    big = (1 << 62) + 1
    df = made.df.selectExpr("k", f"if(v > 'v15', {big}, 1) as v", "if(v = 'v33', null, at) as at")
    entry = sl.source(df, str(tmp_path / "in"), key="k", time="at")
    sums = entry.window(sl.count_window(5)).aggregate(s=sl.sum("v"))
    poisoned = sums.start(spark, str(tmp_path / "sums"), trigger="50 ms")
    queries = [
        entry.window(sl.count_window(n)).aggregate(n=sl.count_all()).start(spark, str(tmp_path / f"n{n}"))
        for n in (2, 5)
    ]
    made.add(items(10, first=10, keys=1))
    with pytest.raises(sl.AggregateOverflowError):
        poisoned.await_termination(patience(240))
    assert not poisoned.is_active
    assert isinstance(poisoned.exception(), sl.AggregateOverflowError)
    for query in queries:
        query.process_all_available()
    assert count(tmp_path / "n2") == 10
    made.add(items(20, first=20, keys=1))
    for query in queries:
        with pytest.raises(sl.NullTimeError):
            query.await_termination(patience(240))
    poisoned.stop()
    assert spark.streams.active == []


def test_the_failure_of_the_last_operator_ends_the_query(spark, source, tmp_path):
    df = source.df.selectExpr("k", f"{(1 << 62) + 1} as v", "at")
    sums = sl.source(df, str(tmp_path / "in2"), key="k", time="at").window(sl.count_window(5)).aggregate(s=sl.sum("v"))
    query = sums.start(spark, str(tmp_path / "sums"))
    with pytest.raises(sl.AggregateOverflowError):
        query.await_termination(patience(240))
    assert spark.streams.active == []


def test_an_operator_whose_query_does_not_start_lets_go_of_what_it_has(spark, source, tmp_path, monkeypatch):
    closed = []
    monkeypatch.setattr(FusedRun, "_close", lambda operator: closed.append(str(operator.life.failure)))

    def refuse(writer):
        raise RuntimeError("no query today")

    monkeypatch.setattr(DataStreamWriter, "start", refuse)
    with pytest.raises(RuntimeError, match="no query today"):
        source.operator(5).start(spark, str(tmp_path / "a"))
    assert closed == ["no query today"]
