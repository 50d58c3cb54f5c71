"""Trouble from outside: a second writer, a full disk, rotten bytes. What was published stays readable."""

import random
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

import strandline as sl
from strandline.log.storage.storage_url import open_storage
from strandline.log.stream.append_commit import Append
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from tests.support.machine import patience

pytestmark = pytest.mark.spark


def numbers(spark, rows_per_batch=10):
    """An endless source: the same tuples however often it is read."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows_per_batch)
    return source.option("startTimestamp", 0).load().selectExpr("value % 7 as k", "value as v", "timestamp as at")


def values(path):
    log = Log.open(open_storage(str(path)))
    return sorted(v for p in range(log.spec.late) for t in log.read(p) for v in t.column("v").to_pylist())


# ---------------------------------------------------------------------- a second writer


def test_a_writer_stops_when_another_has_published(spark, eventually, tmp_path):
    path = tmp_path / "s"
    query = sl.persist(numbers(spark), str(path), key="k", time="at").start(trigger="100 ms")
    eventually(lambda: query.progress.get("batch", 0) >= 1)
    other = Log.open(open_storage(str(path)))
    while True:  # between two batches of the query
        try:
            other.append(Append(writer=Writer("another query", "its run", 7)))
            break
        except sl.SecondWriterError:
            other.refresh()
    with pytest.raises(sl.SecondWriterError, match="query another query") as raised:
        query.await_termination(patience(60))
    assert "one writer" in raised.value.todo
    assert raised.value.where == str(path)
    found = values(path)
    assert found == list(range(len(found)))


@pytest.mark.long
def test_a_second_process_with_a_checkpoint_of_its_own_cannot_write_too(spark, eventually, tmp_path):
    path = tmp_path / "s"
    first = sl.persist(numbers(spark), str(path), key="k", time="at").start(trigger="200 ms")
    eventually(lambda: "batch" in first.progress)
    program = f"""
import strandline as sl
spark = sl.session("local[1]", spark_driver_memory="1g")
source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("startTimestamp", 0).load()
df = source.selectExpr("value % 7 as k", "value as v", "timestamp as at")
entry = sl.persist(df, {str(path)!r}, key="k", time="at")
query = entry.start(trigger="0 s", spark_checkpoint_dir={str(tmp_path / "other")!r})
try:
    query.await_termination({patience(60)})
except sl.SecondWriterError:
    print("refused")
