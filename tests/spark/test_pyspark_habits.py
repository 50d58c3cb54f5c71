"""What hands that are used to PySpark will type."""

import pytest

import strandline as sl
from tests.support.machine import patience

pytestmark = pytest.mark.spark


def test_an_entry_point_with_pysparks_spellings(feed, items, tmp_path):
    source = feed(items(10))
    query = sl.persist(source.df, str(tmp_path / "s"), key="k", time="at").start(trigger=dict(processingTime="50 ms"))
    query.processAllAvailable()
    source.add(items(5, first=10))
    query.processAllAvailable()
    assert sum(sl.stream(str(tmp_path / "s")).offsets().values()) == 15
    assert query.isActive is True
    assert query.lastProgress["numInputRows"] == query.recentProgress[-1]["numInputRows"]
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == 15
    assert query.id == str(query.spark_query.id)
    assert query.runId == query.run_id == str(query.spark_query.runId)
    assert query.awaitTermination(0.1) is False
    query.stop()
    assert query.isActive is False
    assert query.awaitTermination() is True
    assert query.exception() is None


def test_an_operator_has_taken_in_everything_after_process_all_available(spark, feed, items, tmp_path):
    source = feed(items(10, keys=1))
    entry = sl.source(source.df, str(tmp_path / "in"), key="k", time="at")
    counts = entry.window(sl.count_window(5)).aggregate(n=sl.count_all())
    query = counts.start(spark, str(tmp_path / "out"), trigger=dict(processingTime="50 ms"))
    results = []
    for batch in range(1, 4):
        query.process_all_available()
        results.append(sl.stream(str(tmp_path / "out")).read(spark).count())
        source.add(items(10, first=10 * batch, keys=1))
    query.stop()
    assert results == [2, 4, 6]


@pytest.mark.long
def test_an_operator_over_a_stream_takes_in_that_time_has_passed(spark, feed, items, drain, tmp_path):
    source = feed(items(10, keys=1))
    drain(source.df, tmp_path / "in", lateness="0 s")
    stream = sl.stream(str(tmp_path / "in"))
    query = stream.window(sl.time_window("5 s")).aggregate(n=sl.count_all()).start(spark, str(tmp_path / "out"))
    query.process_all_available()
    assert sl.stream(str(tmp_path / "out")).read(spark).count() == 1
    sl.persist(source.df, str(tmp_path / "in"), key="k", time="at", lateness="0 s").start(
        trigger=dict(availableNow=True), final=True
    ).await_termination(patience(240))
    query.process_all_available()  # the end of the input is no tuple: Spark sees nothing new
    assert sl.stream(str(tmp_path / "out")).read(spark).count() == 2
    query.stop()


def test_an_operator_over_a_stream_with_pysparks_spellings(spark, feed, items, drain, capsys, tmp_path):
    """Though no streaming query of Spark's drives it."""
    drain(feed(items(10, keys=1)).df, tmp_path / "in")
    counts = sl.stream(str(tmp_path / "in")).window(sl.count_window(5)).aggregate(n=sl.count_all())
    query = counts.start(spark, str(tmp_path / "out"), name="fives")
    query.processAllAvailable()
    assert query.spark_query is None
    assert query.isActive is True
    assert query.name == "fives"
    assert query.id == sl.stream(str(tmp_path / "out"))._log.spec.id
    assert query.runId == query.run_id != query.id
    assert query.status == {
        "message": "Waiting for data to arrive",
        "isDataAvailable": False,
        "isTriggerActive": False,
    }
    assert query.lastProgress["numInputRows"] == 10
    assert [progress.sink.numOutputRows for progress in query.recentProgress] == [2]
    query.explain()
    assert str(tmp_path / "out") in capsys.readouterr().out
    with pytest.raises(sl.OptionError, match="'fives' runs already"):
        counts.start(spark, str(tmp_path / "elsewhere"), name="fives")
    with pytest.raises(sl.OptionError, match="'fives' runs already"):
        sl.persist(feed(name="more").df, str(tmp_path / "s"), key="k", time="at").start(name="fives")
    with pytest.raises(sl.SecondWriterError, match="being written already"):
        counts.start(spark, str(tmp_path / "out"))
    assert query.awaitTermination(0.1) is False
    query.stop()
    assert query.status["message"] == "Stopped"
    assert query.awaitTermination() is True
    counts.start(spark, str(tmp_path / "out"), name="fives").stop()


def test_a_query_that_fails_raises_it_from_process_all_available(feed, items, tmp_path):
    source = feed(items(5))
    df = source.df.selectExpr("k", "v", "if(v = 'v3', null, at) as at")
    query = sl.persist(df, str(tmp_path / "s"), key="k", time="at").start()
    with pytest.raises(sl.NullTimeError):
        query.processAllAvailable()
    assert isinstance(query.exception(), sl.NullTimeError)
