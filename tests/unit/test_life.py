"""The states of a run: every way from the start to the end, and none back."""

import threading
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from strandline.errors import StorageError
from strandline.spark.query.life import Life, LifeState
from tests.support.machine import patience

PROBLEM = StorageError("the disk is gone")
WAYS: dict[LifeState, Callable[[Life], Any]] = {
    LifeState.STARTING: lambda life: None,
    LifeState.RUNNING: lambda life: life.begin(),
    LifeState.STOPPING: lambda life: life.stop(),
    LifeState.FINISHED: lambda life: life.end(),
    LifeState.FAILED: lambda life: (life.fail(PROBLEM), life.end()),
}
STEPS: dict[str, Callable[[Life], Any]] = {
    "begin": Life.begin,
    "stop": Life.stop,
    "fail": lambda life: life.fail(PROBLEM),
    "end": Life.end,
}
AFTER = {
    (LifeState.STARTING, "begin"): LifeState.RUNNING,
    (LifeState.STARTING, "stop"): LifeState.STOPPING,
    (LifeState.STARTING, "fail"): LifeState.STOPPING,
    (LifeState.STARTING, "end"): LifeState.FINISHED,
    (LifeState.RUNNING, "stop"): LifeState.STOPPING,
    (LifeState.RUNNING, "fail"): LifeState.STOPPING,
    (LifeState.RUNNING, "end"): LifeState.FINISHED,
    (LifeState.STOPPING, "begin"): LifeState.STOPPING,  # a stop may be faster than the thread that begins
    (LifeState.STOPPING, "stop"): LifeState.STOPPING,
    (LifeState.STOPPING, "fail"): LifeState.STOPPING,
    (LifeState.STOPPING, "end"): LifeState.FINISHED,
    (LifeState.FINISHED, "stop"): LifeState.FINISHED,
    (LifeState.FAILED, "stop"): LifeState.FAILED,
}


@pytest.mark.parametrize(("state", "step"), list(product(LifeState, STEPS)), ids=str)
def test_every_step_from_every_state_is_one_that_is_known_or_raises(state: LifeState, step: str) -> None:
    life = Life()
    WAYS[state](life)
    assert life.state is state
    if (state, step) in AFTER:
        STEPS[step](life)
        assert life.state is AFTER[state, step]
    else:
        with pytest.raises(RuntimeError, match=f"a run that is {state.value} cannot become"):
            STEPS[step](life)
        assert life.state is state


def test_the_first_error_is_kept_and_makes_the_end_a_failure() -> None:
    life = Life()
    life.begin()
    life.fail(PROBLEM)
    life.fail(StorageError("and then the store"))
    assert not life.goes_on
    assert not life.has_ended
    life.end()
    assert life.state is LifeState.FAILED
    assert life.failure is PROBLEM


def test_the_end_wakes_all_that_wait_for_it() -> None:
    life, woken = Life(), []
    threads = [threading.Thread(target=lambda: woken.append(life.wait(patience(10)))) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert not life.wait(0.01)
    life.end()
    for thread in threads:
        thread.join()
    assert woken == [True] * 3
