"""Replicas as a source of Spark: one vanishes while a query reads, one is back, a batch is repeated from another."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.errors import StreamMismatchError
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream import quiet
from strandline.log.stream.log import Log
from strandline.log.upkeep import consumer_registry
from tests.support.items import append_items, item_spec

pytestmark = [pytest.mark.spark, pytest.mark.long]

PARTITIONS = 2


class Replicated:
    """Two streams that are written by hand, and an operator over both that is started as often as one likes."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.inputs = [
            Log.create(LocalStorage(folder / name), item_spec(PARTITIONS, name=f"{name}-{folder.name}"))
            for name in ("north", "south")
        ]
        self.queries: dict[str, Any] = {}

    def write(self, first: int, end: int, numbers: tuple[int, ...] = (0, 1)) -> None:
        """A tuple for each time and partition, of some of the inputs."""
        for number in numbers:
            log = self.inputs[number]
            append_items(log, {p: [(p, 100 * number + t, t) for t in range(first, end)] for p in range(PARTITIONS)})
            quiet.pass_time(log, end, "run")

    def operator(self) -> Any:
        north, south = (sl.stream(str(self.folder / name)) for name in ("north", "south"))
        return sl.union(north, south).window(sl.time_window(10)).aggregate(n=sl.count_all(), total=sl.sum("v"))

    def start(self, name: str) -> None:
        operator = self.operator().availability("1 s")
        self.queries[name] = operator.start(self.spark, str(self.folder / name), trigger="100 ms")

    def lose(self, name: str) -> None:
        """Its writer ends, and its disk is gone."""
        self.queries.pop(name).stop()
        shutil.rmtree(self.folder / name)

    def replicas(self, patience: str = "1 s") -> Any:
        return sl.replicas(*(str(self.folder / name) for name in ("one", "other")), patience=patience)

    def right(self) -> list[tuple[Any, ...]]:
        """The results of the same operator without replicas, by partition and number."""
        path = self.folder / "calm"
        self.operator().start(self.spark, str(path), trigger="available-now").await_termination()
        return ordered(sl.stream(str(path)).read(self.spark, positions=True).collect(), "_offset")


def ordered(rows: list[Any], number: str) -> list[tuple[Any, ...]]:
    """Rows as tuples, in the order of their partitions and places, without the places."""
    ranked = sorted(rows, key=lambda row: (row["_partition"], row[number]))
    return [tuple(value for name, value in row.asDict().items() if name != number) for row in ranked]


@pytest.fixture
def replicated(spark: Any, tmp_path: Path) -> Iterator[Replicated]:
    made = Replicated(spark, tmp_path)
    yield made
    for query in made.queries.values():
        query.stop()


def follow(df: Any, checkpoint: Path, batches: dict[int, list[Any]]) -> Any:
    """A query that notes the rows of each batch."""
    writer = df.writeStream.foreachBatch(lambda batch, number: batches.update({number: batch.collect()}))
    return writer.option("checkpointLocation", str(checkpoint)).trigger(processingTime="100 milliseconds").start()


def rows_in(batches: dict[int, list[Any]]) -> list[Any]:
    return [row for _, rows in sorted(batches.items()) for row in rows]


def test_a_replica_vanishes_while_a_query_reads_and_every_result_comes_once(
    replicated: Replicated, spark: Any, tmp_path: Path, eventually: Any
) -> None:
    replicated.write(0, 25)
    replicated.start("one")
    eventually((tmp_path / "one" / "stream.json").exists)
    replicated.start("other")
    batches: dict[int, list[Any]] = {}

    def started() -> Any:
        df = replicated.replicas().read_stream(spark, positions=True, consumer="reader", max_tuples_per_batch=3)
        return follow(df, tmp_path / "checkpoint", batches)

    query = started()
    eventually(lambda: len(rows_in(batches)) == 2 * PARTITIONS)
    replicated.lose("one")
    replicated.write(25, 65)
    eventually(lambda: len(rows_in(batches)) == 6 * PARTITIONS)
    log = Log.open(LocalStorage(tmp_path / "other"))
    assert [consumer.name for consumer in consumer_registry.consumers(log)] == ["reader"]

    replicated.start("one")  # it begins anew, and has the same results in the end
    eventually((tmp_path / "one" / "stream.json").exists)
    eventually(lambda: [s.results for s in replicated.replicas().describe()] == [6 * PARTITIONS] * 2)
    eventually(lambda: last_done(tmp_path) == max(batches))
    query.stop()

    # Spark repeats a batch that it does not know to be done: this time from the replica that is new.
    last = last_done(tmp_path)
    commit_of(tmp_path, last).unlink()
    replicated.lose("other")
    before = batches.pop(last)
    query = started()
    eventually(lambda: last in batches)
    assert batches[last] == before
    replicated.write(65, 85)
    eventually(lambda: len(rows_in(batches)) == 8 * PARTITIONS)
    query.stop()

    found = rows_in(batches)
    assert max(map(len, batches.values())) <= 3
    places = [(row["_partition"], row["_result"]) for row in found]
    assert sorted(places) == [(p, n) for p in range(PARTITIONS) for n in range(8)]
    assert ordered(found, "_result") == replicated.right()


