"""Streams to which nothing comes: windows close by the clock, or because the stream is finished."""

import contextlib
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.clock import ManualClock
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.append_commit import Append
from strandline.log.stream.log import Log
from strandline.spark.entry.entry_run import EntryRun
from strandline.spark.entry.heartbeat import Heartbeat
from strandline.units import END_OF_TIME
from tests.support.machine import patience

SECOND = 1_000_000
AGGREGATES = {"n": sl.count_all(), "last": sl.max("v")}


def now_us() -> int:
    return time.time_ns() // 1_000


def rows_at(times_us: list[int], key: int = 1) -> list[dict[str, Any]]:
    return [{"k": key, "v": f"v{i}", "at": t} for i, t in enumerate(times_us)]


def counts(spark: Any, path: Path) -> Counter[Any]:
    found = sl.stream(str(path)).read(spark).collect()
    return Counter((r.k, r.window_start, r.window_end, r.n) for r in found)


def source(feed: Any, path: Path, **options: Any) -> sl.Entry:
    given = {"lateness": "1 s", "heartbeat": "200 ms", **options}
    return sl.source(feed.df, str(path), key="k", time="at", **given)


# ---------------------------------------------------------------------- heartbeats


@pytest.mark.long
def test_a_quiet_stream_is_saved_as_often_as_partial_says(
    spark: Any, feed: Any, tmp_path: Path, eventually: Any
) -> None:
    """Fused without heartbeats, and over the stream: what came last would be at risk for as long as nothing comes."""
    items, fused, over = (tmp_path / name for name in ("items", "fused", "over"))
    given = feed(rows_at([now_us()]))
    policy = sl.partial(every="2 s")
    counting = source(given, items, heartbeat=None).window(sl.count_window(10)).aggregate(n=sl.count_all())
    queries = [counting.checkpoint(policy).start(spark, str(fused))]
    try:
        eventually(lambda: "input_commit" in queries[0].progress)
        again = sl.stream(str(items)).window(sl.count_window(10)).aggregate(n=sl.count_all())
        queries.append(again.checkpoint(policy).start(spark, str(over)))
        eventually(lambda: "input_commit" in queries[1].progress)
        for _ in range(3):  # batches that come closer together than saves: the last ones do not save
            given.add(rows_at([now_us()]))
        for path in (fused, over):
            eventually(lambda at=path: standing(at) == (4, 4), seconds=30)
    finally:
        for query in reversed(queries):
            query.stop()
    assert sl.stream(str(fused)).losses().num_rows == 0


def standing(path: Path) -> tuple[int, int]:
    """Tuples that were taken in, and that are saved, of the partition that has any."""
    found = Log.open(LocalStorage(path)).state.standings
    return max((s.input, s.oldest) for s in found) if found else (0, 0)


@pytest.mark.long
def test_windows_of_a_quiet_stream_close_by_the_clock(
    spark: Any, feed: Any, tmp_path: Path, content: Any, eventually: Any
) -> None:
    """Fused, over the stream, and over the results: nothing comes after the first batch."""
    items, fused, over, chain = (tmp_path / name for name in ("items", "fused", "over", "chain"))
    begin = now_us()
    ready = feed(rows_at([begin, begin + 1]))
    windows = source(ready, items).window(sl.time_window("1 s")).aggregate(**AGGREGATES)
    queries = [windows.start(spark, str(fused))]
    try:
        eventually(lambda: "input_commit" in queries[0].progress)
        # Open until long after they have started, one after the other.
        sessions = sl.stream(str(items)).window(sl.session_window("15 s")).aggregate(n=sl.count_all())
        queries.append(sessions.start(spark, str(over)))
        eventually(lambda: "input_commit" in queries[1].progress)
        chained = sl.stream(str(over)).window(sl.time_window("1 s")).aggregate(n=sl.count_all())
        queries.append(chained.start(spark, str(chain)))
        for path in (fused, over, chain):
            eventually(lambda path=path: sum(counts(spark, path).values()) >= 1)
        assert all(q.is_active and q.exception() is None for q in queries)
    finally:
        for query in reversed(queries):
            query.stop()
    content(items)
    assert sum(n for _, _, _, n in counts(spark, fused).elements()) == 2
    assert [n for _, _, _, n in counts(spark, over).elements()] == [2]
    assert [n for _, _, _, n in counts(spark, chain).elements()] == [1]
    log = sl.stream(str(items)).describe()
    assert log.late.tuples == 0
    assert log.commits > 3


