"""What a bound costs in Spark while nothing fails, and what happens in Spark when an input fails.

Overhead: three streams that are on disk before, and an average over their union (windows of ten seconds), once with
`.availability("3 s")` and once without, in turns. Time goes from the first commit to the last, so that starting a query
does not count. Batches are the same in all rounds; of each the best counts.

A failure: the paper's join over three streams that are written in real time by a thread of the driver's process, one of
which is cut off for some seconds. As without Spark, delays are read from the logs afterwards.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import strandline as sl
from benchmarks.bounded_operator import calm_results, delays, same_results
from benchmarks.harness import CORES, rounds, say, spread
from benchmarks.input_failures import SHORT_OF, TICK_S, Contender
from benchmarks.sensors import WRITE_S, Sensors, join_of, meets, sleep_until
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.log import Log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BOUND_S = 3.0
TRIGGER = f"{round(TICK_S * 1000)} ms"
ROUNDS = 5
"""At least so many for the overhead, which is small beside what other programs do to a run."""
PATIENCE_S = 120.0


# ---------------------------------------------------------------------- without a failure


def overhead(spark: SparkSession, commit: int, commits: int, repeat: int, folder: Path) -> dict[str, Any]:
    """Tuples a second with a bound and without one, and whether results are the same."""
    sensors = Sensors(folder / "in", 3, 0, partitions=CORES, durability="fsync")
    for number in range(commits):
        for stream in range(3):
            sensors.add(stream, commit // 3, (number + 1) * 1_000_000)
    sensors.finish()

    batches: dict[str, list[npt.NDArray[np.float64]]] = {"with": [], "without": []}

    def take_in(name: str) -> float:
        shutil.rmtree(folder / name, ignore_errors=True)
        mean = _union(sensors).window(sl.time_window("10 s")).aggregate(mean=sl.avg("value"), n=sl.count_all())
        operator = mean.availability(bound=f"{BOUND_S:g} s") if name == "with" else mean
        query = operator.start(spark, str(folder / name), trigger=TRIGGER, max_tuples_per_batch=commit)
        _await(query, lambda: bool(query.progress) and _opened(folder / name).state.finished)
        query.stop()
        batches[name].append(_batch_seconds(folder / name))
        return float(batches[name][-1].sum())

    for name, taken in batches.items():
        take_in(name)  # workers that have loaded their kernels
        taken.clear()
    seconds = rounds({name: partial(take_in, name) for name in batches}, max(ROUNDS, repeat))
    best = {name: float(np.min(taken, axis=0).sum()) for name, taken in batches.items()}
    row = {
        "overhead_ratio": round(best["without"] / best["with"], 3),
        "overhead": {
            "tuples": commit * commits,
            "tuples_per_s": {name: round(commit * (commits - 1) / taken) for name, taken in best.items()},
            "spread": {name: spread(taken) for name, taken in seconds.items()},
        },
        "stable_match": same_results(*(_opened(folder / name) for name in ("with", "without"))),
    }
    say(f"availability, in Spark: {row['overhead_ratio']:.2f} of the rate without a bound")
    for name in ("in", "with", "without"):
        shutil.rmtree(folder / name)
    return row


def _batch_seconds(path: Path) -> npt.NDArray[np.float64]:
    """From one commit to the next, of those that have taken in tuples."""
    commits = [m for m in _appends(path) if m.standings]
    taken = [sum(s.input for s in m.standings) for m in commits]
    last = int(np.argmax(np.asarray(taken) == taken[-1]))  # what follows says only that time has passed
    return np.diff([m.published_us for m in commits[: last + 1]]) / 1e6


# ---------------------------------------------------------------------- a failure


class _Writer(threading.Thread):
    """Writes the streams as time passes; one of them not, while it is cut off."""

    def __init__(self, sensors: Sensors) -> None:
        super().__init__(daemon=True)
        self._sensors = sensors
        self._ends = threading.Event()
        self.cut_off: list[int] = []

    def run(self) -> None:
        """Until it is told to end."""
        written = time.time()
        while not self._ends.is_set():
            self._sensors.write(round(written * 1e6), self.cut_off)
            written += WRITE_S
            sleep_until(written)
        self._sensors.finish()

    def end(self) -> None:
        """Nothing will follow."""
        self._ends.set()
        self.join()


def failure(
    spark: SparkSession, contender: Contender, seconds: float, tuples_per_s: int, folder: Path
) -> dict[str, Any]:
    """What a failure of an input of so many seconds means for a query in Spark."""
    sensors = Sensors(folder / "in", 3, tuples_per_s, partitions=CORES, durability="fsync")
    writer, results = _Writer(sensors), folder / "results"
    bound = f"{round(contender.bound_s * 1000)} ms"
    join = _union(sensors).apply(meets)
    operator = join.availability(bound=bound, failing=contender.failing, stabilizing=contender.stabilizing)
    writer.start()
    query = operator.start(spark, str(results), trigger=TRIGGER)
    try:
        _await(query, lambda: query.progress.get("state") == "STABLE" and query.progress.get("results", 0) > 0)
        time.sleep(1.0)
        began_s = time.time()
        writer.cut_off = [SHORT_OF]
        time.sleep(seconds)
        writer.cut_off = []
        time.sleep(2 * WRITE_S)
        _await(query, lambda: query.progress["state"] == "STABLE")
        time.sleep(1.0)
        writer.end()
        _await(query, lambda: _opened(results).state.finished)
    finally:
        query.stop()
    output = _opened(results)
    published_us = np.array([m.published_us for m in _appends(results)])
    found = delays(output, sensors, list(published_us), since_us=round((began_s - 1.0) * 1e6))
    apart_s = np.diff(published_us[published_us >= (began_s - 1.0) * 1e6]) / 1e6
    step_s = TICK_S + 2 * float(apart_s[apart_s < contender.bound_s / 2].max(initial=0))
    calm = calm_results(folder / "calm", sensors.paths, join_of(3))
    row = {
        "combination": contender.name,
        "bound_s": contender.bound_s,
        "failure_s": seconds,
        "delay_new_max_s": round(found.new_max_s, 3),
        "step_s": round(step_s, 3),
        "tentative": found.tentative,
        "bound_kept": found.new_max_s <= contender.bound_s + step_s,
        "stable_match": same_results(output, calm),
    }
    say(
        f"availability, in Spark, {contender.name}, a failure of {seconds:g} s: new tuples wait for "
        f"{row['delay_new_max_s']:.2f} s at most, {row['tentative']:,} tentative"
    )
    shutil.rmtree(folder)
    return row


def warm_up(spark: SparkSession, folder: Path) -> None:
    """Lets Spark's workers compile the join."""
    sensors = Sensors(folder / "in", 3, 0, partitions=CORES, durability="fsync")
    for stream in range(3):
        sensors.add(stream, 1_000, 1_000_000)
    sensors.finish()
    query = _union(sensors).apply(meets).start(spark, str(folder / "results"), trigger="available-now")
    query.await_termination()
    shutil.rmtree(folder)


def _union(sensors: Sensors) -> Any:
    return sl.union(*(sl.stream(str(path)) for path in sensors.paths))


def _await(query: sl.Query, is_so: Any) -> None:
    """Returns when it is so; raises what has stopped the query, or TimeoutError."""
    ends_s = time.time() + PATIENCE_S
    while not is_so():
        if (problem := query.exception()) is not None:
            raise problem
        if time.time() > ends_s:
            raise TimeoutError(f"the query has not come so far in {PATIENCE_S:.0f} s: {query.progress}")
        time.sleep(0.05)


def _opened(path: Path) -> Log:
    return Log.open(LocalStorage(path))


def _appends(path: Path) -> Sequence[AppendCommit]:
    return [m for m in _opened(path).after(-1) if isinstance(m, AppendCommit)]
