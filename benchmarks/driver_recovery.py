"""A driver that is killed: from its SIGKILL to the first new result, beside the start of a Spark without Strandline.

The program is that of `strandline demo`: items stream in, an operator averages them. It is killed while it works, and
started again at once on the same machine, as `strandline run` would do it after its pause. Both times begin with the
start of Python. Each round restores the folder that the kill has left.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import rounds, say, spread
from examples.demo import demo_items
from examples.demo.time_to_result import Program, bare_spark_s, results_in, spark_process
from strandline.errors import StreamNotFoundError
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log

_TUPLES = 100_000_000
"""More than the program ever gets to."""
_KILLED_AFTER = 20_000
"""Results."""
_POLL_S = 0.02


def driver_recovery(folder: Path, repeat: int) -> dict[str, Any]:
    """Kills the driver, and measures how long it takes to its first new result, and a bare Spark to its first batch."""
    left, again = folder / "left", folder / "again"
    _work_until(again, _KILLED_AFTER)
    shutil.copytree(again, left)

    def first_result() -> float:
        shutil.rmtree(again)
        shutil.copytree(left, again)
        return _work_until(again, results_in(_log(again)) + 1)

    seconds = rounds({"first_result": first_result, "bare_spark": bare_spark_s}, repeat)
    best = {name: min(taken) for name, taken in seconds.items()}
    say(f"first result of a killed driver {best['first_result']:.2f} s, a bare Spark {best['bare_spark']:.2f} s")
    return {
        "first_result_s": round(best["first_result"], 3),
        "bare_spark_s": round(best["bare_spark"], 3),
        "first_result_to_bare_spark": round(best["first_result"] / best["bare_spark"], 3),
        "driver_spread": {name: spread(taken) for name, taken in seconds.items()},
    }


def _work_until(folder: Path, results: int) -> float:
    """Runs the program until it has published so many results, and kills it; returns the seconds from its start."""
    began = time.perf_counter()
    settings = {"STRANDLINE_STATE_DIR": str(folder / "state")}
    with spark_process([demo_items.__file__, str(folder), str(_TUPLES)], settings) as program:
        _wait_for_stream(folder, program)
        log = _log(folder)
        while results_in(log) < results:
            _pause(program)
            log.refresh()
        return time.perf_counter() - began


def _wait_for_stream(folder: Path, program: Program) -> None:
    while True:
        try:
            _log(folder)
            return
        except StreamNotFoundError:
            _pause(program)


def _pause(program: Program) -> None:
    if program.has_ended:
        program.require_success()
    time.sleep(_POLL_S)


def _log(folder: Path) -> Log:
    return Log.open(LocalStorage(folder / demo_items.AVERAGE))