def test_what_waits_in_the_source_when_a_query_starts_is_not_late_for_it(
    feed: Any, tmp_path: Path, content: Any, eventually: Any
) -> None:
    items = tmp_path / "items"
    ready = feed(rows_at([now_us()]))
    query = source(ready, items, heartbeat="20 ms").start()
    eventually(lambda: query.progress.get("tuples") == 1)
    eventually(lambda: sl.stream(str(items)).describe().commits > 2)
    query.stop()
    boundary = sl.stream(str(items)).describe().boundary
    assert boundary is not None
    for i in range(4):
        ready.add(rows_at([boundary + i * SECOND // 10], key=2))
    time.sleep(2.5)  # by the clock they are late now
    query = source(ready, items, heartbeat="20 ms").start()
    eventually(lambda: sum(len(rows) for rows in content(items).values()) == 5)
    query.stop()
    assert sl.stream(str(items)).describe().late.tuples == 0


def test_without_a_heartbeat_a_quiet_stream_publishes_nothing(feed: Any, tmp_path: Path, eventually: Any) -> None:
    items = tmp_path / "items"
    query = source(feed(rows_at([now_us()])), items, heartbeat=None).start()
    eventually(lambda: query.progress.get("tuples") == 1)
    time.sleep(1)
    query.stop()
    assert sl.stream(str(items)).describe().commits == 1


def test_a_heartbeat_that_fails_ends_the_query(feed: Any, tmp_path: Path, eventually: Any) -> None:
    items = tmp_path / "items"
    query = source(feed(rows_at([now_us()])), items).start()
    eventually(lambda: query.progress.get("tuples") == 1)
    other = sl.stream(str(items))
    other._log.refresh()
    other._log.append(Append(writer=None, source=None))  # a second writer
    eventually(lambda: not query.is_active, seconds=20)
    with pytest.raises(sl.SecondWriterError):
        query.await_termination(patience(10))
    assert isinstance(query.exception(), sl.SecondWriterError)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"lateness": None}, "needs lateness"),
        ({"heartbeat": "0 s"}, "shorter than a millisecond"),
        ({"heartbeat": "often"}, "heartbeat='often' is not a duration"),
        ({"heartbeat": -1}, "negative"),
    ],
)
def test_a_heartbeat_that_cannot_work_is_refused(feed: Any, tmp_path: Path, options: Any, says: str) -> None:
    with pytest.raises(sl.OptionError, match=says):
        source(feed(), tmp_path / "items", **options)


@pytest.mark.parametrize("kind", ["long", "timestamp_ntz"])
def test_the_clock_says_nothing_about_times_without_a_zone(spark: Any, tmp_path: Path, kind: str) -> None:
    df = spark.readStream.format("rate").load().selectExpr("value AS k", f"CAST(timestamp AS {kind}) AS at")
    with pytest.raises(sl.OptionError, match="type timestamp"):
        sl.persist(df, str(tmp_path / "x"), key="k", time="at", lateness="10 us", heartbeat="1 s")


