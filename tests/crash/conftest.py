"""Input that never changes, a reference run without failures, and a way to run and kill the program."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.log.audit.stream_audit import verify
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.column_types import block_schema
from strandline.log.stream.log import Log
from tests.support.machine import patience

PROGRAM = Path(__file__).with_name("program.py")
BATCHES = 5
ROWS = 2_000
PATIENCE_S = patience(240)
SHOWN = 3_000
"""So many characters of what a program said are shown when it ends as it should not."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever lies in this folder kills processes."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.crash)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One Parquet file a batch; some tuples of each are late, and the first file comes first."""
    where = tmp_path_factory.mktemp("input")
    rng = np.random.default_rng(7)
    for batch in range(BATCHES):
        times = batch * 10_000_000 + rng.permutation(ROWS) * 4_000
        times[:20] -= 9_000_000
        table = pa.table(
            {
                "item_id": rng.integers(0, 50, ROWS),
                "item_price": rng.random(ROWS),
                "item_time": pa.array(times, pa.timestamp("us", tz="UTC")),
            }
        )
        path = where / f"{batch}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_000_000 + batch, 1_000_000 + batch))  # Spark takes the oldest file first
    return where


@pytest.fixture(scope="session")
def expected(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[pa.Table]:
    """What an uninterrupted run publishes."""
    stream = tmp_path_factory.mktemp("reference") / "items"
    run(folder, stream)
    tables = content(stream)
    assert sum(len(t) for t in tables) == BATCHES * ROWS
    assert len(tables[-1]) > 0, "the late side log should have something in it"
    return tables


def run(
    folder: Path,
    stream: Path,
    *options: str,
    failpoint: str | None = None,
    once: Path | None = None,
    dies: bool = False,
) -> None:
    """Runs the program to its end, or to the failpoint that kills it."""
    environment = dict(os.environ)
    if failpoint:
        environment["STRANDLINE_FAILPOINT"] = failpoint
    if once:
        environment["STRANDLINE_FAILPOINT_ONCE"] = str(once)
    child = start(folder, stream, options, environment)
    finish(child, stream, status=-signal.SIGKILL if dies else 0)


def finish(child: subprocess.Popen[bytes], stream: Path, status: int = 0) -> None:
    """Waits for the end of the program, and sees to it that nothing of it lives on."""
    try:
        child.wait(timeout=PATIENCE_S)
    finally:
        kill(child)  # a driver that was killed leaves its JVM behind for a moment
    assert child.returncode == status, f"{child.returncode}:\n{said_by(stream)}"


def start(
    folder: Path, stream: Path, options: Sequence[str] = (), environment: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """The program, in a session of its own."""
    with output_of(stream).open("ab") as output:
        return subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder), str(stream), *options],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=with_spark_log(stream, environment),
            start_new_session=True,
        )


def output_of(stream: Path) -> Path:
    return stream.with_name(f"{stream.name}-output.txt")


def with_spark_log(stream: Path, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns the environment of a program whose Spark writes beside the program's output."""
    return {**(os.environ if environment is None else environment), "STRANDLINE_SPARK_LOG": str(spark_log_of(stream))}


def spark_log_of(stream: Path) -> Path:
    return stream.with_name(f"{stream.name}-spark.log")


def said_by(stream: Path) -> str:
    """Returns the last lines of a program and of its Spark, in all of its lives."""
    log = spark_log_of(stream)
    told = log.read_text(errors="replace")[-SHOWN:] if log.exists() else "there is none"
    return f"{output_of(stream).read_text(errors='replace')[-SHOWN:]}\nSpark's log:\n{told}"


def kill(child: subprocess.Popen[bytes]) -> None:
    """SIGKILL for all of them: Python, the JVM, executors, Python workers."""
    for pid, _ in processes(child.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def processes(session: int, state: str = "") -> list[tuple[int, str]]:
    """Process ids and commands of a session; state "T" is for those that are stopped.

    Spark's Python workers are in a process group of their own, but in the session of the program.
    """
    listing = subprocess.run(
        ["ps", "-ww", "-eo", "pid,sess,stat,args"], capture_output=True, text=True, check=True
    ).stdout
    found = [line.split(None, 3) for line in listing.splitlines()[1:]]
    return [(int(pid), args) for pid, sess, stat, args in found if int(sess) == session and stat.startswith(state)]


def content(stream: Path) -> list[pa.Table]:
    """Every tuple with its offset, a table per partition, the late side log last; the stream must be whole."""
    log = Log.open(LocalStorage(stream))
    report = verify(log)
    assert report.is_good, report.problems
    log = Log.open(LocalStorage(stream))
    empty = block_schema(log.spec.arrow).empty_table()
    return [pa.concat_tables([empty, *log.read(p)]).combine_chunks() for p in range(log.spec.partitions + 1)]
