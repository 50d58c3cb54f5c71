"""Spark's clock ticks when an input has grown, in time for Spark's next look, and not otherwise."""

from typing import Any

import pytest

from strandline.clock import ManualClock
from strandline.errors import StorageError
from strandline.log.log import Log
from strandline.spark.lookout import Lookout
from strandline.spark.operator_inputs import OperatorInputs
from strandline.testing import MemoryStorage
from strandline.testing.items import append_items, item_spec


class Ticks:
    """Counts them."""

    count = 0

    def tick(self) -> None:
        self.count += 1


class Setting:
    """Two streams, and a lookout with handles of its own on them."""

    def __init__(self, every_s: float = 0.0, now_us: int = 0) -> None:
        clock = ManualClock(1)
        self.writers = [Log.create(MemoryStorage(clock), item_spec(2), clock) for _ in range(2)]
        append_items(self.writers[0], {0: [(1, 1, 1)]})
        self.inputs = OperatorInputs((), [Log.open(log.storage, clock) for log in self.writers])
        ticks: Any = Ticks()
        self.ticks = ticks
        self.lookout = Lookout(self.inputs, ticks, every_s, ManualClock(now_us))


def test_it_ticks_once_for_new_tuples_of_any_input_and_not_for_what_was_there() -> None:
    setting = Setting()
    setting.lookout.look()
    assert setting.ticks.count == 0
    for number, log in enumerate(setting.writers):
        append_items(log, {1: [(1, 2, 2)]})
        setting.lookout.look()
        setting.lookout.look()
        assert setting.ticks.count == number + 1


def test_commits_without_tuples_are_no_reason_for_a_batch() -> None:
    setting = Setting()
    append_items(setting.writers[0], {})
    setting.lookout.look()
    assert setting.inputs.logs[0].state.seq == setting.writers[0].state.seq
    assert setting.ticks.count == 0


def test_a_look_that_fails_lets_a_batch_find_out_why(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting()

    def refuse() -> bool:
        raise StorageError("the disk is gone")

    monkeypatch.setattr(setting.inputs.logs[1], "refresh", refuse)
    setting.lookout.look()
    assert setting.ticks.count == 1


@pytest.mark.parametrize(
    ("every_s", "now_s", "pause_s"),
    [
        (0.0, 1_790_000_000.123, 0.01),  # as fast as it goes
        (0.005, 1_790_000_000.123, 0.01),
        (0.2, 1_790_000_000.1, 0.05),  # Spark looks at .200
        (0.2, 1_790_000_000.16, 0.19),  # at .200 it is too late for a look; the next one is at .400
        (10.0, 1_790_000_001.0, 8.75),
        (10.0, 1_790_000_009.8, 9.95),
    ],
)
def test_looks_come_shortly_before_those_of_spark(every_s: float, now_s: float, pause_s: float) -> None:
    setting = Setting(every_s, round(now_s * 1e6))
    assert setting.lookout.pause_s() == pytest.approx(pause_s, abs=1e-6)