def test_a_clock_that_is_set_forward_is_not_followed() -> None:
    clock, steady = ManualClock(1_000 * SECOND), [0.0]
    heartbeat = Heartbeat(500_000, 10 * SECOND, clock, lambda: steady[0])

    def pass_time(seconds: float, jump: float = 0.0) -> int:
        steady[0] += seconds
        clock.advance(seconds + jump)
        return heartbeat.boundary()

    assert pass_time(5) == 995 * SECOND
    with pytest.warns(sl.StrandlineWarning, match="set forward by 31,536,000 s"):
        assert pass_time(1, jump=365 * 86_400) == 996 * SECOND
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pass_time(1) == 997 * SECOND, "once is enough to say it"
        assert pass_time(1, jump=-365 * 86_400) == 998 * SECOND, "set right again"
        assert pass_time(1, jump=-60) == 939 * SECOND, "a clock that goes back is no danger: boundaries do not"


# ---------------------------------------------------------------------- the end


def batches(many: int = 4) -> list[list[dict[str, Any]]]:
    return [
        [
            {"k": i % 3, "v": f"v{i:03d}", "at": 1_700_000_000 * SECOND + i * SECOND // 3}
            for i in range(b * 50, b * 50 + 50)
        ]
        for b in range(many)
    ]


@pytest.mark.long
def test_a_bounded_input_closes_every_window_and_its_results_are_those_of_a_batch_job(
    spark: Any, feed: Any, tmp_path: Path, content: Any
) -> None:
    from pyspark.sql import functions as F

    items, fused, over = (tmp_path / name for name in ("items", "fused", "over"))
    ready = feed(*batches())
    window = sl.time_window("10 s", advance="5 s")

    def run() -> sl.Query:
        aggregation = source(ready, items, heartbeat=None).window(window).aggregate(**AGGREGATES)
        query = aggregation.start(spark, str(fused), trigger="available-now", final=True)
        assert query.await_termination(patience(120))
        return query

    run()
    of_batch = spark.read.parquet(str(ready.folder)).groupBy("k", F.window("at", "10 seconds", "5 seconds").alias("w"))
    expected = Counter((r.k, r.w.start, r.w.end, r.n) for r in of_batch.agg(F.count("*").alias("n")).collect())
    assert counts(spark, fused) == expected
    assert sl.stream(str(items)).is_finished
    assert sl.stream(str(fused)).is_finished
    assert sl.stream(str(fused)).describe().boundary == END_OF_TIME
    assert sl.stream(str(fused)).open_windows().num_rows == 0
    assert sl.stream(str(items)).describe().consumers == (), "a finished operator needs nothing of its input"
    content(items)

    query = sl.stream(str(items)).window(window).aggregate(n=sl.count_all())
    assert query.start(spark, str(over), trigger="available-now").await_termination(patience(120))
    assert counts(spark, over) == expected
    assert sl.stream(str(over)).is_finished

    commits = sl.stream(str(items)).describe().commits, sl.stream(str(fused)).describe().commits
    run()  # by cron, for example: nothing new, nothing to do
    assert (sl.stream(str(items)).describe().commits, sl.stream(str(fused)).describe().commits) == commits

    with pytest.raises(sl.StreamFinishedError):
        source(ready, items, heartbeat=None).start()
    ready.add(batches(5)[4])
    with pytest.raises(sl.StreamFinishedError):
        run()
    assert counts(spark, fused) == expected


@pytest.mark.long
def test_an_operator_that_follows_a_stream_finishes_when_it_does(
    spark: Any, feed: Any, tmp_path: Path, eventually: Any
) -> None:
    items, over, counted = (tmp_path / name for name in ("items", "over", "counted"))
    writing = source(feed(*batches(2)), items, heartbeat=None).start()
    eventually(lambda: writing.progress.get("batch") == 1)
    stream = sl.stream(str(items))
    sessions = stream.window(sl.session_window("1 min")).aggregate(n=sl.count_all()).start(spark, str(over))
    tens = stream.window(sl.count_window(10)).aggregate(n=sl.count_all()).start(spark, str(counted))
    try:
        with pytest.raises(sl.OptionError, match="does not work for an operator over a stream"):
            sessions.finish()
        assert sessions.is_active
        assert not stream.is_finished
        writing.finish()
        assert not writing.is_active
        assert stream.is_finished
        for path in (over, counted):
            eventually(lambda path=path: sl.stream(str(path)).is_finished, seconds=30)
        assert sum(n for _, _, _, n in counts(spark, over).elements()) == 100
        assert sum(counts(spark, counted).values()) == 9, (
            "3 keys with 33 or 34 tuples; windows of 10 that are not full stay"
        )
        assert sl.stream(str(counted)).open_windows().num_rows == 3
        assert sessions.exception() is None
    finally:
        sessions.stop()
        tens.stop()
    writing.finish()  # once more does nothing


def test_a_query_that_is_stopped_is_not_finished(feed: Any, tmp_path: Path, eventually: Any) -> None:
    items = tmp_path / "items"
    query = source(feed(*batches(6)), items, heartbeat=None).start(trigger="available-now", final=True)
    eventually(lambda: "batch" in query.progress)
    query.stop()
    done = sl.stream(str(items)).describe()
    assert done.finished == (done.tuples == 300), "finished, and not all is there"


@pytest.mark.long
def test_a_query_that_spark_stops_is_not_finished(feed: Any, tmp_path: Path, eventually: Any) -> None:
    """Between two batches Spark's query then ends as if all were done."""
    ready = feed(*([row] for row in rows_at(list(range(60)))))
    for attempt in range(4):
        items = tmp_path / f"items{attempt}"
        query = source(ready, items, heartbeat=None).start(trigger="available-now", final=True)
        eventually(lambda query=query: query.progress.get("batch", -1) >= 1)
        before = query.progress["batch"]
        while query.progress["batch"] == before:
            time.sleep(0.001)
        query.spark_query.stop()
        with contextlib.suppress(Exception):
            query.await_termination(patience(60))
        done = sl.stream(str(items)).describe()
        assert done.tuples + done.late.tuples < 60
        assert not done.finished
    query = source(ready, items, heartbeat=None).start(trigger="available-now", final=True)
    assert query.await_termination(patience(120))
    done = sl.stream(str(items)).describe()
    assert done.finished
    assert done.tuples + done.late.tuples == 60


def test_what_comes_before_the_end_is_proven_keeps_the_stream_open(
    feed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = tmp_path / "items"
    ready = feed(rows_at([1, 2]))
    begin = EntryRun.begin

    def late_input(self: EntryRun, spark_query: Any, again: Any, *others: Any) -> None:
        def more() -> Any:
            ready.add(rows_at([3]))
            return again()

        begin(self, spark_query, more, *others)

    with monkeypatch.context() as patch:
        patch.setattr(EntryRun, "begin", late_input)
        query = source(ready, items, heartbeat=None).start(trigger="available-now", final=True)
        with pytest.raises(sl.InputError, match="not finished"):
            query.await_termination(patience(120))
    assert not sl.stream(str(items)).is_finished
    assert (
        source(ready, items, heartbeat=None).start(trigger="available-now", final=True).await_termination(patience(120))
    )
    assert sl.stream(str(items)).is_finished
    assert sl.stream(str(items)).describe().tuples == 3


def test_final_needs_an_entry_point_and_a_bounded_input(spark: Any, feed: Any, tmp_path: Path, drain: Any) -> None:
    items = tmp_path / "items"
    entry = source(feed(*batches(1)), items, heartbeat=None)
    with pytest.raises(sl.OptionError, match="available-now"):
        entry.start(final=True)
    assert entry.start(trigger="available-now").await_termination(patience(120))
    over = sl.stream(str(items)).window(sl.count_window(2)).aggregate(n=sl.count_all())
    with pytest.raises(sl.OptionError, match="entry point"):
        over.start(spark, str(tmp_path / "over"), trigger="available-now", final=True)
