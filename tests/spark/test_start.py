"""The start of an operator over a stream: what it does not need, and that it follows its input all the same."""

import os
from pathlib import Path

import pytest

import strandline as sl
from tests.support.machine import patience

pytestmark = pytest.mark.spark


def python_sources():
    """The processes in which this program's Spark runs sources that are written in Python."""
    parents, found = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[folder.name] = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            if b"python_streaming_source_runner" in (folder / "cmdline").read_bytes():
                found.append(folder.name)
        except OSError:
            continue  # it is gone
    return [pid for pid in found if str(os.getpid()) in _above(pid, parents)]


def _above(pid, parents):
    while (pid := parents.get(pid)) is not None:
        yield pid


@pytest.fixture
def pairs(feed, items, drain, tmp_path):
    """A source of four tuples, and an operator over the stream that it was drained into, with windows of two."""
    source = feed(items(4, keys=1))
    drain(source.df, tmp_path / "in")
    return source, sl.stream(str(tmp_path / "in")).window(sl.count_window(2)).aggregate(n=sl.count_all())


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="there is no /proc")
def test_an_operator_follows_a_stream_without_a_process_that_watches_it(
    spark, pairs, items, drain, eventually, tmp_path
):
    source, operator = pairs
    with operator.start(spark, str(tmp_path / "out")) as query:
        eventually(lambda: query.progress.get("results") == 2, 240)  # kernels may have to be compiled first
        assert python_sources() == []
        source.add(items(2, first=4, keys=1))
        drain(source.df, tmp_path / "in")
        query.process_all_available()
        assert query.progress["results"] == 1
        source.add(items(2, first=6, keys=1))
        drain(source.df, tmp_path / "in")
        eventually(lambda: sl.stream(str(tmp_path / "out")).to_arrow().num_rows == 4)
        eventually(lambda: sum(told.numInputRows for told in query.recent_progress) == 8)


def test_what_is_available_is_taken_in_by_one_batch_of_spark(spark, pairs, tmp_path):
    _, operator = pairs
    query = operator.start(spark, str(tmp_path / "out"), trigger="available-now", max_tuples_per_batch=1)
    query.await_termination(patience(240))
    assert [told.batchId for told in query.recent_progress] == [0]
    assert [told.numInputRows for told in query.recent_progress] == [4]
    assert sl.stream(str(tmp_path / "out")).to_arrow().num_rows == 2
