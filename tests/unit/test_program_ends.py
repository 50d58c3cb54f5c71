"""What a program prints when it ends: an error of ours, Ctrl-C, a query that nobody has stopped. Without a JVM."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import strandline as sl
from strandline.spark.query import spark_log
from strandline.spark.query.error_in_text import meaning
from strandline.spark.query.query import Query
from strandline.spark.query.waiting import wait_for
from tests.support.machine import patience

QUERY = """
import signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
import strandline as sl
from strandline.spark.query import last_words, running

class Query:
    def __init__(self, url):
        self.urls, self.is_active = (url,), True
        running.began(self)

    def stop(self):
        # As a batch under way does: thread pools must still be open.
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(lambda: 1).result() == 1
        exec("")  # as a dataclass does that is imported only now, after which Python forgets that it was interrupted
        self.is_active = False
        print("stopped", *self.urls, flush=True)
"""


def run(program, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", QUERY + program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def output(process):
    out, err = process.communicate(timeout=patience(60))
    return process.returncode, out.splitlines(), err.splitlines()


def test_an_error_of_ours_prints_as_three_lines_with_the_line_of_the_program():
    program = """
last_words.install()
def inner():
    raise sl.SecondWriterError("another writer", where="here", todo="stop it")
inner()
"""
    code, _, lines = output(run(program))
    assert code == 1
    assert lines == [
        f"<string>, line {QUERY.count(chr(10)) + 4}: SecondWriterError: another writer",
        "  where: here",
        "  to do: stop it",
    ]


def test_a_session_that_cannot_start_says_so_without_a_traceback():
    code, _, lines = output(run("sl.session()", JAVA_HOME="/nonsense"))
    assert code == 1
    assert [line.partition(": ")[2] for line in lines] == [
        "StrandlineError: Spark does not start: JAVA_HOME is /nonsense, where there is no bin/java",
        "set JAVA_HOME to the folder of a Java 17 or newer, or unset it",
    ]


def test_ctrl_c_while_a_session_starts_is_one_line():
    program = """
from strandline.spark.session import session
def interrupted(*_):
    raise KeyboardInterrupt
session._require_java, session._started = lambda: None, interrupted
sl.session()
"""
    code, _, lines = output(run(program))
    assert code == -signal.SIGINT
    line = QUERY.count(chr(10)) + 6
    assert lines == [f"<string>, line {line}: interrupted while sl.session() was starting Spark"]


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("strandline.spark.read", "interrupted while sl.session was loaded"),
        ("pyspark", "interrupted while sl.session() was starting Spark"),
    ],
)
def test_ctrl_c_while_a_session_is_loaded_is_one_line(part, words):
    program = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupted:
    def find_spec(self, name, *_):
        if name == {part!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
import strandline as sl
sl.session()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    code, _, lines = output(process)
    assert code == -signal.SIGINT
    assert lines == [f"<string>, line 10: {words}"]


@pytest.mark.parametrize(
    ("program", "environment"),
    [
        ("last_words.install()\nraise ValueError('theirs')", {}),
        ("last_words.install()\nraise sl.OptionError('ours')", {"STRANDLINE_TRACEBACK": "1"}),
        (
            "sys.excepthook = lambda *told: print('Traceback, their own', file=sys.stderr)\nlast_words.install()\n1/0",
            {},
        ),
    ],
)
def test_other_errors_and_programs_that_want_it_have_tracebacks_as_ever(program, environment):
    _, _, lines = output(run(program, **environment))
    assert lines[0].startswith("Traceback")


def test_a_program_that_ends_with_queries_running_stops_the_newest_first_and_says_so_in_one_line():
    program = """
first, second, third = Query("a"), Query("b"), Query("c")
second.stop()
"""
    code, out, err = output(run(program))
    assert (code, out) == (0, ["stopped b", "stopped c", "stopped a"])
    assert err == ["strandline: the program ends, stopping 2 queries after the batch under way"]


def test_a_program_that_has_stopped_its_queries_ends_in_silence():
    assert output(run("Query('a').stop()")) == (0, ["stopped a"], [])


def test_a_fork_leaves_its_parents_queries_alone():
    program = """
import os
query = Query("a")
if os.fork() == 0:
    sys.exit(0)
