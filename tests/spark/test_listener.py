"""What Spark's listeners, its progress and our own tell of an operator: while it works, and after it."""

import threading
import uuid

import pytest

import strandline as sl
from strandline.spark.operator import operator_job
from strandline.spark.operator.affinity import on_hosts
from strandline.spark.query.listener_events import ListenerEvents
from tests.support.machine import patience

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


@pytest.mark.long
def test_an_operator_over_a_stream_tells_what_it_takes_in(spark, feed, items, drain, heard, eventually, tmp_path):
    drain(feed(items(12, keys=1)).df, tmp_path / "in")
    counts = sl.stream(str(tmp_path / "in")).window(sl.count_window(5)).aggregate(n=sl.count_all())
    query = counts.start(spark, str(tmp_path / "out"), name="counts", trigger="available-now")
    query.await_termination(patience(240))
    progress = query.last_progress
    assert progress["numInputRows"] == progress["sources"][0]["numInputRows"] == 12
    assert progress["processedRowsPerSecond"] > 0
    metrics = progress.observedMetrics["strandline"].asDict()
    assert (metrics["open_windows"], metrics["results"]) == (1, 2)
    assert metrics["extent"] == sum(query.progress["extent"].values())
    assert metrics["replay"] == sum(query.progress["replay"].values())
    assert metrics["predicted_recovery_s"] == query.progress["predicted_recovery_s"]
    eventually(lambda: sum(told.numInputRows for told in heard.progress.get("counts", [])) == 12, 120)
    assert query.id == sl.stream(str(tmp_path / "out"))._log.spec.id
    eventually(lambda: query.id in heard.ended, 120)
    assert not (tmp_path / "out" / "spark_checkpoint").exists(), "Spark drives no query for it"

    again = counts.start(spark, str(tmp_path / "out"), trigger="available-now")  # nothing is new
    again.await_termination(patience(240))
    assert again.progress["open_windows"] == 1
    assert again.progress["input_tuples"] == 0
    assert again.progress["commit"] == query.progress["commit"]


def test_an_operator_behind_an_entry_point_is_a_query_to_listeners(spark, feed, items, heard, eventually, tmp_path):
    source = feed(items(12, keys=1), items(3, first=12, keys=1))
    entry = sl.source(source.df, str(tmp_path / "in"), key="k", time="at")
    counts = entry.window(sl.count_window(5)).aggregate(n=sl.count_all())
    query = counts.start(spark, str(tmp_path / "out"), name="counts", trigger="available-now")
    query.await_termination(patience(240))
    told = query.recent_progress
    assert sum(progress.numInputRows for progress in told) == 15
    assert sum(progress.sink.numOutputRows for progress in told) == 3
    assert all(progress.inputRowsPerSecond <= progress.processedRowsPerSecond for progress in told)
    assert query.last_progress["observedMetrics"]["strandline"]["open_windows"] == query.progress["open_windows"] == 0
    both = {str(query.id), sl.stream(str(tmp_path / "out"))._log.spec.id}  # Spark's query and the operator's
    eventually(lambda: both <= set(heard.ended), 120)  # where the end of the query of another test may be, too
    assert max(heard.ended.count(query) for query in both) == 1
    got = heard.progress["counts: operator"]
    assert sum(progress.numInputRows for progress in got) == 15
    assert got[-1].observedMetrics["strandline"].asDict()["results"] == told[-1].sink.numOutputRows
    assert sum(progress.numInputRows for progress in heard.progress["counts"]) == 15

    again = counts.start(spark, str(tmp_path / "out"), trigger="available-now")  # nothing is new
    assert "batch" not in again.progress
    assert again.progress["open_windows"] == 0
    again.await_termination(patience(240))
    again = entry.start(trigger="available-now")
    assert again.progress["offsets"] == sl.stream(str(tmp_path / "in")).offsets()
    again.await_termination(patience(240))


def test_a_long_step_shows_before_it_ends(spark, feed, items, drain, monkeypatch, eventually, tmp_path):
    drain(feed(items(12, keys=1)).df, tmp_path / "in")
    described, running, is_seen = [], {}, threading.Event()

    def slowly(context, tasks, hosts, work):
        described.append(context.getLocalProperty("spark.job.description"))
        assert is_seen.wait(patience(90))
        return on_hosts(context, tasks, hosts, work)

    monkeypatch.setattr(operator_job, "on_hosts", slowly)
    counts = sl.stream(str(tmp_path / "in")).window(sl.count_window(5)).aggregate(n=sl.count_all())
    query = counts.start(spark, str(tmp_path / "out"))
    eventually(lambda: running.update(query.progress.get("running", {})) or "input_tuples" in running)
    is_seen.set()
    assert running["input_tuples"] == 12
    assert running["batch"] == 0
    assert 0 < running["seconds"] < 60
    assert running["steps_done"] <= running["steps"] <= 2
    query.process_all_available()
    assert "running" not in query.progress
    assert described == [f"strandline: {tmp_path / 'out'} takes in 12 tuples"]
    query.stop()


@pytest.fixture
def calls(monkeypatch):
    """Every call of the JVM by this thread and by the one that tells listeners."""
    from py4j.clientserver import ClientServerConnection

    made, call, ours = [], ClientServerConnection.send_command, threading.current_thread()

    def counted(connection, command):
        thread = threading.current_thread()
        if thread is ours or thread.name.startswith("strandline"):
            made.append(command)
        return call(connection, command)

    monkeypatch.setattr(ClientServerConnection, "send_command", counted)
    return made


REPORT = {"input_tuples": 3, "operator_s": 0.1, "extent": {0: 1, 1: 2}, "results": 7, "step_s": 0.25}


def told(events, calls, batches):
    """How many calls it takes to tell of some batches, once it is known whom."""
    events.progressed(REPORT)
    assert events._thread.wait(patience(60))
    before = len(calls)
    for _ in range(batches):
        events.progressed(REPORT)
    assert events._thread.wait(patience(60))
    return len(calls) - before


def test_telling_nobody_of_a_batch_takes_no_call_of_the_jvm(spark, calls):
    events = ListenerEvents(spark, "unheard", str(uuid.uuid4()), "a test")
    assert spark.sparkContext.uiWebUrl is None
    assert told(events, calls, 20) <= 3  # whether somebody listens is asked again after some seconds
    assert len(events.recent) == 21
    events.ended(None)


def test_telling_somebody_of_a_batch_takes_few_calls_of_the_jvm(spark, calls, heard, eventually):
    query = str(uuid.uuid4())
    events = ListenerEvents(spark, "heard", query, "a test")
    assert told(events, calls, 20) <= 20 * 7 + 3
    events.ended(None)
    eventually(lambda: query in heard.ended, 60)
    got = heard.progress["heard"]
    assert [progress.numInputRows for progress in got] == [3] * 21
    metrics = got[-1].observedMetrics["strandline"].asDict()
    assert (metrics["extent"], metrics["results"], metrics["step_s"]) == (3, 7, 0.25)
    events.progressed(REPORT)  # whoever is late does no harm


def test_who_begins_to_listen_hears_of_later_batches(spark, request, monkeypatch, eventually):
    monkeypatch.setattr("strandline.spark.query.listener_bus._ASK_EVERY_S", 0.0)
    events = ListenerEvents(spark, "late", str(uuid.uuid4()), "a test")
    events.progressed(REPORT)
    assert events._thread.wait(patience(60))
    heard = request.getfixturevalue("heard")
    heard.progress["late"] = []
    events.progressed(REPORT)
    events.ended(None)
    eventually(lambda: [progress.batchId for progress in heard.progress["late"]] == [1], 60)
