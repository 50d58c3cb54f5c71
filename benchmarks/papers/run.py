"""Runs experiments one after the other, each in a process of its own, and writes the pages after each."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.harness import workspace
from benchmarks.papers.drawing import pyplot_or_error
from benchmarks.papers.figure import Data, Experiment, Size, Verdict
from benchmarks.papers.pages import write_pages
from benchmarks.papers.results import Results, verdict

_LINES_SHOWN = 15


def run_all(
    asked: Sequence[Experiment], size: Size, out: Path, began: Callable[[int, Experiment], None], ended: _Ended
) -> Results:
    """Runs the experiments; an interruption keeps what is done. Calls `began` and `ended` for each of them."""
    pyplot_or_error()  # before an hour of measurements
    out.mkdir(parents=True, exist_ok=True)
    results = Results(out)
    for number, experiment in enumerate(asked):
        began(number, experiment)
        since = time.monotonic()
        data, problem = _in_a_process(experiment, size)
        seconds = time.monotonic() - since
        results.add(experiment, size, seconds, data, problem)
        write_pages(results)
        outcome = results.experiments[experiment.name]
        ended(experiment, [verdict(figure, outcome) for figure in experiment.figures], seconds, problem)
    return results


_Ended = Callable[[Experiment, Sequence[Verdict], float, str], None]


def _in_a_process(experiment: Experiment, size: Size) -> tuple[Data | None, str]:
    """Returns what an experiment has found, or the last lines of what it said if it failed."""
    with workspace() as folder, tempfile.TemporaryFile("w+") as log:
        file = folder / "found.json"
        (folder / "work").mkdir()
        command = [sys.executable, "-m", "benchmarks.papers.one_experiment", experiment.name, size]
        paths = os.pathsep.join(path for path in sys.path if path)
        child = subprocess.Popen(
            [*command, str(folder / "work"), str(file)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": paths},
            start_new_session=True,  # its Spark ends with it
        )
        with _ending(child):
            child.wait()
        if child.returncode == 0 and file.exists():
            found: Data = json.loads(file.read_text())
            return found, ""
        log.seek(0)
        said = "\n".join(log.read().splitlines()[-_LINES_SHOWN:])
        return None, said or f"the experiment ended with exit status {child.returncode}"


@contextlib.contextmanager
def _ending(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kills the process and all that it has started, whatever ends the block."""
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
