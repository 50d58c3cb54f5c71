"""Joins, a barrier, a union, keyed functions over the same two streams; workers and drivers die at every failpoint.

One set of streams goes through all deaths, because every start of Spark costs seconds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.lives import Life
from tests.crash.two_inputs import Deaths, write_files

ALL = "full counts barrier union keyed keyed-union"
RECOVERING = f"during-recovery:{ALL.replace(' ', ',')}"
LIVES = [
    Life("after-manifest", "full", tasks_die=("before-block:full,barrier",)),  # nothing was ever published
    Life("before-output@2", "counts"),
    Life("after-manifest@2", "barrier", policy="tight"),
    Life("before-manifest@3", "union"),
    Life("after-manifest@2", "keyed", tasks_die=("before-block:keyed-union",)),
    Life("before-output@3", "keyed-union", policy="tight"),
    Life("before-output@3", "full", tasks_die=(RECOVERING,), policy="instant"),
    Life(
        "after-manifest@2",
        "counts",
        tasks_die=("after-block:full,counts,keyed", "after-state:full,union,keyed-union"),
        policy="tight",
    ),
    Life("before-output", "barrier", lost="state and spark checkpoint", tasks_die=("task-begins:counts",)),
    Life("before-block", ALL, lost="state and spark checkpoint", retried=True),
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
