"""Two attempts of one task at once: one freezes in mid-task, Spark runs another, the frozen one wakes up late."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest

from tests.crash.conftest import PATIENCE_S, content, finish, kill, processes, start

pytestmark = pytest.mark.long  # a standalone cluster and frozen processes: minutes, not seconds

Cluster = tuple[str, list[subprocess.Popen[bytes]]]
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Spark's own cluster: its address and daemons. A second attempt is made on another host only, so there are two."""
    folder = tmp_path_factory.mktemp("cluster")
    daemons: list[subprocess.Popen[bytes]] = []

    def launch(name: str, *arguments: str) -> Path:
        output = folder / f"{name}.txt"
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_DAEMON_MEMORY": "256m"}
        with output.open("wb") as file:
            command = [str(SPARK_CLASS), f"org.apache.spark.deploy.{arguments[0]}", *arguments[1:], "--webui-port", "0"]
            daemon = subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
        daemons.append(daemon)
        return output

    try:
        output = launch("master", "master.Master", "--host", "127.0.0.1", "--port", "0")
        until(lambda: "spark://127.0.0.1:" in output.read_text())
        url = re.findall(r"spark://127\.0\.0\.1:\d+", output.read_text())[0]
        for host in ("127.0.0.1", "127.0.0.2"):
            options = ["--host", host, "--cores", "1", "--memory", "2g", "--work-dir", str(folder / host)]
            launch(host, "worker.Worker", *options, url)
        yield url, daemons
    finally:
        for daemon in daemons:
            kill(daemon)
            daemon.wait()


SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "20ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "20ms",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.memory.offHeap.enabled": "false",
    "spark.executorEnv.STRANDLINE_FAILPOINT": "during-seal",
    "spark.executorEnv.STRANDLINE_FAILPOINT_SIGNAL": "SIGSTOP",
}


@pytest.mark.drawn("crash: clusters")
@pytest.mark.parametrize("blocks", ["native", "arrow"])
def test_a_frozen_attempt_that_wakes_up_late_publishes_nothing(
    blocks: str,
    cluster: Cluster,
    folder: Path,
    expected: list[pa.Table],
    tmp_path: Path,
) -> None:
    master, daemons = cluster
    stream, marker = tmp_path / "items", tmp_path / "frozen"
    settings = {**SETTINGS, "spark.executorEnv.STRANDLINE_FAILPOINT_ONCE": str(marker)}
    options = ["--master", master, "--blocks", blocks]
    child = start(folder, stream, [*options, *(f"--setting={name}={value}" for name, value in settings.items())])
    try:
        # Only a second attempt can publish the first batch.
        until(lambda: list(stream.glob("commits/*.json")) or child.poll() is not None)
        frozen = [pid for daemon in daemons for pid, _ in processes(daemon.pid, state="T")]
        assert marker.exists(), "no attempt was frozen"
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    finally:
        finish(child, stream)
    assert frozen, "the frozen attempt was gone before it could wake up"
    assert content(stream) == expected


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.05)
