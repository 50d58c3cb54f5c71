"""The driver dies by SIGKILL at every named place; what is published in the end is the same, bit by bit."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest

from tests.crash.conftest import content, kill, run, start
from tests.support.draw import generator

CRASHES = [
    # in the first batch, when nothing was ever published
    ["before-seal"],
    # later
    ["during-seal@3"],
    ["after-seal@2"],
    ["before-spark-commit@3"],
    # twice in a row: the second time while the batch is repeated, or in the one after it
    ["before-manifest@2", "before-manifest"],
    ["after-manifest@2", "after-manifest"],
]


@pytest.mark.slow  # `test_crash_matrix` has each of them in one stream
@pytest.mark.parametrize("crashes", CRASHES, ids="-then-".join)
def test_results_after_a_driver_kill_equal_those_of_an_uninterrupted_run(
    crashes: list[str], folder: Path, expected: list[pa.Table], tmp_path: Path
) -> None:
    stream = tmp_path / "items"
    for failpoint in crashes:
        run(folder, stream, failpoint=failpoint, dies=True)
    run(folder, stream)
    assert content(stream) == expected


@pytest.mark.long
@pytest.mark.drawn("crash: other moments")
def test_a_kill_during_compaction_changes_nothing(folder: Path, expected: list[pa.Table], tmp_path: Path) -> None:
    stream = tmp_path / "items"
    run(folder, stream, "--compact", failpoint="compaction-before-manifest", dies=True)
    assert content(stream) == expected
    run(folder, stream, "--compact")
    assert content(stream) == expected


@pytest.mark.long
@pytest.mark.drawn("crash: other moments")
def test_kills_of_the_whole_process_group_at_random_moments(
    folder: Path, expected: list[pa.Table], draw: str, tmp_path: Path
) -> None:
    stream = tmp_path / "items"
    moments = generator(draw, "moments")
    for _ in range(2):
        child = start(folder, stream)
        while not list(stream.glob("staging/*")) and child.poll() is None:
            time.sleep(0.02)
        time.sleep(moments.random())
        kill(child)
        child.wait()
    run(folder, stream)
    assert content(stream) == expected
