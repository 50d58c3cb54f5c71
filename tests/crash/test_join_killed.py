"""A join of two sources whose driver, worker or executor dies by SIGKILL, with its state lost: the same results.

One stream goes through many deaths, because every start of Spark costs seconds.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.crash.conftest import finish, processes
from tests.crash.lives import Life
from tests.crash.two_inputs import Deaths, write_files

LIVES = [  # whichever of the three queries is ahead: each life comes by its failpoint, and leaves work for the next
    Life("after-seal", "full"),  # an input has not published what it wrote
    Life("before-output", "full"),  # both inputs are published, the join is not
    Life("after-manifest@5", "full", policy="tight"),  # of an input or of the join
    Life("before-output@2", "full", lost="state"),
    Life("before-spark-commit", "full", policy="instant"),  # the first: it may have taken in all there is
    Life("during-recovery", "full", lost="state", retried=True),
]
CLUSTER = Life(operators="full", master="local-cluster[2,1,1024]")


@pytest.mark.long
def test_a_join_of_two_sources_is_the_same_after_many_deaths(tmp_path: Path) -> None:
    write_files(tmp_path)
    deaths = Deaths(tmp_path, "sources")
    for number, life in enumerate(LIVES):
        deaths.live(number, life)
    deaths.check("full")
    assert deaths.deaths_survived("full") >= 2


@pytest.mark.long
def test_an_executor_killed_under_a_join_changes_no_result(tmp_path: Path) -> None:
    write_files(tmp_path)
    deaths = Deaths(tmp_path, "sources")
    child = deaths.program.start(CLUSTER, tmp_path / "nobody")
    while not list((tmp_path / "full").glob("commits/*.json")) and child.poll() is None:
        time.sleep(0.05)
    running = [pid for pid, command in processes(child.pid) if "CoarseGrainedExecutorBackend" in command]
    assert len(running) == 2, "two executors, each with a partition or two"
    os.kill(running[0], signal.SIGKILL)
    finish(child, tmp_path / "sources")
    deaths.check("full")
