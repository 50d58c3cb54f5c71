"""Two folders of files that never change, and lives and deaths of the program that joins them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.log.audit.stream_audit import verify
from strandline.log.kinds import only_results
from strandline.log.log import Log
from strandline.log.storage.local_storage import LocalStorage
from tests.crash.conftest import finish, output_of

PROGRAM = Path(__file__).with_name("several_program.py")
RETRYING = "local[2,4]"
FILES, ROWS = 5, 500


def write_files(root: Path) -> None:
    """Of each side a Parquet file a batch; nulls, ties, nested values, and some tuples that are late."""
    rng = np.random.default_rng(11)
    for side in ("left", "right"):
        where = root / f"{side}-files"
        where.mkdir(parents=True)
        for number in range(FILES):
            times = number * 4_000_000 + rng.integers(0, 400, ROWS) * 10_000
            times[:5] -= 3_900_000
            names = [None if n < 2 else f"{'name' * (n % 4)}{n}" for n in rng.integers(0, 20, ROWS)]
            tags = [None if n > 3 else list(range(n)) for n in rng.integers(0, 5, ROWS)]
            table = pa.table(
                {
                    "k": pa.array(rng.integers(0, 40, ROWS), mask=rng.random(ROWS) < 0.02),
                    "at": pa.array(times, pa.timestamp("us", tz="UTC")),
                    "v": pa.array(rng.random(ROWS), mask=rng.random(ROWS) < 0.1),
                    "more": pa.array(
                        [{"name": n, "tags": t} for n, t in zip(names, tags, strict=True)],
                        pa.struct([("name", pa.string()), ("tags", pa.list_(pa.int32()))]),
                    ),
                }
            )
            path = where / f"{number}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_000_000 + number, 1_000_000 + number))  # Spark takes the oldest file first


@dataclass(frozen=True)
class Life:
    """One start of the program, what it dies of, and what was lost before."""

    operators: str
    """What runs in the end, one after the other."""
    failpoint: str = ""
    """Where the driver dies; with `retried`, where a worker dies and its task is run again."""
    lost: str = ""
    """What somebody deletes before: "state", "spark checkpoint", or both."""
    policy: str = "cec"
    tasks_die: tuple[str, ...] = ()
    """Before, `failpoint:operators`: a query each that fails because a worker dies there."""
    retried: bool = False
    master: str = "local[2]"

    @property
    def dies(self) -> bool:
        return bool(self.failpoint) and not self.retried


@dataclass(frozen=True)
class Deaths:
    """Streams under a folder, and the lives of who works on them."""

    root: Path
    how: str

    def live(self, number: int, life: Life) -> None:
        """Runs the program to its end or its death."""
        if "state" in life.lost:
            # The life before may have died of an input, before the operator had left any; that a state was lost
            # where it mattered is asserted by the recoveries that the manifests speak of.
            shutil.rmtree(self.root / "state", ignore_errors=True)
        if "spark checkpoint" in life.lost:
            for name in life.operators.split():
                shutil.rmtree(self.root / name / "spark_checkpoint")
        child = self.start(number, life)
        try:
            finish(child, self.root / self.how, -signal.SIGKILL if life.dies else 0)
        except AssertionError as problem:
            problem.add_note(f"{self.how}, life {number}: {life}")
            raise
        if life.retried:
            assert self._marker(number).exists(), f"nobody came by {life.failpoint}"

    def _marker(self, number: int) -> Path:
        return self.root / f"{self.how}-{number}-died"

    def start(self, number: int, life: Life) -> subprocess.Popen[bytes]:
        """The program, in a session of its own."""
        environment = {**os.environ, "STRANDLINE_STATE_DIR": str(self.root / "state")}
        if life.failpoint:
            environment["STRANDLINE_FAILPOINT"] = life.failpoint
        if life.retried:
            environment["STRANDLINE_FAILPOINT_ONCE"] = str(self._marker(number))
        options = [f"--policy={life.policy}", f"--master={RETRYING if life.retried else life.master}"]
        options += ["--dies"] * life.dies + ["--tasks-die", *life.tasks_die]
        with output_of(self.root / self.how).open("ab") as output:
            return subprocess.Popen(
                [sys.executable, str(PROGRAM), self.how, str(self.root), *life.operators.split(), *options],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def check(self, *operators: str) -> None:
        """The results of each are those of the same one to which nothing happened: bit by bit, in their order."""
        for name in operators:
            found, expected = results(self.root / name), results(self.root / f"{name}-expected")
            assert [len(t) for t in found] == [len(t) for t in expected], name
            assert found == expected, name
            assert all(len(t) > 100 for t in found), name

    def deaths_survived(self, name: str) -> int:
        """How many recoveries the manifests of a stream speak of."""
        standings = [enumerate(m.standings) for m in Log.open(LocalStorage(self.root / name)).since(-1)]
        return len({(p, s.recovered["at_input"]) for found in standings for p, s in found if s.recovered is not None})


def results(stream: Path) -> list[pa.Table]:
    """The results of each partition in their order, doubles as their bits; the stream must be whole."""
    log = Log.open(LocalStorage(stream))
    report = verify(log)
    assert report.is_good, report.problems
    names = list(log.spec.columns)
    found = []
    for p in range(log.spec.partitions):
        parts = [only_results(t).select(names) for t in log.read(p, columns=names)]
        table = pa.concat_tables([log.spec.arrow.empty_table(), *parts]).combine_chunks()
        found.append(pa.table([_bits(table.column(n)) for n in names], names=names))
    return found


def _bits(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    if not pa.types.is_float64(column.type):
        return column
    return pa.concat_arrays([chunk.view(pa.int64()) for chunk in column.chunks] or [pa.array([], pa.int64())])
