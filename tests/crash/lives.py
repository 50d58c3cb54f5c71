"""Lives of the programs that the tests kill, and what they have published in the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from strandline.log.audit.stream_audit import verify
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.kinds import only_results
from strandline.log.stream.log import Log
from tests.crash.conftest import finish, output_of, with_spark_log

RETRYING = "local[2,4]"
SMALL_BLOCKS = Path(__file__).with_name("small_blocks")


@dataclass(frozen=True)
class Life:
    """One start of a program, what it dies of, and what was lost before."""

    failpoint: str = ""
    """Where the driver dies; with `retried`, where a worker dies and its task is run again."""
    operators: str = ""
    """What runs in the end, one after the other, in a program that has several."""
    lost: str = ""
    """What somebody deletes before: "state", "spark checkpoint", or both."""
    policy: str = "cec"
    tasks_die: tuple[str, ...] = ()
    """Where workers die before, so that queries fail and are started again by the same driver; of a program with
    several operators, `failpoint:operators`."""
    retried: bool = False
    master: str = "local[2]"

    @property
    def dies(self) -> bool:
        return bool(self.failpoint) and not self.retried


@dataclass(frozen=True)
class Program:
    """A program, its arguments, where its state lies, and the file that has what it says."""

    file: Path
    arguments: tuple[str, ...]
    root: Path
    output: Path

    def live(self, life: Life, number: int) -> None:
        """Runs it to its end or its death."""
        marker = self.root / f"{self.output.name}-{number}-died"
        child = self.start(life, marker)
        try:
            finish(child, self.output, -signal.SIGKILL if life.dies else 0)
        except AssertionError as problem:
            problem.add_note(f"{self.output.name}, life {number}: {life}")
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
        if any("between-blocks" in death for death in life.tasks_die):
            environment["PYTHONPATH"] = str(SMALL_BLOCKS)
        options = [f"--policy={life.policy}", f"--master={RETRYING if life.retried else life.master}"]
        options += ["--dies"] * life.dies + ["--tasks-die", *life.tasks_die]
        with output_of(self.output).open("ab") as output:
            return subprocess.Popen(
                [sys.executable, str(self.file), *self.arguments, *life.operators.split(), *options],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=with_spark_log(self.output, environment),
                start_new_session=True,
            )


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
