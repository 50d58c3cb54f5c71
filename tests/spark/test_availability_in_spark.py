"""An operator with a bound in Spark: an input falls silent or cannot be read, results go on, and are corrected."""

from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.clock import SYSTEM_CLOCK, stopwatch_s
from strandline.errors import StorageError
from strandline.log.reading.tentative_results import changes
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.spark.query.following_run import FollowingRun
from tests.support.machine import patience
from tests.support.operator_streams import bits, published_results
from tests.support.sensors import PARTITIONS, Sensors
from tests.support.with_tentative import with_tentative

BOUND_S = 1.0


def outage(path: Path) -> Any:
    return Log.open(LocalStorage(path)).state.outage


def kinds(path: Path) -> list[str]:
    log = Log.open(LocalStorage(path))
    return [kind for table in changes(log, 0) for kind in table.column("_kind").to_pylist()]


@pytest.mark.long
def test_results_go_on_without_an_input_and_are_those_of_a_run_without_failures_in_the_end(
    spark: Any, tmp_path: Path, eventually: Any, replayed: Any
) -> None:
    sensors, results = Sensors(tmp_path), tmp_path / "results"
    query = sensors.counted().availability("1 s").start(spark, str(results), trigger="100 ms")
    try:
        for number in range(3):
            sensors.write(number, 0, 25)
        eventually(lambda: query.progress.get("results") and query.progress["state"] == "STABLE")
        assert kinds(results) == ["stable"] * 2
        began_s = stopwatch_s()
        for number in (0, 2):  # the south falls silent
            sensors.write(number, 25, 45)
        eventually(lambda: query.progress["state"] == "UP_FAILURE" and query.progress["tentative"])
        waited_s = stopwatch_s() - began_s
        assert BOUND_S < waited_s < BOUND_S + patience(30), "the bound runs out by itself, though nothing comes"
        assert query.progress["missing"] == ["south"]
        assert query.progress["tentative"] == 2 * PARTITIONS
        assert kinds(results) == ["stable"] * 2 + ["tentative"] * 2
        sensors.write(0, 45, 60)  # guesses go on
        sensors.write(2, 45, 60)
        eventually(lambda: query.progress["tentative"] == 4 * PARTITIONS)
        shown = [
            row for table in with_tentative(Log.open(LocalStorage(results)), 0, ["n"]) for row in table.to_pylist()
        ]
        assert [(row["n"], row["_tentative"]) for row in shown] == [(30, False)] * 2 + [(25, True)] + [(20, True)] * 3
        stream = sl.stream(str(results))
        rows = stream.read(spark, tentative=True).where("k = 0").select("n", "_tentative").collect()
        assert sorted(map(tuple, rows)) == [(20, True)] * 3 + [(25, True)] + [(30, False)] * 2
        assert stream.read(spark).count() == 2 * PARTITIONS
        told_of = stream.describe().operator.outage  # type: ignore[union-attr]
        assert told_of is not None
        assert (told_of["state"], told_of["missing"]) == ("UP_FAILURE", ["south"])
        sensors.write(1, 25, 60)
        eventually(lambda: query.progress["state"] == "STABLE")
        assert query.progress["tentative"] == 0
        assert query.progress["missing"] == []
        told = kinds(results)
        assert told[:6] == ["stable"] * 2 + ["tentative"] * 4
        assert [kind for kind in told if kind in ("undo", "rec_done")] == ["undo", "rec_done"]
        assert told.count("stable") == 6
        changes_ = [row for batch in replayed(stream.read_stream(spark, tentative=True)) for row in batch]
        changes_.sort(key=lambda row: (row["_partition"], row["_offset"]))
        assert [row["_kind"] for row in changes_ if row["_partition"] == 0] == told
        assert all(row["n"] is None for row in changes_ if row["_kind"] in ("undo", "rec_done"))
        assert stream.read(spark, tentative=True).where("_tentative").count() == 0
        assert stream.read(spark, tentative=True).count() == 6 * PARTITIONS
    finally:
        query.stop()
    sensors.counted().start(spark, str(tmp_path / "calm"), trigger="available-now").await_termination()
    found, right = (Log.open(LocalStorage(tmp_path / name)) for name in ("results", "calm"))
    for p in range(PARTITIONS):
        assert bits(published_results(found, p)).equals(bits(published_results(right, p)))


@pytest.mark.long
def test_an_input_that_cannot_be_read_is_missing_and_no_end_of_the_query(
    spark: Any, tmp_path: Path, eventually: Any
) -> None:
    sensors, results = Sensors(tmp_path), tmp_path / "results"
    operator = sensors.counted().availability("1 s", failing="delay")
    query = operator.start(spark, str(results), trigger="100 ms")
    south, hidden = sensors.paths[1], tmp_path / "hidden"
    try:
        for number in range(3):
            sensors.write(number, 0, 25)
        eventually(lambda: query.progress.get("results") and query.progress["state"] == "STABLE")
        south.rename(hidden)
        south.symlink_to(south)  # to the driver and to tasks: too many levels of links
        with pytest.raises(StorageError):
            Log.open(LocalStorage(south))
        for number in (0, 2):
            sensors.write(number, 25, 45)
        eventually(lambda: query.progress["state"] == "UP_FAILURE" and query.progress["tentative"])
        assert query.progress["missing"] == ["south"]
        assert query.is_active
        query.stop()
        with pytest.raises(StorageError, match="symbolic links") as caught:
            operator.start(spark, str(tmp_path / "others"))
        assert str(south) in caught.value.where, "one that has never worked has to see its inputs"
        south.unlink()  # as if nothing was mounted there
        query = operator.start(spark, str(results), trigger="100 ms")
        for number in (0, 2):
            sensors.write(number, 45, 55)
        eventually(lambda: query.progress["tentative"] == 3 * PARTITIONS)
        assert not south.exists(), "and nobody has left anything there"
        hidden.rename(south)
        sensors.write(1, 25, 55)
        eventually(lambda: query.progress["state"] == "STABLE")
        assert query.progress["tentative"] == 0
    finally:
        query.stop()
    # Without a bound, the same operator goes on.
    for number in range(3):
        sensors.write(number, 55, 60)
    sensors.counted().start(spark, str(results), trigger="available-now").await_termination()
    assert outage(results).state == "STABLE"
    assert kinds(results).count("stable") == 6