os.wait()
"""
    code, out, err = output(run(program))
    assert (code, out, len(err)) == (0, ["stopped a"], 1)


WAITING = """
from strandline.spark.query.waiting import wait_for
last_words.install()
query = Query("a")
print("waiting", flush=True)
wait_for(threading.Event().wait, None)
"""


def test_ctrl_c_while_a_program_waits_stops_the_query_and_says_so_in_one_line():
    process = run(WAITING)
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    code, out, err = output(process)
    assert (code, out) == (-signal.SIGINT, ["stopped a"])
    assert err == ["strandline: the program ends, stopping the query of a after the batch under way"]


def test_a_second_ctrl_c_does_not_wait_for_the_batch_under_way():
    program = "\nQuery.stop = lambda self: (print('stopping', flush=True), time.sleep(60))\n" + WAITING
    process = run(program)
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "stopping\n"
    process.send_signal(signal.SIGINT)
    code, _, err = output(process)
    assert (code, len(err)) == (-signal.SIGINT, 1)


def test_waiting_does_not_let_pysparks_handler_cancel_the_batches():
    def cancels(_number, _frame):
        raise AssertionError("every job was cancelled")

    cancels.__module__ = "pyspark.core.context"
    before = signal.signal(signal.SIGINT, cancels)
    try:
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            wait_for(threading.Event().wait, patience(20))
        assert signal.getsignal(signal.SIGINT) is cancels
    finally:
        signal.signal(signal.SIGINT, before)


class Run:
    """What a query shows, as far as its end is concerned: ended, well or with this."""

    spark_query, name, urls, is_active = None, None, ("somewhere",), False
    stops_with_program = True

    def __init__(self, failure=None):
        self.failure = failure
        self.stopped = 0

    def wait(self, timeout_s):
        return True

    def stop(self, patience_s):
        self.stopped += 1

    def exception(self):
        return self.failure


def test_a_with_block_stops_its_query():
    run = Run()
    with Query(run) as query:
        assert run.stopped == 0
    assert run.stopped == 1
    assert query.exception() is None


def test_a_with_block_raises_what_had_stopped_its_query_once():
    failed = Run(sl.NoSpaceError("full"))
    with pytest.raises(sl.NoSpaceError), Query(failed):
        pass
    with Query(failed) as query, pytest.raises(sl.NoSpaceError):
        query.await_termination()
    with pytest.raises(KeyError), Query(failed):
        raise KeyError


def test_what_stopped_a_query_comes_without_sparks_history_and_with_its_log(monkeypatch, tmp_path):
    monkeypatch.setattr(spark_log, "_current", tmp_path / "spark.log")
    told = "Traceback\nstrandline.errors.SecondWriterError: another writer\n  where: there\n  to do: stop it\n at a.b.c"
    query = Query(Run(meaning(RuntimeError(told), "elsewhere")))
    with pytest.raises(sl.SecondWriterError) as raised:
        query.await_termination()
    assert str(raised.value).splitlines() == [
        "another writer",
        "  where: there",
        f"  to do: stop it; Spark's log: {tmp_path / 'spark.log'}",
    ]
    assert raised.value.__suppress_context__


def test_a_python_process_that_spark_did_not_wait_for_is_an_error_that_says_what_to_do():
    told = "[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST"
    found = meaning(RuntimeError(told), "stream /data/by-shop")
    assert isinstance(found, sl.StrandlineError)
    assert found.what == (
        "the Python process that reads a stream for Spark has not started within 10 s; nothing is lost"
    )
    assert found.where == "stream /data/by-shop"
    assert found.todo.startswith("start the query again")


def test_sparks_log_is_a_private_file_and_old_ones_go(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.delenv("STRANDLINE_SPARK_LOG", raising=False)
    monkeypatch.setattr(spark_log, "_current", None)
    log = spark_log.begin()
    assert log.parent.stat().st_mode & 0o077 == 0
    old = log.with_name("spark-20200101-000000-1.log")
    for file in (log, old):
        file.write_text("a line\n\n")
    os.utime(old, (1_600_000_000,) * 2)
    assert spark_log.begin() == spark_log.current()
    assert log.exists()
    assert not old.exists()
    assert spark_log.last_line(log) == "a line"
    monkeypatch.setenv("STRANDLINE_SPARK_LOG", "-")
    assert spark_log.begin() is None
    monkeypatch.setenv("STRANDLINE_SPARK_LOG", str(tmp_path / "mine" / "spark.log"))
    assert spark_log.begin() == tmp_path / "mine" / "spark.log"


def test_ctrl_c_while_the_jvm_starts_leaves_no_jvm_behind():
    program = """
import subprocess
from strandline.spark.session import session
import pyspark.java_gateway
begun = []
def launch(*_):
    begun.append(pyspark.java_gateway.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
    raise KeyboardInterrupt
pyspark.java_gateway.launch_gateway = launch
session._require_java = lambda: None
try:
    sl.session()
except KeyboardInterrupt as interrupt:
    print(interrupt, begun[0].wait())
assert pyspark.java_gateway.Popen is subprocess.Popen
"""
    code, out, lines = output(run(program))
    assert (code, lines) == (0, [])
    assert out == [f"interrupted while sl.session() was starting Spark {-signal.SIGKILL}"]
