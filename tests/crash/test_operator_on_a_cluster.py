"""An operator whose tasks run in two executors: state stays where it is, and the death of one costs nothing."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.log import Log
from tests.crash.conftest import finish, processes
from tests.crash.lives import Life
from tests.crash.test_operator_killed import Case

CLUSTER = Life(master="local-cluster[2,1,1024]")


def recoveries(stream: Path) -> int:
    """How often a partition was recovered: manifests keep what its last recovery was."""
    appends = (m for m in Log.open(LocalStorage(stream)).after(-1) if isinstance(m, AppendCommit))
    standings = [enumerate(m.standings) for m in appends]
    return len({(p, s.recovered["at_input"]) for found in standings for p, s in found if s.recovered is not None})


def executors(session: int) -> list[int]:
    return [pid for pid, command in processes(session) if "CoarseGrainedExecutorBackend" in command]


@pytest.mark.long
@pytest.mark.drawn("crash: clusters")
def test_an_executor_killed_in_mid_stream_changes_no_result_and_leaves_the_state(folder: Path, tmp_path: Path) -> None:
    case = Case(tmp_path, "fused", "sliding count", folder)
    child = case.program.start(CLUSTER, tmp_path / "nobody")
    while not list(case.output.glob("commits/*.json")) and child.poll() is None:
        time.sleep(0.05)
    running = executors(child.pid)
    assert len(running) == 2, "two executors, each with a partition or two"
    os.kill(running[0], signal.SIGKILL)
    finish(child, case.output)
    case.check()
    # The state belongs to the machine. Only an executor that dies while it brings it up to date takes it along.
    assert recoveries(case.output) <= 1
