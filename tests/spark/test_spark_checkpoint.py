"""Spark's checkpoint lost, torn, stale, ahead or another's: each batch is published once, or the start is refused."""

import shutil

import pytest

import strandline as sl
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.storage.storage_url import open_storage
from strandline.log.stream.log import Log

pytestmark = pytest.mark.spark


def numbers(spark):
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).option("startTimestamp", 0)
    return source.load().selectExpr("value % 7 as k", "value as v", "timestamp as at")


def values(path):
    log = Log.open(open_storage(str(path)))
    return sorted(v for p in range(log.spec.late) for t in log.read(p) for v in t.column("v").to_pylist())


@pytest.fixture(scope="module")
def run(eventually):
    """Runs a writer for some more batches; what it had to mend."""

    def go(df, path, batches=2):
        seq = Log.open(open_storage(str(path))).state.seq if path.exists() else -1
        query = sl.persist(df, str(path), key="k", time="at").start(trigger="0 s")
        eventually(lambda: query.progress.get("commit", -1) >= seq + batches or not query.is_active)
        assert query.exception() is None
        query.stop()
        return query.progress.get("checkpoint")

    return go


@pytest.fixture(scope="module")
def ages(spark, run, tmp_path_factory):
    """The same stream at three ages, Spark's checkpoint inside, and another stream."""
    folder = tmp_path_factory.mktemp("ages")
    for age in ("young", "middle", "old"):
        run(numbers(spark), folder / "now")
        shutil.copytree(folder / "now", folder / age)
    run(numbers(spark), folder / "another")
    return folder


@pytest.fixture
def stream(ages, tmp_path):
    return shutil.copytree(ages / "old", tmp_path / "stream")


def newest(folder):
    return max((p for p in folder.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))


def lose_everything(checkpoint, ages):
    shutil.rmtree(checkpoint)


def last_batch(checkpoint):
    """The last one published; Spark may have been stopped before it noted that it was done."""
    return str(Log.open(LocalStorage(checkpoint.parent)).state.writer.batch)


def lose_metadata(checkpoint, ages):
    (checkpoint / "metadata").unlink()


def tear_metadata(checkpoint, ages):
    (checkpoint / "metadata").write_text("")


def lose_offsets(checkpoint, ages):
    shutil.rmtree(checkpoint / "offsets")


def lose_last_offsets(checkpoint, ages):
    (checkpoint / "offsets" / last_batch(checkpoint)).unlink()


def lose_offsets_before_the_last(checkpoint, ages):
    (checkpoint / "offsets" / str(int(last_batch(checkpoint)) - 1)).unlink()


def lose_commits(checkpoint, ages):
    shutil.rmtree(checkpoint / "commits")


def lose_sources(checkpoint, ages):
    shutil.rmtree(checkpoint / "sources")


def tear_sources(checkpoint, ages):
    (checkpoint / "sources" / "0" / "0").write_text("")


def tear_last_offsets(checkpoint, ages):
    file = checkpoint / "offsets" / last_batch(checkpoint)
    file.write_bytes(file.read_bytes()[:40])


def empty_last_offsets(checkpoint, ages):
    (checkpoint / "offsets" / last_batch(checkpoint)).write_bytes(b"")


def tear_last_commit(checkpoint, ages):
    newest(checkpoint / "commits").write_bytes(b"")


def tear_planned_offsets(checkpoint, ages):
    file = checkpoint / "offsets" / last_batch(checkpoint)
    (file.parent / str(int(file.name) + 1)).write_bytes(file.read_bytes()[:40])


def restore_an_older_copy(checkpoint, ages):
    shutil.rmtree(checkpoint)
    shutil.copytree(ages / "young" / "spark_checkpoint", checkpoint)


def take_anothers(checkpoint, ages):
    shutil.rmtree(checkpoint)
    shutil.copytree(ages / "another" / "spark_checkpoint", checkpoint)


