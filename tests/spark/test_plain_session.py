"""A program that brings its own Spark, with Spark's own settings: checksum files, adaptive plans, another time zone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

PROGRAM = Path(__file__).with_name("plain_session.py")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    # Without the session's settings, but with its Python.
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, str(PROGRAM), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_every_tuple_is_there_once_and_can_be_read_back(run):
    seen, _ = run
    assert seen["tuples"] >= 100
    assert seen["values"] == list(range(seen["tuples"]))
    assert seen["through python"] == seen["tuples"]
    assert seen["first seconds"] == 40
    assert seen["copied"] == seen["values"]
    assert seen["instants"] == [0], "a time zone moved the times"


def test_a_lost_and_a_torn_checkpoint_are_rebuilt_in_spite_of_checksum_files(run):
    seen, _ = run
    assert seen["crc files"] > 0, "this Spark keeps none: nothing was tested"
    assert seen["checkpoints"][0] is None
    assert all(mended.startswith("rebuilt") for mended in seen["checkpoints"][1:])


def test_stopping_is_no_failure(run):
    seen, errors = run
    assert seen["exceptions"] == ["None"] * 3
    assert [line for line in errors.splitlines() if "Traceback" in line or " ERROR " in line] == []


QUIET = """
import sys, time
import strandline as sl

spark = sl.session("local[2]", spark_driver_memory="1g")
source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).load()
entry = sl.persist(source, sys.argv[1], key="value", time="timestamp")
for _ in range(5):
    query = entry.start(trigger="0 s")
    before = query.progress.get("batch", -1)
    while query.progress.get("batch", -1) <= before:
        time.sleep(0.01)
    query.stop()
    assert query.exception() is None
    print("stopped", file=sys.stderr)
spark.stop()
"""


@pytest.mark.long
def test_stopping_a_query_of_our_session_writes_nothing_to_the_terminal(tmp_path):
    command = [sys.executable, "-c", QUIET, str(tmp_path / "s")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stderr.splitlines()
    # What comes after the last one is not about queries: Spark's daemon may complain when its JVM goes down first.
    last = len(lines) - lines[::-1].index("stopped")
    assert lines[lines.index("stopped") : last] == ["stopped"] * 5
