"""All simulations: what each promises, and the function that runs one seed of it and raises if a promise is broken."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import pyarrow as pa

from tests.simulation import (
    availability_world,
    chain_world,
    consumed_world,
    lossy_world,
    lost_file_world,
    operator_world,
    replica_input_world,
    replicas_world,
    world,
    written_query_world,
    written_replicas_world,
)
from tests.simulation.bounded_replica_input import BoundedLives
from tests.simulation.table_codec import table_codec
from tests.support.plain_codec import plain_codec

Inputs = Literal["one", "several", "keyed", "class", "stateless", "lossy"]
ROWS_PER_GROUP = (5, 20)
# Real Parquet and real files now and then. For the logic around them, tables in memory are as good and much faster.
REAL_CODEC_EVERY = 25
REAL_CACHE_EVERY = 4


@dataclass(frozen=True)
class Simulation:
    """One world that seeds decide."""

    name: str
    promise: str
    run: Callable[[int], object]
    fixed: int
    """How many seeds, from 0 on, every run of the tests tries beside those of the commit."""


def run_log(seed: int) -> None:
    """Runs one seed of a log under many processes."""
    with nullcontext() if seed % (2 * REAL_CODEC_EVERY) == 0 else plain_codec():
        world.run(seed)


def run_consumed(seed: int) -> None:
    """Runs one seed of a log that drops what its consumers have passed."""
    with plain_codec():
        consumed_world.run(seed)


def run_operator(inputs: Inputs, seed: int) -> list[pa.Table]:
    """Runs one seed of operators of a kind; returns the results of each partition."""
    codec = nullcontext() if seed % REAL_CODEC_EVERY == 0 else table_codec()
    with tempfile.TemporaryDirectory(dir=_fast_folder()) as folder, codec:
        cache = Path(folder) if seed % REAL_CACHE_EVERY == 0 else None
        return lossy_world.run(seed, cache) if inputs == "lossy" else operator_world.run(seed, cache, inputs)


def run_available(one: Callable[[int, Path | None], object], seed: int) -> None:
    """Runs one seed of operators with a bound."""
    codec = nullcontext() if seed % (2 * REAL_CODEC_EVERY) == 7 else table_codec(ROWS_PER_GROUP[seed % 2])
    with tempfile.TemporaryDirectory(dir=_fast_folder()) as folder, codec:
        one(seed, Path(folder) if seed % (5 * REAL_CACHE_EVERY) == 1 else None)


def run_with_tables(one: Callable[[int], object], seed: int) -> None:
    """Runs one seed, its blocks being tables in memory."""
    with table_codec():
        one(seed)


def run_query(seed: int) -> None:
    """Runs one seed of a query that reads stable results, and of one that reads all changes."""
    for tentative in (False, True):
        written_query_world.run(seed, tentative=tentative)


def run_bounded_replica_input(seed: int) -> None:
    """Runs one seed of an operator with a bound over replicas."""
    replica_input_world.run(seed, BoundedLives())


RIGHT = "results are those of a run without failures"
ONCE = "every result is read once, whichever replicas fail"
_ALL = (
    Simulation("log", "a log keeps what was published, whatever its processes and its disk do", run_log, 30),
    Simulation("lost-file", "a log that has lost a file raises an error or shows the truth", lost_file_world.run, 30),
    Simulation("consumed", "what no consumer has passed is kept", run_consumed, 30),
    Simulation("one", RIGHT, partial(run_operator, "one"), 8),
    Simulation("several", RIGHT, partial(run_operator, "several"), 8),
    Simulation("keyed", RIGHT, partial(run_operator, "keyed"), 4),
    Simulation("class", RIGHT, partial(run_operator, "class"), 8),
    Simulation("stateless", RIGHT, partial(run_operator, "stateless"), 8),
    Simulation("lossy", "policies that lose tuples lose those on record only", partial(run_operator, "lossy"), 4),
    Simulation("bounded", f"{RIGHT}, within the bound", partial(run_available, availability_world.run), 8),
    Simulation("chain", f"{RIGHT}, within the bound", partial(run_available, chain_world.run), 4),
    Simulation("rekeyed", f"{RIGHT}, within the bound", partial(run_available, chain_world.run_rekeyed), 4),
    Simulation("replicas", ONCE, partial(run_with_tables, replicas_world.run), 4),
    Simulation("replica-input", ONCE, partial(run_with_tables, replica_input_world.run), 2),
    Simulation("bounded-replica-input", ONCE, partial(run_with_tables, run_bounded_replica_input), 2),
    Simulation("written-replicas", ONCE, partial(run_with_tables, written_replicas_world.run), 4),
    Simulation("written-query", ONCE, partial(run_with_tables, run_query), 2),
)
SIMULATIONS = {simulation.name: simulation for simulation in _ALL}


def _fast_folder() -> str | None:
    """Returns memory that looks like a disk, if there is some."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