MENDED = [
    (lose_everything, "rebuilt"),
    (lose_metadata, "rebuilt"),
    (tear_metadata, "rebuilt"),
    (lose_offsets, "rebuilt"),
    (lose_last_offsets, "rebuilt"),
    (lose_offsets_before_the_last, "rebuilt"),
    (tear_last_offsets, "rebuilt"),
    (empty_last_offsets, "rebuilt"),
    (restore_an_older_copy, "rebuilt"),
    (take_anothers, "rebuilt"),
    (lose_commits, None),
    (tear_last_commit, None),
    (tear_planned_offsets, None),
]


@pytest.mark.parametrize(("damage", "expected"), MENDED, ids=[row[0].__name__ for row in MENDED])
def test_a_damaged_checkpoint_is_mended(damage, expected, spark, stream, ages, run):
    before = values(stream)
    damage(stream / "spark_checkpoint", ages)
    mended = run(numbers(spark), stream)
    assert mended is None if expected is None else mended.startswith(expected)
    found = values(stream)
    assert found == list(range(len(found)))
    assert len(found) > len(before)
    assert run(numbers(spark), stream) is None, "what was mended stays mended"
    assert values(stream) == list(range(len(values(stream))))


@pytest.mark.parametrize("age", ["young", "middle"])
def test_a_stream_restored_from_an_older_copy_winds_spark_back(age, spark, ages, run, tmp_path):
    path = shutil.copytree(ages / age, tmp_path / "stream")
    shutil.rmtree(path / "spark_checkpoint")
    shutil.copytree(ages / "old" / "spark_checkpoint", path / "spark_checkpoint")
    before = len(values(path))
    assert "wound Spark's checkpoint back" in run(numbers(spark), path)
    found = values(path)
    assert found == list(range(len(found)))
    assert len(found) > before


def test_a_stream_that_was_deleted_begins_again(spark, ages, run, tmp_path):
    path = tmp_path / "stream"
    shutil.copytree(ages / "old" / "spark_checkpoint", path / "spark_checkpoint")
    (path / "stream.json").write_bytes((ages / "old" / "stream.json").read_bytes())
    assert "wound" in run(numbers(spark), path)
    assert values(path) == list(range(len(values(path))))


@pytest.mark.parametrize(
    "damage",
    [
        lose_everything,
        pytest.param(lose_sources, marks=pytest.mark.long),
        pytest.param(tear_sources, marks=pytest.mark.long),
    ],
    ids=lambda damage: damage.__name__,
)
def test_rate_goes_on_without_its_memory_of_when_it_began(damage, spark, ages, run, tmp_path):
    rate = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    df = rate.selectExpr("value % 7 as k", "value as v", "timestamp as at")
    run(df, tmp_path / "s", batches=3)
    damage(tmp_path / "s" / "spark_checkpoint", ages)
    run(df, tmp_path / "s", batches=3)
    found = values(tmp_path / "s")
    assert found == list(range(len(found)))
    assert found


# ---------------------------------------------------------------------- sources whose offsets mean nothing alone


def lose_the_list_of_files(checkpoint, ages):
    newest(checkpoint / "sources" / "0").unlink()


REFUSED = [lose_everything, lose_metadata, tear_last_offsets, take_anothers, lose_sources, lose_the_list_of_files]


@pytest.mark.parametrize("damage", REFUSED, ids=[damage.__name__ for damage in REFUSED])
def test_files_cannot_go_on_without_the_checkpoint_and_the_start_says_so(
    damage, ages, feed, drain, content, items, tmp_path
):
    source = feed(items(10), items(10, first=10))
    path = tmp_path / "s"
    drain(source.df, path)
    copy = shutil.copytree(path / "spark_checkpoint", tmp_path / "copy")
    source.add(items(10, first=20))
    damage(path / "spark_checkpoint", ages)
    with pytest.raises(sl.SparkCheckpointError, match="cannot be rebuilt: the offsets of its sources") as raised:
        drain(source.df, path)
    assert raised.value.where == str(path / "spark_checkpoint")
    assert "restore that folder from a copy" in raised.value.todo
    assert sum(map(len, content(path).values())) == 20
    shutil.rmtree(path / "spark_checkpoint", ignore_errors=True)
    shutil.copytree(copy, path / "spark_checkpoint")
    drain(source.df, path)
    found = [row["v"] for rows in content(path).values() for row in rows]
    assert sorted(found) == sorted(f"v{i}" for i in range(30))


