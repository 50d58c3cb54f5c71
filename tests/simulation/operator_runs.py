"""Many seeds of an operator's simulation, in two processes; a failure names its seed and how to run it again."""

from __future__ import annotations

import tempfile
from concurrent.futures import Executor
from contextlib import nullcontext
from pathlib import Path
from typing import Literal

import pyarrow as pa

from tests.simulation import lossy_world, operator_world
from tests.simulation.seeded_runs import WORKERS, failed
from tests.simulation.table_codec import table_codec

Inputs = Literal["one", "several", "keyed", "lossy", "class"]
REAL_CODEC_EVERY = 25
REAL_CACHE_EVERY = 4
TESTS = {
    "one": "test_operator_simulation",
    "several": "test_several_inputs_simulation",
    "keyed": "test_keyed_simulation",
    "lossy": "test_lossy_simulation",
    "class": "test_class_simulation",
}


def run_all(seeds: range, inputs: Inputs, workers: Executor) -> None:
    """Runs the seeds in other processes; a single one here, where a debugger can follow."""
    if len(seeds) == 1:
        run_here(seeds, inputs)
        return
    for done in [workers.submit(run_here, seeds[i::WORKERS], inputs) for i in range(WORKERS)]:
        done.result()


def run_here(seeds: range, inputs: Inputs) -> None:
    """Runs the seeds one by one."""
    with tempfile.TemporaryDirectory(dir=_fast_folder()) as folder:
        for seed in seeds:
            run(seed, Path(folder) / str(seed), inputs)


def run(seed: int, folder: Path, inputs: Inputs) -> list[pa.Table]:
    """Runs one seed; returns the results of each partition, raises if they are not right."""
    # Real Parquet and real files now and then; for the logic around them, tables in memory are as good and faster.
    with nullcontext() if seed % REAL_CODEC_EVERY == 0 else table_codec():
        cache = folder if seed % REAL_CACHE_EVERY == 0 else None
        try:
            return lossy_world.run(seed, cache) if inputs == "lossy" else operator_world.run(seed, cache, inputs)
        except BaseException as problem:
            raise failed(TESTS[inputs], seed, problem) from problem


def _fast_folder() -> str | None:
    """Memory that looks like a disk, if there is some."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
