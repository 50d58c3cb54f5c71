"""A join of two sources whose executor dies by SIGKILL has the same results."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.crash.conftest import finish, processes
from tests.crash.lives import Life
from tests.crash.two_inputs import Deaths, write_files

CLUSTER = Life(operators="full", master="local-cluster[2,1,1024]")


@pytest.mark.long
@pytest.mark.drawn("crash: clusters")
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
