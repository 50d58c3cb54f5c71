"""A writer that never ends, killed again and again: however the batches fall, every tuple is there once."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.crash.conftest import PATIENCE_S, content, kill, processes, run, start
from tests.support.draw import generator

EVER = "1000000000"


VICTIMS = [
    ["python"],
    ["java"],
    ["all of them"],
    pytest.param(["python", "java", "all of them"], marks=pytest.mark.slow),
]


@pytest.mark.long
@pytest.mark.drawn("crash: other moments")
@pytest.mark.parametrize("victims", VICTIMS, ids="-then-".join)
def test_every_number_is_there_once_whoever_is_killed_and_when(
    victims: list[str], folder: Path, draw: str, tmp_path: Path
) -> None:
    stream = tmp_path / "numbers"
    moments = generator(draw, "moments")
    for victim in victims:
        child = start(folder, stream, ["--numbers", EVER])
        try:
            published = commits(stream)
            while commits(stream) < published + 2 and child.poll() is None:
                time.sleep(0.02)
            time.sleep(moments.random())
            if victim == "python":
                child.kill()
            elif victim == "java":
                os.kill(min(pid for pid, command in processes(child.pid) if "SparkSubmit" in command), signal.SIGKILL)
            else:
                kill(child)
            assert child.wait(timeout=PATIENCE_S) != 0
        finally:
            kill(child)
    run(folder, stream, "--numbers", str(50 * (commits(stream) + 3)))
    *partitions, late = content(stream)
    values = sorted(v for table in partitions for v in table.column("v").to_pylist())
    assert values == list(range(len(values)))
    assert len(values) == 50 * commits(stream)
    assert len(late) == 0


def commits(stream: Path) -> int:
    return len(list(stream.glob("commits/*[0-9].json")))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_many_kills_at_random_moments(seed: int, folder: Path, tmp_path: Path) -> None:
    stream = tmp_path / "numbers"
    moments = random.Random(seed)
    options = ["--blocks", moments.choice(["native", "arrow"])]
    for _ in range(4):
        child = start(folder, stream, ["--numbers", EVER, *options])
        time.sleep(4 + 8 * moments.random())
        kill(child)
        child.wait()
    run(folder, stream, "--numbers", str(50 * (commits(stream) + 3)), *options)
    values = sorted(v for table in content(stream) for v in table.column("v").to_pylist())
    assert values == list(range(len(values)))
