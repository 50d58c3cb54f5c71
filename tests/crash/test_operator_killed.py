"""An operator whose driver or tasks die by SIGKILL anywhere, whose state and Spark checkpoint are lost: same results.

One stream goes through many deaths, because every start of Spark costs seconds. What is there in the end is compared,
partition by partition, with what an operator computes from the same input to which nothing happens.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.crash.conftest import kill, processes
from tests.crash.lives import Life, Program, results
from tests.support.draw import generator

PROGRAM = Path(__file__).with_name("operator_program.py")


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
        assert not (self.output / "spark_checkpoint").exists(), "Spark keeps nothing for an operator"
        self.program.live(life, number)

    @property
    def program(self) -> Program:
        """Who works on them."""
        arguments = (self.how, str(self.folder), str(self.items), str(self.output), f"--window={self.window}")
        return Program(PROGRAM, arguments, self.root, self.output)

    def check(self) -> None:
        """The results are those of the operator that nothing happened to."""
        found, expected = results(self.output), results(Path(f"{self.output}-expected"))
        assert [len(t) for t in found] == [len(t) for t in expected]
        assert found == expected
        assert all(len(t) > 20 for t in found)


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
        Life("after-manifest@2", lost="state", policy="tight"),
        Life("before-block", retried=True, lost="state"),
    ],
}


@pytest.mark.parametrize("lives", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"])
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


@pytest.mark.long
def test_an_aggregate_behind_its_source_is_the_same_after_drawn_deaths(folder: Path, draw: str, tmp_path: Path) -> None:
    rng = generator(draw, "fused")
    case = Case(tmp_path, "fused", rng.choice(["count", "sliding count", "time", "session"]), folder)
    *deaths, last = MANY["fused"]
    publishes = rng.choice([life for life in deaths if life.failpoint != "before-output"])  # else nothing is recovered
    other = rng.choice([life for life in deaths if life is not publishes])
    for number, life in enumerate([*rng.sample([publishes, other], 2), last]):
        case.live(
            number, replace(life, lost=life.lost if number else "", policy=rng.choice(["cec", "tight", "instant"]))
        )
    case.check()


@pytest.mark.long
@pytest.mark.drawn("crash: other moments")
@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in range(1, 4))])
def test_kills_at_random_moments(seed: int, folder: Path, draw: str, tmp_path: Path) -> None:
    """Of the whole session, or of whichever of Spark's Python workers is there."""
    moments = generator(draw, f"moments {seed}")
    case = Case(tmp_path, "fused", moments.choice(["count", "time", "session"]), folder)
    for number in range(4):
        policy = moments.choice(["cec", "tight", "instant"])
        child = case.program.start(Life("nowhere", policy=policy), tmp_path / "nobody")
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
