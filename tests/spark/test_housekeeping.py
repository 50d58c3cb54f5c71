"""A running query joins its small blocks beside its batches, for the stream it writes and for that of its operator."""

import pytest

import strandline as sl
from strandline.log.audit.stream_audit import verify
from strandline.log.index import index
from strandline.log.storage.storage_url import open_storage
from strandline.log.stream.log import Log
from tests.support.machine import patience

pytestmark = pytest.mark.spark

BATCHES = 20


def blocks(path):
    log = Log.open(open_storage(path))
    return sum(1 for p in range(log.spec.partitions) for _ in log.blocks(p))


@pytest.mark.long
def test_a_query_of_many_small_batches_leaves_few_blocks(spark, feed, items, tmp_path, monkeypatch):
    monkeypatch.setattr(index, "FOLD_EVERY", 8)
    path, counts = str(tmp_path / "stream"), str(tmp_path / "counts")
    source = feed(*[items(6, first=6 * n) for n in range(BATCHES)], files_per_batch=1)
    entry = sl.source(source.df, path, key="k", time="at", partitions=1, lateness="1 s")
    counted = entry.window(sl.time_window("10 s")).aggregate(n=sl.count("v"))
    query = counted.start(spark, counts, trigger="available-now", compaction="off")
    assert query.await_termination(patience(300))
    assert query.progress["batch"] == BATCHES - 1
    done = query.progress["input_housekeeping"]
    assert done["blocks_before"] > done["blocks_after"] > 0
    assert "failure" not in done
    assert "housekeeping" not in query.progress
    assert blocks(path) < BATCHES
    assert blocks(counts) >= BATCHES - 1
    assert sorted(row["v"] for row in sl.stream(path).read(spark).collect()) == sorted(
        f"v{i}" for i in range(6 * BATCHES)
    )
    for written in (path, counts):
        assert verify(Log.open(open_storage(written))).problems == ()
    with pytest.raises(sl.OptionError, match="compaction='no'"):
        sl.source(source.df, path, key="k", time="at", compaction="no")
