"""An operator whose driver or tasks die by SIGKILL anywhere, whose state and Spark checkpoint are lost: same results.

One stream goes through many deaths, because every start of Spark costs seconds. What is there in the end is compared,
partition by partition, with what an operator computes from the same input to which nothing happens.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from strandline.log.local_storage import LocalStorage
from strandline.log.log import Log
from strandline.log.verify import verify
from tests.crash.conftest import BATCHES, ROWS, finish, kill, output_of, processes

PROGRAM = Path(__file__).with_name("operator_program.py")
KILLED = -signal.SIGKILL
FAILED = 1
"""The program's status if a task died and nobody ran it again."""
RETRYING = "local[2,4]"


@dataclass(frozen=True)
class Life:
    """One start of the program, what it dies of, and what was lost before."""

    failpoint: str = ""
    status: int = 0
    lost: str = ""
    """What somebody deletes before: "state", "spark checkpoint", or both."""
    policy: str = "cec"
    master: str = "local[2]"
    once: bool = False
    """Only the first who comes by dies, so that a retry survives."""


@dataclass(frozen=True)
class Case:
    """An operator and where its streams lie."""

    root: Path
    how: str
    window: str
    folder: Path

    @property
    def items(self) -> Path:
        return self.root / "items"

    @property
    def output(self) -> Path:
        return self.root / "output"

    def live(self, number: int, life: Life) -> None:
        """Runs the program to its end or its death."""
        if "state" in life.lost:
            assert any((self.root / "state").rglob("p0*/*")), "there was no state to lose"
            shutil.rmtree(self.root / "state")
        if "spark checkpoint" in life.lost:
            shutil.rmtree(self.output / "spark_checkpoint")
        marker = self.root / f"died{number}"
        child = self.start(life, marker)
        try:
            finish(child, self.output, life.status)
        except AssertionError as problem:
            problem.add_note(f"life {number}: {life}")
            raise
        if life.once:
            assert marker.exists(), f"nobody came by {life.failpoint}"

    def start(self, life: Life, marker: Path) -> subprocess.Popen[bytes]:
        """The program, in a session of its own."""
        environment = {**os.environ, "STRANDLINE_STATE_DIR": str(self.root / "state")}
        if life.failpoint:
            environment["STRANDLINE_FAILPOINT"] = life.failpoint
        if life.once:
            environment["STRANDLINE_FAILPOINT_ONCE"] = str(marker)
        command = [self.how, self.folder, self.items, self.output, f"--window={self.window}"]
        options = [f"--policy={life.policy}", f"--master={life.master}", *(["--fails"] if life.status else [])]
        with output_of(self.output).open("ab") as output:
            return subprocess.Popen(
                [sys.executable, str(PROGRAM), *map(str, command), *options],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def check(self) -> None:
        """The results are those of the operator that nothing happened to."""
        found, expected = results(self.output), results(Path(f"{self.output}-expected"))
        assert [len(t) for t in found] == [len(t) for t in expected]
        assert found == expected
        assert all(len(t) > 20 for t in found)


def results(stream: Path) -> list[pa.Table]:
    """The results of each partition in their order, doubles as their bits; the stream must be whole."""
    log = Log.open(LocalStorage(stream))
    report = verify(log)
    assert report.is_good, report.problems
    names = log.spec.columns
    found = []
    for p in range(log.spec.partitions):
        table = pa.concat_tables([log.spec.block.empty_table(), *Log.open(LocalStorage(stream)).read(p)])
        table = table.filter(pc.equal(table.column("_kind"), 0)).combine_chunks()
        columns = [table.column(n) for n in names]
        found.append(pa.table([_bits(c) for c in columns], names=list(names)))
    return found


def _bits(column: pa.ChunkedArray) -> pa.Array:
    array = pa.concat_arrays(column.chunks) if column.chunks else pa.array([], column.type)
    return array.view(pa.int64()) if pa.types.is_float64(array.type) else array


@pytest.fixture(scope="module")
def persisted(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The input as a stream, a file a commit."""
    case = Case(tmp_path_factory.mktemp("persisted"), "persist", "count", folder)
    case.live(0, Life(status=0))
    assert sum(Log.open(LocalStorage(case.items)).state.ends) == BATCHES * ROWS
    return case.items


# Over a stream, a life takes in all that is left unless it dies before: a batch a commit.
OVER_A_STREAM = [
    Life("before-block", FAILED),  # nothing was ever published
    Life("after-manifest", KILLED),  # one batch is
    Life("during-recovery", FAILED, lost="state"),
    Life("before-output", KILLED, policy="tight"),  # the same batch again, and again
    Life("after-block", FAILED),
    Life("after-manifest", KILLED, lost="state and spark checkpoint", policy="instant"),
    Life("before-block", master=RETRYING, once=True),  # a worker alone: its task is run again
]
FUSED = [
    Life("before-output", KILLED),  # the input is published, the output is not
    Life("after-manifest@3", KILLED, policy="tight"),
    Life("before-output", KILLED, lost="state"),
    Life("before-spark-commit", KILLED),
    Life("during-recovery", master=RETRYING, once=True, lost="state"),
]


@pytest.mark.parametrize(
    ("how", "window", "lives"),
    [("over", "sliding count", OVER_A_STREAM), ("fused", "time", FUSED)],
    ids=["over a stream", "fused"],
)
def test_results_after_many_deaths_equal_those_of_an_uninterrupted_run(
    how: str, window: str, lives: list[Life], folder: Path, persisted: Path, tmp_path: Path
) -> None:
    case = Case(tmp_path, how, window, folder)
    if how == "over":
        shutil.copytree(persisted, case.items)
    for number, life in enumerate(lives):
        case.live(number, life)
    case.check()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_kills_at_random_moments(seed: int, folder: Path, tmp_path: Path) -> None:
    """Of the whole session, or of whichever of Spark's Python workers is there."""
    moments = random.Random(seed)
    case = Case(tmp_path, "fused", moments.choice(["count", "time", "session"]), folder)
    for number in range(4):
        policy = moments.choice(["cec", "tight", "instant"])
        child = case.start(Life(status=KILLED, policy=policy, master=RETRYING), tmp_path / f"died{number}")
        while not any((case.root / "state").rglob("*-*")) and child.poll() is None:
            time.sleep(0.05)
        time.sleep(2 * moments.random())
        workers = [pid for pid, command in processes(child.pid) if "pyspark.daemon" in command]
        if number % 2 and workers:
            os.kill(max(workers), signal.SIGKILL)
            time.sleep(1.0)
        kill(child)
        child.wait()
    case.live(9, Life())
    case.check()
