"""When an operator over streams looks at them: at multiples of its interval, or as fast as it goes."""

import pytest

from strandline.clock import ManualClock
from strandline.spark.query.pace import Pace


@pytest.mark.parametrize(
    ("every_s", "now_s", "pause_s"),
    [
        (0.0, 1_790_000_000.123, 0.01),  # as fast as it goes
        (0.005, 1_790_000_000.123, 0.01),
        (0.2, 1_790_000_000.1, 0.1),
        (0.2, 1_790_000_000.0, 0.2),
        (10.0, 1_790_000_001.0, 9.0),
        (10.0, 1_790_000_009.8, 0.2),
    ],
)
def test_looks_come_at_multiples_of_the_interval(every_s: float, now_s: float, pause_s: float) -> None:
    pace = Pace(every_s, ManualClock(round(now_s * 1e6)))
    pace.begins()
    assert pace.pause_s(is_woken=False) == pytest.approx(pause_s, abs=1e-6)


@pytest.mark.parametrize(("batch_s", "pause_s"), [(0.0, 0.5), (0.2, 0.3), (0.5, 0.0), (0.7, 0.0), (3.1, 0.0)], ids=str)
def test_a_batch_that_takes_longer_than_the_interval_is_followed_by_the_next_at_once(
    batch_s: float, pause_s: float
) -> None:
    """As Spark does it: the batch that is late begins, and those after it are at multiples again."""
    clock = ManualClock(1_790_000_000_000_000)
    pace = Pace(0.5, clock)
    pace.begins()
    clock.advance(batch_s)
    assert pace.pause_s(is_woken=False) == pytest.approx(pause_s, abs=1e-6)


def test_a_clock_that_is_set_back_holds_up_no_look_for_longer_than_the_interval() -> None:
    clock = ManualClock(1_790_000_000_000_000)
    pace = Pace(10.0, clock)
    pace.begins()
    clock.jump(-86_400)
    assert pace.pause_s(is_woken=False) == 10.0


def test_looks_without_interval_become_seldom_while_nothing_comes() -> None:
    pace = Pace(0.0, ManualClock(0))
    pauses = []
    for _ in range(600):
        pace.saw(is_new=False)
        pauses.append(pace.pause_s(is_woken=False))
    assert set(pauses[:490]) == {0.01}
    assert 4.5 < sum(pauses[:500]) < 6
    assert set(pauses[510:]) == {0.25}
    pace.saw(is_new=True)
    assert pace.pause_s(is_woken=False) == 0.01


def test_looks_are_seldom_where_publications_wake_the_run() -> None:
    pace = Pace(0.0, ManualClock(0))
    assert pace.pause_s(is_woken=True) == 0.25
    assert not pace.has_interval
    assert Pace(1.0, ManualClock(0)).pause_s(is_woken=True) == 1.0