"""
    second = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        # Whoever comes second at a commit stops, and which of the two that is nobody can say.
        eventually(lambda: second.poll() is not None or not first.is_active, seconds=120)
        if first.is_active:
            assert second.communicate(timeout=patience(60))[0].decode().strip().endswith("refused")
        else:
            assert isinstance(first.exception(), sl.SecondWriterError)
    finally:
        second.kill()
        second.wait()
        first.stop()
    found = values(path)
    assert found == list(range(len(found)))


def test_a_second_query_of_the_same_program_is_refused(spark, eventually, tmp_path):
    path = tmp_path / "s"
    entry = sl.persist(numbers(spark), str(path), key="k", time="at")
    first = entry.start(trigger="100 ms")
    eventually(lambda: "batch" in first.progress)
    with pytest.raises(sl.SecondWriterError, match="being written already") as raised:
        entry.start(trigger="100 ms")
    assert "stop that query" in raised.value.todo
    seen = first.progress["batch"]
    eventually(lambda: first.progress["batch"] > seen)
    first.stop()
    assert first.exception() is None
    second = entry.start(trigger="100 ms")
    eventually(lambda: "batch" in second.progress)
    second.stop()
    found = values(path)
    assert found == list(range(len(found)))


def test_a_second_operator_into_the_same_stream_is_refused_and_the_first_goes_on(spark, eventually, tmp_path):
    path = str(tmp_path / "counts")
    source = sl.source(numbers(spark), str(tmp_path / "s"), key="k", time="at")
    counting = source.window(sl.count_window(5)).aggregate(n=sl.count_all())
    with counting.start(spark, path, trigger="100 ms") as first:
        eventually(lambda: first.progress.get("results"))
        over_the_stream = sl.stream(str(tmp_path / "s")).window(sl.count_window(5)).aggregate(n=sl.count_all())
        with pytest.raises(sl.SecondWriterError, match="being written already"):
            over_the_stream.start(spark, path)
        seen = first.progress["batch"]
        eventually(lambda: first.progress["batch"] > seen)


def test_what_does_not_fit_leaves_nothing_behind(spark, tmp_path):
    there, new = tmp_path / "there", tmp_path / "new"
    source = sl.source(numbers(spark), str(there), key="k", time="at")
    counting = source.window(sl.count_window(5)).aggregate(n=sl.count_all())
    with counting.start(spark, str(tmp_path / "counts")):
        pass
    names = sorted(p.name for p in tmp_path.iterdir())
    others = sl.source(numbers(spark), str(new), key="k", time="at").window(sl.count_window(5))
    count = others.aggregate(n=sl.count_all())
    with pytest.raises(sl.StreamMismatchError, match="computed by another operator"):
        count.start(spark, str(tmp_path / "counts"))  # the results of another input
    with pytest.raises(sl.StreamMismatchError, match="entry point"):
        count.start(spark, str(there))  # no operator's stream
    with pytest.raises(sl.OptionError, match="the stream that it reads"):
        count.start(spark, str(new))
    with pytest.raises(sl.OptionError, match="blocks="):
        sl.persist(numbers(spark), str(new), key="k", time="at").start(blocks="other")
    taken = sl.persist(numbers(spark), str(tmp_path / "taken"), key="k", time="at").start(name="taken")
    with taken, pytest.raises(sl.OptionError, match="'taken' runs already"):
        sl.persist(numbers(spark), str(new), key="k", time="at").start(name="taken")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*names, "taken"])


# ---------------------------------------------------------------------- a full disk


@pytest.fixture
def small_disk(tmp_path):
    """A filesystem of 600 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not mount a filesystem")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("blocks", ["native", "arrow"])
def test_a_full_disk_stops_the_query_and_loses_nothing(blocks, feed, drain, content, items, small_disk):
    choice = random.Random(1)
    large = [{**row, "v": choice.randbytes(400).hex()} for row in items(1500, first=10)]
    source = feed(items(10), large)
    path = small_disk / "s"
    for _ in range(2):
        with pytest.raises(sl.NoSpaceError) as raised:
            drain(source.df, path, blocks=blocks)
        assert str(path) in raised.value.where
        assert "free" in raised.value.todo
        assert sum(map(len, content(path).values())) == 10
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    drain(source.df, path, blocks=blocks)
    found = content(path)
    assert sorted(row["v"] for rows in found.values() for row in rows) == sorted(r["v"] for r in items(10) + large)


def test_a_disk_without_space_for_sparks_own_checkpoint(feed, drain, content, items, small_disk):
    source = feed(items(10))
    path = small_disk / "s"
    drain(source.df, path)
    source.add(items(10, first=10))
    filling = small_disk / "filling"
    with filling.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(512))
    with pytest.raises(sl.NoSpaceError):
        drain(source.df, path)
    assert sum(map(len, content(path).values())) == 10
    filling.unlink()
    drain(source.df, path)
    assert sum(map(len, content(path).values())) == 20


# ---------------------------------------------------------------------- rotten bytes


@pytest.fixture
def rotten(feed, drain, items, tmp_path):
    """A stream of four blocks, one of which has a flipped bit; that block, and what flips the bit back."""
    path = tmp_path / "s"
    drain(feed(items(100), items(100, first=100)).df, path)
    log = Log.open(open_storage(str(path)))
    block = next(iter(log.blocks(1)))
    column = pq.read_metadata(path / block.file).row_group(0).column(1)
    place = column.data_page_offset + column.total_compressed_size // 2

    def flip():
        data = bytearray((path / block.file).read_bytes())
        data[place] ^= 4
        (path / block.file).write_bytes(data)

    flip()
    return path, block, flip


