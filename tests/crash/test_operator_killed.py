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

from strandline.log.audit.stream_audit import verify
from strandline.log.log import Log
from strandline.log.storage.local_storage import LocalStorage
from tests.crash.conftest import finish, kill, output_of, processes

PROGRAM = Path(__file__).with_name("operator_program.py")
RETRYING = "local[2,4]"


@dataclass(frozen=True)
class Life:
    """One start of the program, what it dies of, and what was lost before."""

    failpoint: str = ""
    """Where the driver dies; with `retried`, where a worker dies and its task is run again."""
    lost: str = ""
    """What somebody deletes before: "state", "spark checkpoint", or both."""
    policy: str = "cec"
    tasks_die: tuple[str, ...] = ()
    """Where workers die before, so that the query fails and is started again by the same driver."""
    retried: bool = False
    master: str = "local[2]"

    @property
    def dies(self) -> bool:
        return bool(self.failpoint) and not self.retried


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
        return self.root / self.how

    def live(self, number: int, life: Life) -> None:
        """Runs the program to its end or its death."""
        if "state" in life.lost:
            assert any((self.root / "state").rglob("p0*/*")), "there was no state to lose"
            shutil.rmtree(self.root / "state")
        if "spark checkpoint" in life.lost:
            shutil.rmtree(self.output / "spark_checkpoint")
        marker = self.root / f"{self.how}-{number}-died"
        child = self.start(life, marker)
        try:
            finish(child, self.output, -signal.SIGKILL if life.dies else 0)
        except AssertionError as problem:
            problem.add_note(f"{self.how}, life {number}: {life}")
            raise
        if life.retried:
            assert marker.exists(), f"nobody came by {life.failpoint}"

    def start(self, life: Life, marker: Path) -> subprocess.Popen[bytes]:
        """The program, in a session of its own."""
        environment = {**os.environ, "STRANDLINE_STATE_DIR": str(self.root / "state")}
        if life.failpoint:
            environment["STRANDLINE_FAILPOINT"] = life.failpoint
        if life.retried:
            environment["STRANDLINE_FAILPOINT_ONCE"] = str(marker)
        command = [self.how, self.folder, self.items, self.output, f"--window={self.window}"]
        options = [f"--policy={life.policy}", f"--master={RETRYING if life.retried else life.master}"]
        options += ["--dies"] * life.dies + ["--tasks-die", *life.tasks_die]
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


FEW = {
    "fused": [
        Life("before-output@2"),  # the input is published, the output is not
        Life("during-recovery", retried=True, lost="state"),
    ],
}
MANY = {
    "fused": [
        Life("before-output"),
        Life("before-output"),  # and again
        Life("after-manifest@3", policy="tight"),
        Life("before-spark-commit@2", lost="state"),  # by then the operator has taken in the first batch
        Life("during-recovery", retried=True, lost="state"),
    ],
    # Over a stream, a driver takes in all that is left unless it dies before: a batch a commit.
    "over": [
        Life("after-manifest", tasks_die=("before-block",)),  # nothing was ever published
        Life("before-output", tasks_die=("during-recovery", "after-block", "after-state"), policy="instant"),
        Life("after-manifest@2", lost="state and spark checkpoint", policy="tight"),
        Life("before-block", retried=True, lost="state and spark checkpoint"),
    ],
}


@pytest.mark.parametrize("lives", [FEW, pytest.param(MANY, marks=pytest.mark.long)], ids=["few", "many"])
def test_results_after_deaths_equal_those_of_an_uninterrupted_run(
    lives: dict[str, list[Life]], folder: Path, tmp_path: Path
) -> None:
    """The operator of "over" works on the stream that "fused" has made."""
    for how, window in (("fused", "time"), ("over", "sliding count")):
        if how not in lives:
            continue
        case = Case(tmp_path, how, window, folder)
        for number, life in enumerate(lives[how]):
            case.live(number, life)
        case.check()


@pytest.mark.parametrize("seed", [pytest.param(s, marks=pytest.mark.slow if s else pytest.mark.long) for s in range(4)])
def test_kills_at_random_moments(seed: int, folder: Path, tmp_path: Path) -> None:
    """Of the whole session, or of whichever of Spark's Python workers is there."""
    moments = random.Random(seed)
    case = Case(tmp_path, "fused", moments.choice(["count", "time", "session"]), folder)
    for number in range(4):
        policy = moments.choice(["cec", "tight", "instant"])
        child = case.start(Life("nowhere", policy=policy), tmp_path / "nobody")
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
