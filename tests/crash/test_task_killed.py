"""A Python worker or an executor dies in mid-task; Spark runs the task again, the batch is published once."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pyarrow as pa
import pytest

from tests.crash.conftest import content, finish, processes, run, start

CLUSTER = ["--master", "local-cluster[2,1,1024]"]


@pytest.mark.long
@pytest.mark.drawn("crash: clusters")
def test_a_python_worker_killed_while_it_writes_a_block(folder: Path, expected: list[pa.Table], tmp_path: Path) -> None:
    stream = tmp_path / "items"
    once = tmp_path / "died"
    options = ["--blocks", "arrow", "--master", "local[2,4]"]
    run(folder, stream, *options, failpoint="during-seal@2", once=once)
    assert once.exists(), "the worker should have died"
    assert content(stream) == expected


@pytest.mark.long
@pytest.mark.drawn("crash: clusters")
def test_a_python_worker_on_a_cluster_killed_while_it_seals_a_block(
    folder: Path, expected: list[pa.Table], tmp_path: Path
) -> None:
    stream = tmp_path / "items"
    once = tmp_path / "died"
    run(folder, stream, *CLUSTER, failpoint="during-seal", once=once)
    assert once.exists(), "the worker should have died"
    assert content(stream) == expected


@pytest.mark.long
@pytest.mark.drawn("crash: clusters")
def test_an_executor_killed_in_mid_stream(folder: Path, expected: list[pa.Table], tmp_path: Path) -> None:
    stream = tmp_path / "items"
    child = start(folder, stream, CLUSTER)
    while not list(stream.glob("commits/*.json")) and child.poll() is None:
        time.sleep(0.05)
    killed = _kill_one_executor(child.pid)
    finish(child, stream)
    assert killed, "there was no executor to kill"
    assert content(stream) == expected


def _kill_one_executor(session: int) -> bool:
    for pid, command in processes(session):
        if "CoarseGrainedExecutorBackend" in command:
            os.kill(pid, signal.SIGKILL)
            return True
    return False
