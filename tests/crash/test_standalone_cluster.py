"""A real Standalone cluster of two workers that Spark takes for two hosts, each with a state folder of its own.

Spark knows these hosts by address. Partitions stay where their state is, and do without it when the host dies.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyspark
import pytest

from strandline.log.operator_state.standing import Standing
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.log import Log
from tests.crash.conftest import finish, kill, output_of, processes, with_spark_log
from tests.crash.lives import results
from tests.support.items import append_items, item_spec
from tests.support.machine import patience

PROGRAM = Path(__file__).with_name("standalone_program.py")
HOSTS = ("127.0.0.2", "127.0.0.3")
PARTITIONS = 4
COMMITS = 60
WARM = 10
"""Commits after which kernels are compiled everywhere."""
KILLED_AT = 40
PATIENCE_S = patience(120)


class Cluster:
    """A master and two workers, each in a session of its own, so that a host can be killed with all that runs on it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"spark://127.0.0.1:{port}"
        self._daemons = {"master": self._daemon("master", "master.Master", "--host=127.0.0.1", f"--port={port}")}
        self._await("master", "Starting Spark master")
        for host in HOSTS:
            options = (f"--host={host}", "--cores=1", "--memory=1g", f"--work-dir={folder / host}", self.url)
            self._daemons[host] = self._daemon(host, "worker.Worker", *options)
        for host in HOSTS:
            self._await(host, "Successfully registered with master")

    def _daemon(self, name: str, kind: str, *options: str) -> subprocess.Popen[bytes]:
        home = os.path.dirname(pyspark.__file__)
        environment = {
            **os.environ,
            "SPARK_HOME": home,
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
            "STRANDLINE_STATE_DIR": str(self._folder / f"state-{name}"),
        }
        command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{kind}"]
        with self._log(name).open("ab") as log:
            return subprocess.Popen(
                [*command, *_spaced(("--webui-port=0", *options))],
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def _await(self, name: str, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text not in self._log(name).read_text(errors="replace"):
            is_late = time.monotonic() > deadline or self._daemons[name].poll() is not None
            assert not is_late, self._log(name).read_text(errors="replace")[-3000:]
            time.sleep(0.1)

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.txt"

    def kill(self, host: str) -> None:
        """The worker, its executor and its Python workers, at once and without a word."""
        assert any("ExecutorBackend" in command for _, command in processes(self._daemons[host].pid))
        kill(self._daemons[host])

    def stop(self) -> None:
        for daemon in self._daemons.values():
            kill(daemon)
            daemon.wait()


def _spaced(options: Sequence[str]) -> Iterator[str]:
    for option in options:
        yield from option.split("=", 1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "cluster").mkdir()
    cluster = Cluster(tmp_path / "cluster")
    try:
        yield cluster
    finally:
        cluster.stop()


def standings(stream: Path) -> list[tuple[Standing, ...]]:
    """Where the operator stood after each of its batches."""
    with contextlib.suppress(Exception):  # it may be about to begin
        return [m.standings for m in Log.open(LocalStorage(stream)).after(-1) if isinstance(m, AppendCommit)]
    return []


def recoveries(batches: Sequence[tuple[Standing, ...]]) -> list[int]:
    """Partitions that recovered in these batches but the first, one entry for each time."""
    pairs = [pair for a, b in itertools.pairwise(batches) for pair in enumerate(zip(a, b, strict=True))]
    return [p for p, (before, after) in pairs if after.recovered != before.recovered]


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.drawn("crash: clusters")
def test_partitions_stay_with_their_state_and_move_when_its_host_dies(cluster: Cluster, tmp_path: Path) -> None:
    rng = random.Random(5)
    log = Log.create(LocalStorage(tmp_path / "items", durability="os"), item_spec(PARTITIONS))
    for i in range(COMMITS):
        append_items(log, {p: [(rng.randrange(9), rng.randrange(99), i) for _ in range(20)] for p in range(PARTITIONS)})
    output = tmp_path / "output"
    with output_of(output).open("ab") as text:
        command = [sys.executable, str(PROGRAM), cluster.url, str(tmp_path / "items"), str(output)]
        child = subprocess.Popen(command, stdout=text, stderr=text, env=with_spark_log(output), start_new_session=True)
    try:
        while len(before := standings(output)) < KILLED_AT and child.poll() is None:
            time.sleep(0.2)
        cluster.kill(HOSTS[0])
        finish(child, output)
    finally:
        kill(child)
        child.wait()
    after = standings(output)
    assert len(after) == COMMITS

    steady = before[WARM:]
    moved = recoveries(steady)
    assert len(moved) < 0.05 * PARTITIONS * len(steady), f"{len(moved)} recoveries in {len(steady)} batches"
    assert Counter(s.host for s in steady[-1]) == dict.fromkeys(HOSTS, PARTITIONS // len(HOSTS)), "a fair share each"

    orphans = {p for p, s in enumerate(before[-1]) if s.host == HOSTS[0]}
    assert {s.host for s in after[-1]} == {HOSTS[1]}
    assert orphans <= set(recoveries(after[len(before) - 1 :]))
    assert results(output) == results(Path(f"{output}-expected"))
