"""A heartbeat promises no more than what Spark has looked for: tuples that come while Spark is asked are not late."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from strandline.clock import ManualClock
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.spark.entry.batch_writer import BatchWriter
from strandline.spark.entry.heartbeat import Heartbeat
from strandline.spark.session.place import Place
from tests.support.items import item_spec

SECOND_US = 1_000_000
BEGAN_US = 1_767_268_800 * SECOND_US
LATENESS_US = 2 * SECOND_US


@dataclass
class SlowSpark:
    """Spark's query: to ask it how it is takes ten seconds."""

    clock: ManualClock
    statuses: list[dict[str, Any]]
    id: str = "query"
    runId: str = "run"
    asked: list[int] = field(default_factory=list)

    @property
    def status(self) -> dict[str, Any]:
        self.asked.append(self.clock.now_us())
        self.clock.advance(10)
        return self.statuses.pop(0)


IDLE = {"isDataAvailable": False, "isTriggerActive": False, "message": "Waiting for data to arrive"}
LOOKING = {**IDLE, "isTriggerActive": True}
FOUND = {**IDLE, "isDataAvailable": True}


def beaten(folder: Path, *statuses: dict[str, Any]) -> tuple[Log, SlowSpark]:
    """Returns the stream after one heartbeat, for which Spark was asked."""
    clock = ManualClock(BEGAN_US)
    log = Log.create(LocalStorage(folder, "os"), item_spec(lateness=LATENESS_US), clock)
    heartbeat = Heartbeat(0, LATENESS_US, clock, lambda: clock.steady_us() / 1e6)
    nothing: Any = mock.Mock(report={})
    place, options = Place(str(folder), "os"), {"housekeeping": nothing, "max_ahead": None, "heartbeat": heartbeat}
    with mock.patch("strandline.spark.entry.batch_writer.ArrowBlocks"):  # which need a JVM
        writer = BatchWriter(place, log, nothing, by_spark=False, **options)
    spark: Any = SlowSpark(clock, list(statuses))
    writer.begin(spark)
    with mock.patch("strandline.spark.entry.batch_writer.SYSTEM_CLOCK", clock):
        writer.beat(lambda: True)
    return log, spark


@pytest.mark.parametrize("statuses", [[IDLE], [LOOKING, IDLE]], ids=["it is idle", "it has just looked"])
def test_the_boundary_is_that_of_before_spark_was_asked(tmp_path: Path, statuses: list[dict[str, Any]]) -> None:
    log, spark = beaten(tmp_path, *statuses)
    assert spark.asked[0] == BEGAN_US
    assert log.state.boundary == BEGAN_US - LATENESS_US


@pytest.mark.parametrize("status", [FOUND, LOOKING, {**IDLE, "message": "Processing new data"}], ids=str)
def test_nothing_is_promised_while_something_may_wait(tmp_path: Path, status: dict[str, Any]) -> None:
    log, _ = beaten(tmp_path, *[status] * 20)
    assert log.state.boundary is None
    assert log.state.seq == -1
