"""Joins, a barrier and a union over the same two streams; workers and drivers die at every failpoint, state is lost.

One set of streams goes through all deaths, because every start of Spark costs seconds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.two_inputs import Deaths, Life, write_files

ALL = "full counts barrier union"
LIVES = [
    Life("full", "after-manifest", tasks_die=("before-block:full,barrier",)),  # nothing was ever published
    Life("counts", "before-output@2"),
    Life("barrier", "after-manifest@2", policy="tight"),
    Life("union", "before-manifest@3"),
    Life("full", "before-output@3", tasks_die=("during-recovery:full,counts,barrier,union",), policy="instant"),
    Life("counts", "after-manifest@2", tasks_die=("after-block:full,counts", "after-state:full,union"), policy="tight"),
    Life("barrier", "before-output", lost="state and spark checkpoint", tasks_die=("task-begins:counts",)),
    Life(ALL, "before-block", lost="state and spark checkpoint", retried=True),
]


@pytest.mark.long
def test_operators_over_two_streams_are_the_same_after_deaths_of_workers_and_drivers(tmp_path: Path) -> None:
    write_files(tmp_path)
    deaths = Deaths(tmp_path, "over")
    for number, life in enumerate(LIVES):
        deaths.live(number, life)
    deaths.check(*ALL.split())
    for name in ALL.split():
        assert deaths.deaths_survived(name) >= 2, name