def commit_of(folder: Path, batch: int) -> Path:
    """Where Spark notes that a batch is done: a moment after it is, and only the last one may be missing."""
    return folder / "checkpoint" / "commits" / str(batch)


def last_done(folder: Path) -> int:
    """The last batch that Spark knows to be done."""
    return max((int(file.name) for file in commit_of(folder, 0).parent.glob("[0-9]*")), default=-1)


def folded(rows: list[Any]) -> tuple[list[tuple[Any, ...]], list[Any]]:
    """What is stable, and what is tentative, after all that was told."""
    stable, guesses = [], []
    for row in rows:
        if row["_kind"] == "stable":
            stable.append(row)
        elif row["_kind"] == "tentative":
            guesses.append(row)
        elif row["_kind"] == "undo":
            guesses = [guess for guess in guesses if guess["_partition"] != row["_partition"]]
    return [row[:-3] + row[-2:-1] for row in sorted(stable, key=lambda r: (r["_partition"], r["_result"]))], guesses


def test_guesses_go_on_from_another_replica_and_are_undone_whichever_corrects_them(
    replicated: Replicated, spark: Any, tmp_path: Path, eventually: Any
) -> None:
    replicated.write(0, 25)
    replicated.start("one")
    eventually((tmp_path / "one" / "stream.json").exists)
    replicated.start("other")
    batches: dict[int, list[Any]] = {}

    def started() -> Any:
        return follow(replicated.replicas().read_stream(spark, tentative=True), tmp_path / "checkpoint", batches)

    query = started()
    eventually(lambda: len(rows_in(batches)) == 2 * PARTITIONS)
    replicated.write(25, 45, numbers=(0,))  # the south falls silent
    eventually(lambda: len(folded(rows_in(batches))[1]) == 2 * PARTITIONS)
    replicated.lose("one")
    replicated.write(45, 65, numbers=(0,))
    eventually(lambda: {row["window_end"] for row in folded(rows_in(batches))[1]} >= {50, 60})
    eventually(lambda: last_done(tmp_path) == max(batches))
    query.stop()

    last = last_done(tmp_path)
    commit_of(tmp_path, last).unlink()
    query = started()  # the batch is repeated, and what counts is told anew behind it
    eventually(lambda: max(batches) > last)
    assert [row["_kind"] for row in batches[last]] in ([], ["undo"] * PARTITIONS)
    assert {row["window_end"] for row in folded(rows_in(batches))[1]} == {30, 40, 50, 60}
    replicated.write(25, 65, numbers=(1,))
    eventually(lambda: [row["_kind"] for row in rows_in(batches)].count("rec_done") == PARTITIONS)
    query.stop()
    stable, guesses = folded(rows_in(batches))
    assert guesses == []
    assert stable == replicated.right()


def test_a_query_begins_where_it_is_told_to_and_its_checkpoint_is_good_for_these_replicas_only(
    replicated: Replicated, spark: Any, tmp_path: Path, replayed: Any
) -> None:
    replicated.write(0, 65)
    for name in ("one", "other"):
        replicated.operator().start(spark, str(tmp_path / name), trigger="available-now").await_termination()
    replicas = replicated.replicas()
    assert replicas.read_stream(spark).columns == ["k", "window_start", "window_end", "n", "total"]
    batches = replayed(replicas.read_stream(spark, start=35, max_tuples_per_batch=2), tmp_path / "checkpoint")
    assert [len(rows) for rows in batches] == [2, 2, 2]
    assert {row["window_end"] for rows in batches for row in rows} == {40, 50, 60}
    by_format = spark.readStream.format("strandline").option("replicas", f'["{tmp_path}/one", "{tmp_path}/other"]')
    assert [len(rows) for rows in replayed(by_format.load())] == [6 * PARTITIONS]
    # A stream of them, for operators.
    copy = sl.source(replicas.read_stream(spark), str(tmp_path / "copy"), key="k", time="window_end", lateness=100)
    by_two = copy.window(sl.count_window(2)).aggregate(total=sl.sum("n"))
    by_two.start(spark, str(tmp_path / "by-two"), trigger="available-now").await_termination()
    assert [row["total"] for row in sl.stream(str(tmp_path / "by-two")).read(spark).collect()] == [40] * 3 * PARTITIONS
    with pytest.raises(StreamMismatchError, match="was replaced by another"):
        replayed(sl.stream(str(tmp_path / "one")).read_stream(spark), tmp_path / "checkpoint")