def test_files_are_wound_back_with_the_stream(feed, drain, content, items, tmp_path):
    source = feed(items(10))
    path = tmp_path / "s"
    drain(source.df, path)
    shutil.copytree(path, tmp_path / "older")
    for b in (1, 2, 3):
        source.add(items(10, first=10 * b))
    drain(source.df, path)
    for folder in ("commits", "blocks"):
        shutil.rmtree(path / folder)
        shutil.copytree(tmp_path / "older" / folder, path / folder)
    progress = drain(source.df, path)
    assert "wound" in progress["checkpoint"]
    found = [row["v"] for rows in content(path).values() for row in rows]
    assert sorted(found) == sorted(f"v{i}" for i in range(40))


def test_files_go_on_when_spark_has_folded_its_list_of_them(feed, drain, content, items, tmp_path):
    source = feed(*[items(2, first=2 * b) for b in range(10)])
    drain(source.df, tmp_path / "s")
    assert [p.name for p in (tmp_path / "s" / "spark_checkpoint" / "sources" / "0").glob("*.compact")] == ["9.compact"]
    source.add(items(2, first=20))
    drain(source.df, tmp_path / "s")
    found = [row["v"] for rows in content(tmp_path / "s").values() for row in rows]
    assert sorted(found) == sorted(f"v{i}" for i in range(22))


def test_a_stateful_operator_goes_on_with_its_checkpoint_and_not_without(feed, drain, content, items, tmp_path):
    source = feed(items(10), items(15))
    df, path = source.df.dropDuplicates(["v"]), tmp_path / "s"
    drain(df, path)
    source.add(items(20))
    drain(df, path)
    found = [row["v"] for rows in content(path).values() for row in rows]
    assert sorted(found) == sorted(f"v{i}" for i in range(20))
    shutil.rmtree(path / "spark_checkpoint")
    with pytest.raises(sl.SparkCheckpointError, match="a stateful operator before the stream"):
        drain(df, path)


def test_another_source_is_not_fed_with_the_offsets_of_the_old_one(spark, ages, feed, items, tmp_path):
    path = shutil.copytree(ages / "old", tmp_path / "s")
    shutil.rmtree(path / "spark_checkpoint")
    rate = spark.readStream.format("rate").load().selectExpr("value % 7 as k", "value as v", "timestamp as at")
    with pytest.raises(sl.SparkCheckpointError, match="written from rate-micro-batch, this query reads rate"):
        sl.persist(rate, str(path), key="k", time="at").start()


def test_a_source_of_the_users_own_can_be_started_again(spark, run, tmp_path):
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    class Range(InputPartition):
        def __init__(self, first, end):
            self.first, self.end = first, end

    class Reader(DataSourceStreamReader):
        def initialOffset(self):
            return {"n": 0}

        def latestOffset(self, start, limit):
            return {"n": start["n"] + 5}

        def partitions(self, start, end):
            return [Range(start["n"], end["n"])]

        def read(self, partition):
            for i in range(partition.first, partition.end):
                yield (i % 3, i, i)

    class Counter(DataSource):
        @classmethod
        def name(cls):
            return "counter"

        def schema(self):
            return "k long, v long, at long"

        def streamReader(self, schema):
            return Reader()

    spark.dataSource.register(Counter)
    df = spark.readStream.format("counter").load()
    run(df, tmp_path / "s")
    run(df, tmp_path / "s")
    found = values(tmp_path / "s")
    assert found == list(range(len(found)))
    shutil.rmtree(tmp_path / "s" / "spark_checkpoint")
    with pytest.raises(sl.SparkCheckpointError, match="counter"):
        sl.persist(df, str(tmp_path / "s"), key="k", time="at").start()


def test_two_sources_of_which_one_is_empty_yet(spark, feed, drain, content, items, tmp_path):
    full, empty = feed(items(10)), feed(name="empty")
    df, path = full.df.union(empty.df), tmp_path / "s"
    drain(df, path)
    full.add(items(10, first=10))
    drain(df, path)
    empty.add(items(10, first=20))
    drain(df, path)
    found = [row["v"] for rows in content(path).values() for row in rows]
    assert sorted(found) == sorted(f"v{i}" for i in range(30))
