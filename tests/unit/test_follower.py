"""Work behind other work: one piece at a time, in order, at most one behind; a failure is raised, not lost."""

import threading
import time
from collections.abc import Callable

import pytest

from strandline.spark.query.listener_events import Follower
from tests.support.machine import patience


def wait_until(condition: Callable[[], object]) -> None:
    """Waits until a condition holds; raises if it never does."""
    end = time.monotonic() + patience(10)
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.001)


@pytest.fixture
def follower() -> Follower:
    return Follower("test")


def test_a_piece_runs_beside_its_giver_and_the_next_waits_for_it(follower: Follower) -> None:
    may_end, done = threading.Event(), []

    def first() -> None:
        may_end.wait(patience(10))
        done.append(1)

    follower.hand_over(first)
    assert not follower.wait(0)
    assert not follower.wait(0.01)
    threading.Timer(0.05, may_end.set).start()
    follower.hand_over(lambda: done.append(2))
    assert done[:1] == [1], "the second piece was taken while the first was not done"
    assert follower.wait(patience(10))
    assert done == [1, 2]
    assert follower.wait(0)


def test_two_givers_take_turns(follower: Follower) -> None:
    may_end, done = threading.Semaphore(0), []

    def piece() -> None:
        may_end.acquire(timeout=patience(10))

    def give() -> None:
        follower.hand_over(piece)
        done.append(1)

    follower.hand_over(piece)
    givers = [threading.Thread(target=give) for _ in range(2)]
    for giver in givers:
        giver.start()
    may_end.release()
    wait_until(lambda: done)
    time.sleep(0.1)
    assert done == [1], "a piece was taken while the one before it was not done"
    assert not follower.wait(0)
    may_end.release(2)
    for giver in givers:
        giver.join(patience(10))
    assert follower.wait(patience(10))
    assert done == [1, 1]


def test_what_stopped_a_piece_is_raised_where_the_next_is_handed_over(follower: Follower) -> None:
    def fail() -> None:
        raise ValueError("it broke")

    follower.hand_over(fail)
    assert follower.wait(patience(10)), "waiting does not raise"
    with pytest.raises(ValueError, match="it broke"):
        follower.hand_over(lambda: pytest.fail("nothing may follow a failure"))
    wait_until(lambda: follower.wait(0))


def test_a_follower_without_work_has_none(follower: Follower) -> None:
    assert follower.wait(0)
    assert follower.wait(0)
