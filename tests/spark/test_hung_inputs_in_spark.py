"""An input whose store neither answers nor fails, in Spark: the others keep the bound, and all is corrected later."""

import signal
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.clock import stopwatch_s
from strandline.errors import StorageError
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.storage.storage_url import open_storage
from strandline.log.stream import quiet
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import commit_key
from tests.support.available_case import hung
from tests.support.items import append_items, item_spec
from tests.support.machine import patience
from tests.support.operator_streams import bits, published_results
from tests.support.sensors import PARTITIONS, Sensors
from tests.unit.conftest import s3_server

BOUND_S = 3.0


def counted(*streams: sl.Stream) -> Any:
    union = sl.union(*streams)
    return union.window(sl.time_window(10)).aggregate(n=sl.count_all(), mean=sl.avg("v"), total=sl.sum("v"))


class Timed:
    """How long it took until something was so."""

    def __init__(self, eventually: Callable[..., None]) -> None:
        self._eventually = eventually

    def until(self, what: str, condition: Callable[[], Any]) -> float:
        began_s = stopwatch_s()
        self._eventually(condition)
        took_s = stopwatch_s() - began_s
        print(f"{what}: {took_s:.2f} s")
        return took_s


def require_results_of_a_calm_run(spark: Any, operator: Any, folder: Path) -> None:
    operator.start(spark, str(folder / "calm"), trigger="available-now").await_termination()
    found, calm = (Log.open(LocalStorage(folder / name)) for name in ("results", "calm"))
    for p in range(PARTITIONS):
        expected = published_results(calm, p)
        assert len(expected) >= 5
        assert bits(published_results(found, p)).equals(bits(expected))


@pytest.mark.long
def test_a_mount_that_hangs_is_a_missing_input_and_an_operator_starts_without_it(
    spark: Any, tmp_path: Path, eventually: Any
) -> None:
    """Whoever opens the next commit of the south, or one of its blocks, waits for ever."""
    sensors, timed = Sensors(tmp_path), Timed(eventually)
    operator = counted(*(sl.stream(str(path)) for path in sensors.paths))
    bounded = operator.availability("3 s")
    query = bounded.start(spark, str(tmp_path / "results"), trigger="100 ms")
    try:
        for number in range(3):
            sensors.write(number, 0, 25)
        eventually(lambda: query.progress.get("results") and query.progress["state"] == "STABLE")
        south = sensors.logs[1]
        with hung(sensors.paths[1] / commit_key(south.state.seq + 1)):
            for number in (0, 2):
                sensors.write(number, 25, 45)
            took_s = timed.until("the first guess", lambda: query.progress["tentative"] == 2 * PARTITIONS)
            assert BOUND_S - 0.5 < took_s < BOUND_S + patience(30)
            assert query.progress["state"] == "UP_FAILURE"
            assert query.progress["missing"] == ["south"]
            for number in (0, 2):
                sensors.write(number, 45, 55)
            timed.until("the next one", lambda: query.progress["tentative"] == 3 * PARTITIONS)
            query.stop()
            with pytest.raises(StorageError, match="the store has not answered for"):
                bounded.start(spark, str(tmp_path / "others"))  # which has never worked
            began_s = stopwatch_s()
            query = bounded.start(spark, str(tmp_path / "results"), trigger="100 ms")
            print(f"a start without it: {stopwatch_s() - began_s:.2f} s")
            for number in (0, 2):
                sensors.write(number, 55, 60)
            timed.until("a guess after the start", lambda: query.progress["tentative"] == 4 * PARTITIONS)
            assert query.progress["missing"] == ["south"]
        sensors.write(1, 25, 60)
        timed.until("corrected", lambda: query.progress["state"] == "STABLE")
        assert query.progress["tentative"] == 0
        for number in range(3):
            sensors.write(number, 60, 65)
        eventually(lambda: query.progress["waiting"] == 0)
        # A block is met by tasks, when the driver has seen all that it looks at.
        first = south.state.ends
        append_items(south, {p: [(p, 100 + t, t) for t in range(65, 85)] for p in range(PARTITIONS)})
        (block, *_) = (b for b in south.blocks(0, first[0]))
        with hung(sensors.paths[1] / block.file):
            quiet.pass_time(south, 85, "run")
            for number in (0, 2):
                sensors.write(number, 65, 85)
            timed.until("the first guess without a block", lambda: query.progress["tentative"] == 2 * PARTITIONS)
            assert query.progress["missing"] == ["south"]
        timed.until("corrected", lambda: query.progress["state"] == "STABLE")
    finally:
        query.stop()
    require_results_of_a_calm_run(spark, operator, tmp_path)


@pytest.mark.long
def test_an_object_store_that_is_frozen_is_a_missing_input(spark: Any, tmp_path: Path, eventually: Any) -> None:
    sensors, timed = Sensors(tmp_path, ("north", "west")), Timed(eventually)
    with s3_server() as (endpoint, server):
        url, region = f"s3://tests/{uuid.uuid4().hex}/south", {"region_name": "us-east-1"}
        options = {"key": "tests", "secret": "tests", "endpoint_url": endpoint, "client_kwargs": region}
        south = Log.create(open_storage(url, **options), item_spec(PARTITIONS, name=f"south-{uuid.uuid4().hex}"))

        def write(first: int, end: int) -> None:
            append_items(south, {p: [(p, 500 + t, t) for t in range(first, end)] for p in range(PARTITIONS)})
            quiet.pass_time(south, end, "run")

        streams = [sl.stream(str(path)) for path in sensors.paths]
        operator = counted(streams[0], sl.stream(url, storage_options=options), streams[1])
        query = operator.availability("3 s").start(spark, str(tmp_path / "results"), trigger="100 ms")
        try:
            for number in range(2):
                sensors.write(number, 0, 25)
            write(0, 25)
            eventually(lambda: query.progress.get("results") and query.progress["state"] == "STABLE")
            server.send_signal(signal.SIGSTOP)
            for number in range(2):
                sensors.write(number, 25, 45)
            took_s = timed.until("the first guess", lambda: query.progress["tentative"] == 2 * PARTITIONS)
            assert BOUND_S - 0.5 < took_s < BOUND_S + patience(30)
            assert query.progress["missing"] == ["south"]
            for number in range(2):
                sensors.write(number, 45, 60)
            timed.until("the next ones", lambda: query.progress["tentative"] >= 3 * PARTITIONS)
            server.send_signal(signal.SIGCONT)
            write(25, 60)
            timed.until("corrected", lambda: query.progress["state"] == "STABLE")
            assert (query.progress["tentative"], query.progress["missing"]) == (0, [])
        finally:
            server.send_signal(signal.SIGCONT)
            query.stop()
        require_results_of_a_calm_run(spark, operator, tmp_path)
