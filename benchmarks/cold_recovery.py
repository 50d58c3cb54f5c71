"""A recovery in a process that has just been started: on a machine that has its kernels, and on one that has nothing.

Measured from the start of the process to the end of the recovery: Python, imports, kernels, opening the logs, reading,
replaying. `new_process`: the kernels are kept on this machine. `new_container`: an empty folder for kernels, and those
of the driver given with the task, as Spark's executors get them. `compiling`: an empty folder, and nobody to give any.
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness import rounds, say, spread
from strandline.operators.kernels.kernel_bundle import pack
from strandline.operators.kernels.kernel_cache import TALLY

_PROGRAM = """
import sys
from pathlib import Path
from strandline.clock import process_age_s
from strandline.operators.kernels.kernel_cache import TALLY
if len(sys.argv) > 2:
    import pickle
    pickle.loads(Path(sys.argv[2]).read_bytes()).unpack()
from benchmarks.recovery import _recover
done = _recover(Path(sys.argv[1]))
print(process_age_s(), done.recovery.kernels_s, TALLY.compiled)
"""


def in_new_processes(folder: Path, warm_s: float, repeat: int, *, compiling: bool) -> dict[str, Any]:
    """Recoveries of the stream in this folder by new processes, beside the best one of this process."""
    bundle = folder / "kernels.bundle"
    bundle.write_bytes(pickle.dumps(pack(TALLY.names)))
    found: dict[str, list[_Started]] = {"new_process": [], "new_container": []}

    def new_process() -> float:
        return _start(found["new_process"], folder, {})

    def new_container() -> float:
        return _in_empty_folder(found["new_container"], folder, bundle)

    seconds = rounds({"new_process": new_process, "new_container": new_container}, repeat)
    best = {name: min(taken) for name, taken in seconds.items()}
    nothing: list[_Started] = []
    alone = {"compiling_s": round(_in_empty_folder(nothing, folder), 4)} if compiling else {}
    say(
        f"recovery in a new process {best['new_process']:.3f} s, in a new container {best['new_container']:.3f} s, "
        f"in this process {warm_s:.3f} s"
    )
    return {
        "warm_s": round(warm_s, 4),
        "cold_s": round(best["new_process"], 4),
        "new_container_s": round(best["new_container"], 4),
        **alone,
        "kernels_s": round(min(kernels_s for kernels_s, _ in found["new_process"]), 4),
        "container_to_process": round(best["new_container"] / best["new_process"], 3),
        "cold_to_warm": round(best["new_process"] / warm_s, 3),
        "cold_spread": {name: spread(taken) for name, taken in seconds.items()},
        "compiled_in_container": sum(compiled for _, compiled in found["new_container"]),
    }


_Started = tuple[float, int]
"""Seconds that a process spent on getting kernels, and how many it had to compile."""


def _in_empty_folder(found: list[_Started], folder: Path, *given: Path) -> float:
    empty = folder / "empty"
    try:
        return _start(found, folder, {"NUMBA_CACHE_DIR": str(empty)}, *given)
    finally:
        shutil.rmtree(empty, ignore_errors=True)


def _start(found: list[_Started], folder: Path, settings: Mapping[str, str], *given: Path) -> float:
    command = [sys.executable, "-c", _PROGRAM, str(folder), *map(str, given)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **settings}
    began = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    taken = time.perf_counter() - began
    age_s, kernels_s, compiled = done.stdout.split()
    found.append((float(kernels_s), int(compiled)))
    return taken if age_s == "None" else float(age_s)  # not every system tells how old a process is