def names_the_block(text, path, block):
    return f"{path / block.file}, partition 1, offsets {block.first} to {block.end - 1}" in text


def test_a_rotten_block_is_named_and_the_others_stay_readable(spark, rotten):
    path, block, _ = rotten
    stream = sl.stream(str(path))
    with pytest.raises(sl.CorruptBlockError) as raised:
        list(stream.tables(1))
    assert names_the_block(raised.value.where, path, block)
    assert "restore" in raised.value.todo
    assert sum(len(t) for t in stream.tables(0)) == stream.offsets()[0]
    assert sum(len(t) for t in stream.tables(1, first=block.end)) == stream.offsets()[1] - block.end
    assert stream.read(spark, since="1970-01-01 00:01:40").count() == 100


def test_an_action_over_a_rotten_block_says_which_one_it_is(spark, rotten):
    path, block, flip_back = rotten
    df = sl.stream(str(path)).read(spark).where("k >= 0")
    for action in (df.collect, df.orderBy("v").toPandas):
        with pytest.raises(sl.CorruptBlockError) as raised:
            action()
        assert names_the_block(raised.value.where, path, block)
        assert "restore" in raised.value.todo
        assert raised.value.__suppress_context__, "Spark's wall of text is left out"
    with pytest.raises(sl.CorruptBlockError) as raised:
        spark.read.format("strandline").load(str(path)).count()
    assert names_the_block(raised.value.where, path, block)
    flip_back()
    assert df.count() == 200


def test_reading_a_stream_with_a_lost_or_cut_block_says_so_at_once(spark, rotten):
    path, block, flip_back = rotten
    flip_back()
    file, stream = path / block.file, sl.stream(str(path))
    df = stream.read(spark)
    data = file.read_bytes()
    file.write_bytes(data[:-10])
    with pytest.raises(sl.CorruptBlockError, match=f"has {len(data) - 10} bytes") as raised:
        stream.read(spark)
    assert names_the_block(raised.value.where, path, block)
    file.unlink()
    with pytest.raises(sl.CorruptBlockError, match="is gone") as raised:
        stream.read(spark)
    assert names_the_block(raised.value.where, path, block)
    with pytest.raises(sl.CorruptBlockError, match="is gone"):
        df.collect()
    assert stream.read(spark, since="1970-01-01 00:01:40").count() == 100
    file.write_bytes(data)
    assert stream.read(spark).count() == 200


def test_a_dataframe_whose_blocks_were_collected_meanwhile_says_to_read_again(spark, rotten):
    path, _, flip_back = rotten
    flip_back()
    stream = sl.stream(str(path))
    df = stream.read(spark)
    stream.truncate(stream.offsets())
    for _ in range(2):
        stream.collect(grace="0 s")
    with pytest.raises(sl.StrandlineError, match="after this DataFrame was made") as raised:
        df.collect()
    assert "read() again" in raised.value.todo


def test_a_streaming_read_stops_at_a_rotten_block_and_goes_on_when_it_is_restored(spark, rotten, replayed, tmp_path):
    path, block, flip_back = rotten
    stream = sl.stream(str(path))
    with pytest.raises(sl.CorruptBlockError) as raised:
        replayed(stream.read_stream(spark), tmp_path / "checkpoint")
    assert names_the_block(raised.value.where, path, block)
    flip_back()
    batches = replayed(stream.read_stream(spark), tmp_path / "checkpoint")
    assert sum(map(len, batches)) == 200


def test_a_stream_fed_by_a_rotten_one_says_so(spark, rotten, drain, tmp_path):
    path, block, _ = rotten
    with pytest.raises(sl.CorruptBlockError) as raised:
        drain(sl.stream(str(path)).read_stream(spark), tmp_path / "copy")
    assert names_the_block(raised.value.where, path, block)
    assert values(tmp_path / "copy") == []
