"""A user's class over the union of two streams; workers with its objects and drivers die, state is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.lives import Life
from tests.crash.two_inputs import Deaths, write_files

LIVES = [
    Life("after-manifest@2", "smoothed", tasks_die=("before-block:smoothed",), policy="instant"),
    Life("before-output@2", "smoothed", tasks_die=("during-recovery:smoothed", "after-state:smoothed"), policy="often"),
    Life("before-block@3", "smoothed", lost="state and spark checkpoint", policy="instant", retried=True),
]


@pytest.mark.long
def test_results_of_a_class_are_the_same_after_deaths_of_workers_and_drivers(tmp_path: Path) -> None:
    write_files(tmp_path)
    deaths = Deaths(tmp_path, "over")
    for number, life in enumerate(LIVES):
        deaths.live(number, life)
    deaths.check("smoothed")
    assert deaths.deaths_survived("smoothed") >= 2
