"""An operator with a bound whose driver, worker or executor dies by SIGKILL in every state: the same results.

One stream goes through all deaths, because every start of Spark costs seconds. What the inputs have is written here:
the north and the west go on, the south stays away, comes back a little, and then altogether.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.log.operator_state.outage import Outage
from strandline.log.reading.tentative_results import changes
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState
from tests.crash.conftest import finish, kill, processes, said_by
from tests.crash.lives import RETRYING, Life, Program, results
from tests.support.machine import patience
from tests.support.sensors import PARTITIONS, Sensors
from tests.support.with_tentative import with_tentative

PROGRAM = Path(__file__).with_name("available_program.py")
PATIENCE_S = patience(90)


class Lives:
    """Three inputs, the stream of an operator over them, and the lives of who works on it."""

    def __init__(self, root: Path) -> None:
        self.root, self.stream = root, root / "results"
        self.sensors = Sensors(root)
        self._program = Program(PROGRAM, (str(root),), root, root / "program")
        self._number = 0

    @contextlib.contextmanager
    def life(self, life: Life) -> Iterator[int]:
        """The program runs in this session; at the end it has died of its failpoint, or is killed, or has ended."""
        marker = self.root / f"died-{self._number}"
        self._number += 1
        child = self._program.start(life, marker)
        try:
            yield child.pid
            if life.dies:
                child.wait(PATIENCE_S)
            elif not (self.root / "enough").exists():
                os.kill(child.pid, signal.SIGKILL)
            finish(child, self.root / "program", 0 if (self.root / "enough").exists() else -signal.SIGKILL)
        except BaseException as problem:
            kill(child)
            problem.add_note(f"{life}, {self.outage}\n{said_by(self.root / 'program')}")
            raise
        assert marker.exists() == life.retried, f"nobody came by {life.failpoint}"

    def write(self, first: int, end: int, *numbers: int) -> None:
        for number in numbers:
            self.sensors.write(number, first, end)

    @property
    def log(self) -> Log:
        return Log.open(LocalStorage(self.stream))

    @property
    def state(self) -> LogState | None:
        return self.log.state if (self.stream / "stream.json").exists() else None

    @property
    def outage(self) -> Outage:
        state = self.state
        return (state and state.outage) or Outage()

    def until(self, condition: Callable[[], object]) -> None:
        """Waits for something to be published."""
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, "it was never published"
            time.sleep(0.02)

    def told(self) -> list[str]:
        """What has happened in the first partition."""
        return [kind for table in changes(self.log, 0) for kind in table.column("_kind").to_pylist()]


@pytest.mark.long
def test_an_operator_with_a_bound_is_the_same_after_deaths_in_every_state(tmp_path: Path) -> None:
    lives = Lives(tmp_path)
    lives.write(0, 25, 0, 1, 2)
    with lives.life(Life()):  # dies in STABLE, with tuples that have not waited for the bound yet
        lives.until(lambda: lives.told() == ["stable"] * 2 if lives.state else False)
        lives.write(25, 45, 0, 2)
        time.sleep(0.5)
    assert lives.outage.state == "STABLE"
    assert lives.told() == ["stable"] * 2

    with lives.life(Life("before-block", retried=True)):  # a worker dies as it guesses, then the driver in UP_FAILURE
        lives.until(lambda: lives.outage.tentative == 2 * PARTITIONS)
    assert (lives.outage.state, lives.outage.missing) == ("UP_FAILURE", (1,))

    shutil.rmtree(tmp_path / "state")
    with lives.life(Life("after-undo", "process undo")):  # an undo is written, and the commit is not
        lives.write(45, 60, 0, 2)
        lives.until(lambda: lives.outage.tentative == 4 * PARTITIONS)
        lives.write(25, 40, 1)
    assert lives.told() == ["stable"] * 2 + ["tentative"] * 4
    assert list(lives.stream.glob("**/*-undo-*")), "there is a block that nobody names"

    with lives.life(Life("after-STABILIZATION", "delay redo", policy="tight")):  # right behind the first corrections
        pass
    assert lives.outage.state == "STABILIZATION"
    assert lives.told() == ["stable"] * 2 + ["tentative"] * 4 + ["undo"] + ["stable"] * 2

    with lives.life(Life("after-reconciliation", "process undo")):
        lives.until(lambda: lives.outage.state == "STABILIZATION")
        lives.write(40, 60, 1)
    assert lives.outage.state == "STABLE"
    assert lives.told()[-1] == "rec_done"

    with lives.life(Life(operators="delay undo", master="local-cluster[2,1,1024]")) as session:  # a failure as a whole
        lives.write(60, 75, 0, 2)
        lives.until(lambda: lives.outage.tentative)
        executors = [pid for pid, command in processes(session) if "CoarseGrainedExecutorBackend" in command]
        assert len(executors) == 2
        os.kill(executors[0], signal.SIGKILL)
        lives.write(75, 85, 0, 2)
        lives.until(lambda: lives.outage.tentative == 2 * PARTITIONS)
        lives.write(60, 85, 1)
        lives.until(lambda: lives.outage.state == "STABLE" and lives.told().count("stable") == 8)
        (tmp_path / "enough").touch()

    found, expected = (results(tmp_path / name) for name in ("results", "results-expected"))
    assert found == expected
    assert [len(table) for table in found] == [8] * PARTITIONS
    for p in range(PARTITIONS):
        shown = pa.concat_tables(with_tentative(lives.log, p, ["n"]))
        assert shown.column("_tentative").to_pylist() == [False] * 8
    assert lives.told().count("rec_done") == 2


@pytest.mark.long
@pytest.mark.drawn("crash: other moments")
def test_the_objects_of_a_class_die_with_their_workers_while_they_guess_and_results_are_the_same(
    tmp_path: Path,
) -> None:
    lives = Lives(tmp_path)
    lives.write(0, 25, 0, 1, 2)
    with lives.life(Life(operators="process redo class", master=RETRYING)) as session:
        lives.until(lambda: lives.told().count("stable") == 75 if lives.state else False)
        lives.write(25, 45, 0, 2)
        lives.until(lambda: lives.outage.tentative == 40 * PARTITIONS)
        workers = [pid for pid, command in processes(session) if "daemon" in command]
        assert workers
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        lives.write(45, 60, 0, 2)
        lives.until(lambda: lives.outage.tentative == 70 * PARTITIONS)
    with lives.life(Life(operators="process redo class")):
        lives.write(25, 60, 1)
        lives.until(lambda: lives.outage.state == "STABLE" and lives.told().count("stable") == 180)
        (tmp_path / "enough").touch()
    found, expected = (results(tmp_path / name) for name in ("results", "results-expected"))
    assert found == expected
    assert [len(table) for table in found] == [180] * PARTITIONS
