"""Two attempts of one task at once: one freezes in mid-task, Spark runs another, the frozen one wakes up late."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pyarrow as pa
import pytest

from tests.crash.conftest import PATIENCE_S, content, finish, processes, start

SPECULATION = [
    "spark_speculation=true",
    "spark_speculation_interval=20ms",
    "spark_speculation_multiplier=1.1",
    "spark_speculation_quantile=0.3",
    "spark_speculation_minTaskRuntime=20ms",
]


@pytest.mark.parametrize("blocks", ["native", "arrow"])
def test_a_frozen_attempt_that_wakes_up_late_publishes_nothing(
    blocks: str, folder: Path, expected: list[pa.Table], tmp_path: Path
) -> None:
    stream = tmp_path / "items"
    options = ["--master", "local-cluster[2,1,1024]", "--blocks", blocks]
    for setting in SPECULATION:
        options += ["--setting", setting]
    frozen = tmp_path / "frozen"
    environment = {
        **os.environ,
        "STRANDLINE_FAILPOINT": "during-seal",
        "STRANDLINE_FAILPOINT_SIGNAL": "SIGSTOP",
        "STRANDLINE_FAILPOINT_ONCE": str(frozen),
    }
    child = start(folder, stream, options, environment)
    try:
        # Without the second attempt this would wait for ever.
        wait_for(lambda: list(stream.glob("commits/*.json")), child)
        assert frozen.exists(), "no attempt was frozen"
        for pid, _ in processes(child.pid, state="T"):
            os.kill(pid, signal.SIGCONT)
    finally:
        finish(child, stream)
    assert content(stream) == expected


def wait_for(condition, child) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition() and child.poll() is None:
        assert time.monotonic() < end, "nothing was published: no second attempt was made"
        time.sleep(0.05)
