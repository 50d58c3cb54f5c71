"""`spark.stop()` while elements are at work: all of them end, and are stopped without an error."""

import json
import subprocess
import sys

import pytest

from tests.support.machine import patience

pytestmark = pytest.mark.spark

PROGRAM = """
import json, sys, time
import strandline as sl

folder = sys.argv[1]
spark = sl.session("local[2]", spark_driver_memory="1g")
ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).load()
source = sl.source(ticks, folder + "/source", key="value", time="timestamp", lateness="1 s", max_ahead=None)
quiet = spark.readStream.schema("value long, timestamp timestamp").json(sys.argv[1])
alone = sl.source(quiet, folder + "/alone", key="value", time="timestamp", lateness="1 s", heartbeat="200 ms")
silent = sl.source(quiet, folder + "/silent", key="value", time="timestamp")
counted = source.window(sl.time_window("1 s")).aggregate(n=sl.count_all()).into(folder + "/counted")
run = sl.pipeline(counted, alone, silent).start(spark, trigger="200 ms")
fused = sl.source(ticks, folder + "/joined", key="value", time="timestamp", lateness="1 s", max_ahead=None)
seconds = fused.window(sl.time_window("1 s")).aggregate(n=sl.count_all())
query = seconds.start(spark, folder + "/fused", trigger="200 ms")
while not run[folder + "/counted"].progress.get("results") or not query.progress.get("results"):
    time.sleep(0.1)
spark.stop()
seen = {"ended": run._wait_for_the_end(float(sys.argv[2])) and query._run.wait(float(sys.argv[2]))}
seen["active"] = [each.is_active for each in run] + [query.is_active]
run.stop()
query.stop()
print(json.dumps(seen))
"""


def test_a_session_that_is_stopped_ends_sources_and_operators(tmp_path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(patience(30))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(120), check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {"ended": True, "active": [False] * 5}
    assert [line for line in done.stderr.splitlines() if "Traceback" in line] == []
