"""How long a killed program takes to its first new result, and a Spark without Strandline to its first batch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from examples.demo import bare_spark
from strandline.clock import SYSTEM_CLOCK, stopwatch_s
from strandline.errors import StrandlineError
from strandline.log.stream.log import Log
from strandline.spark.session.session import find_java

_POLL_S = 0.02


@contextmanager
def spark_process(command: Sequence[str], settings: Mapping[str, str] | None = None) -> Iterator[Program]:
    """Yields a program with a process group of its own, which is killed with its JVM at the end of the block."""
    find_java()
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            [sys.executable, *command],
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, **(settings or {})},
        )
        program = Program(child, output)
        try:
            yield program
        finally:
            program.kill()


class Program:
    """A process that uses Spark."""

    def __init__(self, child: subprocess.Popen[Any], output: IO[bytes]) -> None:
        self._child = child
        self._output = output

    @property
    def has_ended(self) -> bool:
        """True when the process has ended."""
        return self._child.poll() is not None

    def kill(self) -> None:
        """Kills the process, if it runs, and its JVM."""
        if not self.has_ended:
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def require_success(self) -> None:
        """Raises, with the end of what it has said, if the process has ended with an error."""
        if self._child.returncode:
            self._output.seek(0)
            text = self._output.read().decode(errors="replace").strip()
            raise StrandlineError(
                f"the Spark process failed:\n{text[-2000:]}",
                todo="is there a Java 17 or newer? see docs/start.md",
            )


def bare_spark_s() -> float:
    """Returns the seconds that a Spark without Strandline takes from the start of Python to its first micro-batch."""
    with tempfile.TemporaryDirectory() as folder:
        began_s = stopwatch_s()
        with spark_process([bare_spark.__file__, folder]) as program:
            while not (Path(folder) / "counted").exists():
                if program.has_ended:
                    program.require_success()
                SYSTEM_CLOCK.sleep(_POLL_S)
            return stopwatch_s() - began_s


def results_in(log: Log) -> int:
    """Returns the number of results that were published, over all partitions."""
    return sum(standing.results or 0 for standing in log.state.standings)
