"""Sensors that drift, and an alarm for every reading that is far from what its sensor has shown so far.

    python examples/10_zscore_alarms.py

The operator is a Python function, compiled and called once a reading with the state of its sensor: how many there were,
their mean, their spread. The program dies by SIGKILL as soon as it has published something. Started again it goes on
from its streams, and the alarms are those that plain Python raises over the same readings in one go.
"""

import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import strandline as sl

READINGS, SENSORS, FILES = 40_000, 50, 8
THRESHOLD = 4.0


@sl.keyed(state="n long, mean double, m2 double", output="value double, z double", expire="1 hour")
def zscore(state, row, out):
    """Welford's mean and variance of a sensor; a result where a reading is far off."""
    delta = row.value - state.mean
    spread = math.sqrt(state.m2 / (state.n - 1)) if state.n > 1 else 0.0
    state.n += 1
    state.mean += delta / state.n
    state.m2 += delta * (row.value - state.mean)
    if state.n <= 20 or spread == 0.0 or abs(delta) <= THRESHOLD * spread:
        return 0
    out.value = row.value
    out.z = delta / spread
    return sl.EMIT


def reading(number: int) -> tuple[int, float]:
    """The sensor and the value of a reading: noise, a slow drift, now and then a jump."""
    noise = math.sin(number * 12.9898) * 43758.5453
    drift = number / READINGS
    return number % SENSORS, noise - math.floor(noise) + drift + (5.0 if number % 4_001 == 4_000 else 0.0)


def plain_alarms() -> list[tuple[int, float]]:
    """The same in plain Python, all at once: sensor and z of each alarm."""
    found, states = [], {}
    for number in range(READINGS):
        sensor, value = reading(number)
        n, mean, m2 = states.get(sensor, (0, 0.0, 0.0))
        delta = value - mean
        spread = math.sqrt(m2 / (n - 1)) if n > 1 else 0.0
        n += 1
        mean += delta / n
        m2 += delta * (value - mean)
        states[sensor] = n, mean, m2
        if n > 20 and spread != 0.0 and abs(delta) > THRESHOLD * spread:
            found.append((sensor, delta / spread))
    return found


def work(folder: str) -> None:
    """What a user's program is: a source, an operator, a query."""
    spark = sl.session("local[2]")
    schema = spark.read.parquet(f"{folder}/files").schema
    files = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(f"{folder}/files")
    readings = sl.source(files, f"{folder}/readings", key="sensor", time="at", partitions=2, lateness="1 s")
    alarms = readings.apply(zscore).checkpoint(sl.cec(replay=5_000))
    alarms.start(spark, f"{folder}/alarms", trigger="available-now").await_termination()
    spark.stop()


def kill_half_way(folder: str) -> None:
    """Starts the program and kills it, and all that it has started, when some batches are published."""
    child = subprocess.Popen([sys.executable, __file__, folder], start_new_session=True)
    while len(list(Path(folder, "alarms", "commits").glob("*.json"))) < 3 and child.poll() is None:
        time.sleep(0.02)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        spark = sl.session("local[2]")
        for first in range(0, READINGS, READINGS // FILES):  # one after the other: Spark reads files in this order
            rows = [(n, *reading(n)) for n in range(first, first + READINGS // FILES)]
            part = spark.createDataFrame(rows, "n long, sensor long, value double")
            part = part.selectExpr("sensor", "timestamp_millis(n * 10) AS at", "value")
            part.coalesce(1).write.mode("append").parquet(f"{folder}/files")

        kill_half_way(folder)
        print(f"killed after {sl.stream(f'{folder}/alarms').read(spark).count()} alarms")
        subprocess.run([sys.executable, __file__, folder], check=True)

        found = sl.stream(f"{folder}/alarms").read(spark).orderBy("time", "sensor")
        found.show(3, truncate=False)
        alarms = [(row.sensor, row.z) for row in found.collect()]
        same = sorted(alarms) == sorted(plain_alarms())
        print(f"{len(alarms)} alarms; {'just' if same else 'NOT'} those of plain Python, bit by bit")
        spark.stop()


if __name__ == "__main__":
    work(sys.argv[1]) if len(sys.argv) > 1 else main()