@pytest.mark.long
def test_a_query_that_is_stopped_in_the_middle_of_a_failure_goes_on_where_it_stood(
    spark: Any, tmp_path: Path, eventually: Any
) -> None:
    sensors, results = Sensors(tmp_path), tmp_path / "results"

    def started() -> Any:
        return sensors.counted().availability("1 s").start(spark, str(results), trigger="100 ms")

    query = started()
    for number in range(3):
        sensors.write(number, 0, 25)
    eventually(lambda: query.progress.get("results") and query.progress["state"] == "STABLE")
    sensors.write(0, 25, 45)
    sensors.write(1, 25, 45)
    eventually(lambda: query.progress["tentative"])
    query.stop()
    query = started()
    try:
        assert query.progress["state"] == "UP_FAILURE"
        assert query.progress["missing"] == ["west"]
        sensors.write(0, 45, 60)
        sensors.write(1, 45, 60)
        eventually(lambda: query.progress["tentative"] == 4 * PARTITIONS)
        query.stop()
        sensors.write(2, 25, 60)
        query = started()
        eventually(lambda: query.progress["state"] == "STABLE")
        assert kinds(results).count("stable") == 6
    finally:
        query.stop()


@pytest.mark.long
def test_an_idle_operator_with_a_bound_seldom_looks_and_publishes_nothing(
    spark: Any, tmp_path: Path, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    turn = FollowingRun._turn

    def counting(self: FollowingRun) -> None:
        looks.append(stopwatch_s())
        turn(self)

    monkeypatch.setattr(FollowingRun, "_turn", counting)
    sensors, results = Sensors(tmp_path), tmp_path / "results"
    query = sensors.counted().availability("1 s").start(spark, str(results))
    try:
        for number in range(3):
            sensors.write(number, 0, 25)
        eventually(lambda: query.progress.get("results"))
        SYSTEM_CLOCK.sleep(7.0)  # looks are seldom by then
        seq, before, began_s = Log.open(LocalStorage(results)).state.seq, len(looks), stopwatch_s()
        SYSTEM_CLOCK.sleep(5.0)
        seconds = stopwatch_s() - began_s
        assert 0 < len(looks) - before <= 5 * seconds, "four a second, when many have been in vain"
        assert Log.open(LocalStorage(results)).state.seq == seq, "nothing has happened, and it was published"
    finally:
        query.stop()


@pytest.mark.long
def test_guesses_and_corrections_go_through_a_chain_and_one_without_a_bound_says_what_it_waits_for(
    spark: Any, tmp_path: Path, eventually: Any
) -> None:
    sensors = Sensors(tmp_path)
    paths = {name: tmp_path / name for name in ("first", "other", "second", "patient")}
    north, south, west = (sl.stream(str(path)) for path in sensors.paths)

    def totals(input_: Any) -> Any:
        return input_.window(sl.time_window(10)).aggregate(many=sl.sum("n"), results=sl.count_all())

    def counts(input_: Any) -> Any:
        return input_.window(sl.time_window(5)).aggregate(n=sl.count_all())

    queries = {}

    def start(name: str, operator: Any) -> Any:
        queries[name] = operator.start(spark, str(paths[name]), trigger="200 ms")
        return sl.stream(str(paths[name]))

    try:
        first = start("first", counts(sl.union(north, south)).availability("1 s"))
        other = start("other", counts(west))
        # Longer, or a busy machine on which "first" takes a second more than "other" would be a failure, too.
        start("second", totals(sl.union(first, other)).availability("4 s"))
        start("patient", totals(first))
        for number in range(3):
            sensors.write(number, 0, 25)
        eventually(lambda: all(query.progress.get("results") for query in queries.values()))
        for number in (0, 2):  # the south falls silent
            sensors.write(number, 25, 45)
        eventually(lambda: queries["second"].progress["tentative"])
        missing = {"first": ["south"], "second": ["first"]}
        eventually(lambda: all(queries[name].progress["missing"] == those for name, those in missing.items()))
        eventually(lambda: "waits_for" in queries["patient"].progress)
        told = queries["patient"].progress["waits_for"]
        assert "waits for first: its boundary is 25 and" in told
        assert "only tentative" in told
        sensors.write(1, 25, 45)
        for query in (queries["first"], queries["second"]):
            eventually(lambda: query.progress["state"] == "STABLE")  # noqa: B023
        eventually(lambda: "waits_for" not in queries["patient"].progress)
        shown = [row for table in changes(Log.open(LocalStorage(paths["second"])), 0) for row in table.to_pylist()]
        assert [row["_kind"] for row in shown].count("rec_done") == 1
        assert shown[0]["_kind"] == "stable"
    finally:
        for query in queries.values():
            query.stop()
    totals(sl.union(first, other)).start(spark, str(tmp_path / "calm"), trigger="available-now").await_termination()
    found, calm = (Log.open(LocalStorage(path)) for path in (paths["second"], tmp_path / "calm"))
    for p in range(PARTITIONS):
        assert bits(published_results(found, p)).equals(bits(published_results(calm, p)))
        assert len(published_results(calm, p)) >= 4
