"""A program that brings its own Spark, with Spark's own settings: checksum files, adaptive plans, another time zone."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.machine import patience

pytestmark = [pytest.mark.spark, pytest.mark.long]

PROGRAM = Path(__file__).with_name("plain_session.py")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    # Without the session's settings, but with its Python.
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, str(PROGRAM), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(280), env=environment, check=False)
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


def test_our_session_leaves_one_that_exists_as_it_is_and_says_what_is_missing(run):
    seen, _ = run
    assert seen["same"]
    assert seen["changed"] == ["spark.sql.python.filterPushdown.enabled"], "what register() sets if nobody has"
    (warning,) = seen["said"]
    assert "without spark.driver.memory=9g, spark.master=local[7]" in warning
    assert "slower for want of spark.python.unix.domain.socket.enabled" in warning


def test_a_session_that_keeps_filters_from_python_sources_is_read_without_them(run):
    seen, _ = run
    assert seen["forbidden"] == "false"
    assert seen["filtered"] == 40


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


def lines_of(program, *arguments, interrupt_after=None):
    """Returns a program's exit code and what it and its Spark write to the terminal until both are gone.

    Leaves out the line about kernels, which the first program that needs them prints: which test that is, varies.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    if interrupt_after is not None:
        while process.stdout.readline() != interrupt_after:
            assert process.poll() is None, process.stderr.read()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: everything that the program has started gets it
    # Spark's JVM has the same terminal until it is gone, which is after the program: the pipe is open until then.
    out, err = process.communicate(timeout=patience(280))
    lines = [line for line in err.splitlines() if "compiling the operator's kernels" not in line]
    return process.returncode, out.splitlines(), lines


def test_stopping_a_query_of_our_session_writes_nothing_to_the_terminal(tmp_path):
    code, _, err = lines_of(QUIET, tmp_path / "s")
    assert (code, err) == (0, ["stopped"] * 5)


ENDLESS = """
import sys, time
import strandline as sl

spark = sl.session("local[2]", spark_driver_memory="1g")
assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).load()
entry = sl.source(source, sys.argv[1], key="value", time="timestamp")
query = entry.window(sl.count_window(2)).aggregate(n=sl.count_all()).start(spark, sys.argv[1] + "-n", trigger="0 s")
while query.progress.get("results", None) is None:
    time.sleep(0.05)
print("running", flush=True)
"""
RIVAL = """
from strandline.log.stream.append_commit import Append
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.storage.storage_url import open_storage

other, published = Log.open(open_storage(sys.argv[1])), False
while not published:
    try:
        published = bool(other.append(Append(writer=Writer("another query", "its run", 7))))
    except sl.SecondWriterError:
        other.refresh()
"""


def test_an_error_that_ends_a_program_is_three_lines_and_names_sparks_log(tmp_path):
    code, _, err = lines_of(f"{ENDLESS}{RIVAL}query.await_termination()", tmp_path / "s")
    assert (code, len(err)) == (1, 3), err
    what, where, todo = err
    assert "SecondWriterError: another writer has published" in what
    assert where == f"  where: {tmp_path / 's'}"
    log = Path(todo.rpartition("Spark's log: ")[2])
    assert "SecondWriterError" in log.read_text(), "what is kept from the terminal is there"


@pytest.mark.parametrize("waits", [True, False])
def test_ctrl_c_and_a_missing_stop_are_one_line(waits, tmp_path):
    program = f"{ENDLESS}query.await_termination()" if waits else ENDLESS
    code, _, err = lines_of(program, tmp_path / "s", interrupt_after="running\n" if waits else None)
    assert code == (-signal.SIGINT if waits else 0)
    assert err == [f"strandline: the program ends, stopping the query of {tmp_path / 's'} after the batch under way"]
