"""What Spark's listeners, its progress and our own tell of an operator: while it works, and after it."""

import time

import pytest

import strandline as sl
from strandline.spark import operator_job
from strandline.spark.affinity import on_hosts

pytestmark = pytest.mark.spark


@pytest.fixture
def heard(spark):
    """Every progress that a listener of the user's gets, by query name."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def __init__(self):
            self.progress, self.ended = {}, []

        def onQueryStarted(self, event):
            self.progress.setdefault(event.name, [])

        def onQueryProgress(self, event):
            self.progress[event.progress.name].append(event.progress)

        def onQueryIdle(self, event):
            pass

        def onQueryTerminated(self, event):
            self.ended.append(str(event.id))

    listener = Listener()
    spark.streams.addListener(listener)
    yield listener
    spark.streams.removeListener(listener)


def test_an_operator_over_a_stream_tells_what_it_takes_in(spark, feed, items, drain, heard, eventually, tmp_path):
    drain(feed(items(12, keys=1)).df, tmp_path / "in")
    counts = sl.stream(str(tmp_path / "in")).window(sl.count_window(5)).aggregate(n=sl.count_all())
    query = counts.start(spark, str(tmp_path / "out"), name="counts", trigger="available-now")
    query.await_termination(240)
    progress = query.last_progress
    assert progress["numInputRows"] == progress["sources"][0]["numInputRows"] == 12
    assert progress["processedRowsPerSecond"] > 0
    metrics = progress.observedMetrics["strandline"].asDict()
    assert (metrics["open_windows"], metrics["results"]) == (1, 2)
    assert metrics["extent"] == sum(query.progress["extent"].values())
    assert metrics["replay"] == sum(query.progress["replay"].values())
    assert metrics["predicted_recovery_s"] == query.progress["predicted_recovery_s"]
    eventually(lambda: sum(told.numInputRows for told in heard.progress.get("counts", [])) == 12, 120)

    again = counts.start(spark, str(tmp_path / "out"), trigger="available-now")  # nothing is new
    again.await_termination(240)
    assert again.progress["open_windows"] == 1
    assert again.progress["input_tuples"] == 0
    assert again.progress["commit"] == query.progress["commit"]


def test_an_operator_behind_an_entry_point_is_a_query_to_listeners(spark, feed, items, heard, eventually, tmp_path):
    source = feed(items(12, keys=1), items(3, first=12, keys=1))
    entry = sl.source(source.df, str(tmp_path / "in"), key="k", time="at")
    counts = entry.window(sl.count_window(5)).aggregate(n=sl.count_all())
    query = counts.start(spark, str(tmp_path / "out"), name="counts", trigger="available-now")
    query.await_termination(240)
    told = query.recent_progress
    assert sum(progress.numInputRows for progress in told) == 15
    assert sum(progress.sink.numOutputRows for progress in told) == 3
    assert all(progress.inputRowsPerSecond <= progress.processedRowsPerSecond for progress in told)
    assert query.last_progress["observedMetrics"]["strandline"]["open_windows"] == query.progress["open_windows"] == 0
    eventually(lambda: len(heard.ended) == 2, 120)  # Spark's query and the operator's
    got = heard.progress["counts: operator"]
    assert sum(progress.numInputRows for progress in got) == 15
    assert got[-1].observedMetrics["strandline"].asDict()["results"] == told[-1].sink.numOutputRows
    assert sum(progress.numInputRows for progress in heard.progress["counts"]) == 15

    again = counts.start(spark, str(tmp_path / "out"), trigger="available-now")  # nothing is new
    assert again.progress["batch"] == 1
    assert again.progress["open_windows"] == 0
    again.await_termination(240)
    again = entry.start(trigger="available-now")
    assert again.progress["offsets"] == sl.stream(str(tmp_path / "in")).offsets()
    again.await_termination(240)


def test_a_long_step_shows_before_it_ends(spark, feed, items, drain, monkeypatch, eventually, tmp_path):
    drain(feed(items(12, keys=1)).df, tmp_path / "in")
    described = []

    def slowly(context, tasks, hosts, work):
        described.append(context.getLocalProperty("spark.job.description"))
        time.sleep(1)
        return on_hosts(context, tasks, hosts, work)

    monkeypatch.setattr(operator_job, "on_hosts", slowly)
    counts = sl.stream(str(tmp_path / "in")).window(sl.count_window(5)).aggregate(n=sl.count_all())
    query = counts.start(spark, str(tmp_path / "out"))
    eventually(lambda: "input_tuples" in query.progress.get("running", {}))
    running = query.progress["running"]
    assert running["input_tuples"] == 12
    assert running["batch"] == 0
    assert 0 < running["seconds"] < 60
    assert running["steps_done"] <= running["steps"] <= 2
    query.process_all_available()
    assert "running" not in query.progress
    assert described == [f"strandline: {tmp_path / 'out'} takes in 12 tuples"]
    query.stop()
