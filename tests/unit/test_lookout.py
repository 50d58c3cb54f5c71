"""Spark's clock ticks when an input has grown, in time for Spark's next look, and not otherwise."""

from typing import Any

import pytest

from strandline.clock import ManualClock
from strandline.errors import StorageError
from strandline.log.stream.log import Log
from strandline.spark.operator.lookout import Lookout
from strandline.spark.operator.operator_inputs import OperatorInputs
from strandline.testing import MemoryStorage
from strandline.testing.items import append_items, item_spec


class Ticks:
    """Counts them, except those that fail."""

    count = 0
    failures = 0

    def tick(self) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError(24, "Too many open files")
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
        self.clock = ManualClock(now_us)
        self.lookout = Lookout(self.inputs, ticks, every_s, self.clock)


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


def test_tuples_of_which_spark_could_not_be_told_are_told_of_at_the_next_look() -> None:
    setting = Setting()
    append_items(setting.writers[0], {1: [(1, 2, 2)]})
    setting.ticks.failures = 1
    with pytest.raises(OSError, match="open files"):
        setting.lookout.look()
    setting.lookout.look()
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


@pytest.mark.parametrize("look_s", [0.05, 0.2, 0.45, 0.6, 1.7])
def test_looks_that_take_long_begin_so_early_that_they_end_in_time(
    look_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it is known that they do: a tick just after Spark's look waits for a whole interval."""
    every_s = 0.5
    setting = Setting(every_s, 1_790_000_000_123_000)
    monkeypatch.setattr(setting.inputs, "refresh", lambda: setting.clock.advance(look_s))
    setting.lookout.look()
    for _ in range(8):
        setting.clock.advance(setting.lookout.pause_s())
        setting.lookout.look()
        left_s = -setting.clock.now_us() / 1e6 % every_s
        assert 0 < left_s <= max(every_s / 4, look_s / 2 + 0.001)


def test_one_slow_look_does_not_make_all_later_ones_early(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting(10.0, 1_790_000_000_000_000)
    with monkeypatch.context() as patch:
        patch.setattr(setting.inputs, "refresh", lambda: setting.clock.advance(4.0))
        setting.lookout.look()
    assert setting.lookout.pause_s() == pytest.approx(0.0, abs=1e-3)  # six seconds before Spark's
    for _ in range(30):
        setting.lookout.look()
    assert setting.lookout.pause_s() == pytest.approx(5.75, abs=1e-3)


def test_looks_of_an_operator_without_interval_become_seldom_while_nothing_comes() -> None:
    setting = Setting()
    pauses = []
    for _ in range(600):
        setting.lookout.look()
        pauses.append(setting.lookout.pause_s())
    assert set(pauses[:490]) == {0.01}
    assert 4.5 < sum(pauses[:500]) < 6
    assert set(pauses[510:]) == {0.25}
    append_items(setting.writers[1], {0: [(1, 2, 2)]})
    setting.lookout.look()
    assert setting.lookout.pause_s() == 0.01