def over(stream: Any) -> Any:
    """An operator over replicas, or over one of them."""
    return stream.window(sl.time_window(20)).aggregate(total=sl.sum("n"), many=sl.count_all())


def test_an_operator_over_replicas_goes_on_when_one_vanishes_and_when_it_is_started_again(
    replicated: Replicated, spark: Any, tmp_path: Path, eventually: Any
) -> None:
    replicated.write(0, 45)
    for name in ("one", "other"):
        replicated.start(name)
        eventually((tmp_path / name / "stream.json").exists)

    def started() -> Any:
        return over(replicated.replicas()).start(spark, str(tmp_path / "behind"), trigger="100 ms")

    def results(name: str = "behind") -> list[tuple[Any, ...]]:
        return ordered(sl.stream(str(tmp_path / name)).read(spark, positions=True).collect(), "_offset")

    query = started()
    eventually(lambda: len(results()) == 2 * PARTITIONS)
    for name in ("one", "other"):
        log = Log.open(LocalStorage(tmp_path / name))
        assert [consumer.text for consumer in consumer_registry.consumers(log)]
    replicated.lose("one")
    replicated.write(45, 85)
    eventually(lambda: len(results()) == 4 * PARTITIONS)
    query.stop()

    replicated.start("one")  # it begins anew
    eventually((tmp_path / "one" / "stream.json").exists)
    eventually(lambda: len({s.results for s in replicated.replicas().describe()}) == 1)
    replicated.lose("other")
    query = started()
    replicated.write(85, 125)
    eventually(lambda: len(results()) == 6 * PARTITIONS)
    query.stop()

    replicated.right()
    over(sl.stream(str(tmp_path / "calm"))).start(
        spark, str(tmp_path / "calm-behind"), trigger="available-now"
    ).await_termination()
    assert results() == results("calm-behind")


def test_guesses_of_replicas_go_through_an_operator_with_a_bound_whichever_of_them_vanishes(
    replicated: Replicated, spark: Any, tmp_path: Path, eventually: Any
) -> None:
    replicated.write(0, 45)
    for name in ("one", "other"):
        replicated.start(name)
        eventually((tmp_path / name / "stream.json").exists)

    def results(name: str = "behind") -> list[tuple[Any, ...]]:
        return ordered(sl.stream(str(tmp_path / name)).read(spark, positions=True).collect(), "_offset")

    bounded = over(replicated.replicas()).availability("2 s")
    query = bounded.start(spark, str(tmp_path / "behind"), trigger="100 ms")
    replicated.queries["behind"] = query
    eventually(lambda: query.progress.get("waiting") == 0 and len(results()) == 2 * PARTITIONS)
    assert query.progress["state"] == "STABLE"
    replicated.write(45, 85, numbers=(0,))  # the south falls silent: both replicas guess
    eventually(lambda: query.progress["state"] == "UP_FAILURE" and query.progress["tentative"] == 2 * PARTITIONS)
    replicated.lose("one")
    replicated.write(85, 125, numbers=(0,))
    eventually(lambda: query.progress["tentative"] == 4 * PARTITIONS)
    assert len(results()) == 2 * PARTITIONS
    replicated.write(45, 125, numbers=(1,))
    eventually(lambda: query.progress["state"] == "STABLE" and len(results()) == 6 * PARTITIONS)
    assert query.progress["tentative"] == 0
    assert sl.stream(str(tmp_path / "behind")).read(spark, tentative=True).where("_tentative").count() == 0
    replicated.right()
    calm = over(sl.stream(str(tmp_path / "calm")))
    calm.start(spark, str(tmp_path / "calm-behind"), trigger="available-now").await_termination()
    assert results() == results("calm-behind")
