"""`strandline run` over small programs without Spark: what is started again, what is said, and how all of it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from strandline.cli import run as run_command
from strandline.cli.app import app
from strandline.spark.query.restart import Restart
from tests.support.machine import patience

QUICK = Restart(0.02)
LIVES = """
import os, pathlib, signal, subprocess, sys, time
folder = pathlib.Path(sys.argv[1])
number = len(list(folder.glob("life-*")))
(folder / f"life-{number}").write_text(os.environ.get("STRANDLINE_COPY", ""))
exec([*sys.argv[2:], "sys.exit()"][min(number, len(sys.argv) - 2)])
"""
"""A program whose first argument is a folder for its notes, and each further one what it does in its next life; in
those that come after, it ends well."""
KILLED = "os.kill(os.getpid(), signal.SIGKILL)"


def lives(folder: Path, *deeds: str) -> list[str]:
    file = folder / "lives.py"
    file.write_text(LIVES)
    return [sys.executable, str(file), str(folder), *deeds]


def supervised(command: Sequence[str], restart: Restart | None = QUICK, copies: int = 1) -> tuple[int, list[str]]:
    said: list[str] = []
    return run_command.supervise(command, "lives.py", restart, copies, said.append), said


def started(folder: Path) -> int:
    return len(list(folder.glob("life-*")))


def test_a_program_that_dies_is_started_again_with_one_line_each_time_until_it_ends_well(tmp_path: Path) -> None:
    command = lives(tmp_path, KILLED, "sys.exit(7)", "raise ValueError('theirs')", "pass")
    code, said = supervised(command)
    assert (code, started(tmp_path)) == (0, 4)
    assert [line.partition(" after ")[0] for line in said] == [
        "strandline run: lives.py died of SIGKILL",
        "strandline run: lives.py ended with exit code 7",
        "strandline run: lives.py ended with exit code 1",
    ]
    assert all(line.endswith("; starts again in 20 ms") for line in said)


def test_a_program_that_ends_well_runs_once_in_silence(tmp_path: Path) -> None:
    assert supervised(lives(tmp_path, "sys.exit()")) == (0, [])


@pytest.mark.parametrize(("deed", "code"), [("sys.exit(7)", 7), (KILLED, 128 + signal.SIGKILL)])
def test_without_restarts_the_exit_code_is_that_of_the_only_run(tmp_path: Path, deed: str, code: int) -> None:
    assert supervised(lives(tmp_path, deed), restart=None) == (code, [])


def test_an_interrupted_program_is_not_started_again(tmp_path: Path) -> None:
    interrupted = "signal.signal(signal.SIGINT, signal.default_int_handler); os.kill(os.getpid(), signal.SIGINT)"
    assert supervised(lives(tmp_path, interrupted)) == (128 + signal.SIGINT, [])


def test_in_a_loop_of_deaths_the_pauses_grow_and_after_a_long_run_they_begin_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.spark.query.restart._FIRST_S", 0.01)
    monkeypatch.setattr(run_command, "HEALTHY_S", patience(2))
    long_life = f"time.sleep({patience(2) + 0.1}); sys.exit(1)"
    deeds = [KILLED, KILLED, KILLED, KILLED, long_life, KILLED, "pass"]
    _, said = supervised(lives(tmp_path, *deeds), Restart(0.05))
    assert [line.rpartition(" in ")[2] for line in said] == [
        *("10 ms", "20 ms", "40 ms", "50 ms"),
        *("10 ms", "20 ms"),
    ]


@pytest.mark.parametrize("kind", ["SchemaError", "SecondWriterError", "CorruptBlockError"])
def test_an_error_that_cannot_pass_is_not_followed_by_a_restart(tmp_path: Path, kind: str) -> None:
    code, said = supervised(lives(tmp_path, f"import strandline as sl; raise sl.{kind}('no')"))
    assert (code, started(tmp_path)) == (1, 1)
    (line,) = said
    assert line.startswith(f"strandline run: lives.py ended with {kind} after ")
    assert line.endswith("; a restart would not help")


HOOK = "sys.excepthook = lambda *told: (folder / 'told').touch(); "


@pytest.mark.parametrize(
    "deed", [HOOK + "import strandline as sl; sl.cec; ", "import strandline as sl; sl.cec; " + HOOK]
)
def test_an_error_that_cannot_pass_reaches_the_supervisor_past_a_hook_of_the_program(tmp_path: Path, deed: str) -> None:
    code, said = supervised(lives(tmp_path, deed + "raise sl.SchemaError('no')"))
    assert (code, started(tmp_path)) == (1, 1)
    assert said[0].endswith("; a restart would not help")
    assert (tmp_path / "told").exists()


def test_a_program_that_catches_its_error_and_exits_with_1_is_started_again(tmp_path: Path) -> None:
    caught = "import strandline as sl\ntry: sl.cec(failures_per_day=0)\nexcept sl.StrandlineError: sys.exit(1)"
    assert supervised(lives(tmp_path, caught, "pass"))[0] == 0
    assert started(tmp_path) == 2


@pytest.mark.parametrize("kind", ["StorageError", "StrandlineError"])
def test_an_error_that_may_pass_is_followed_by_a_restart(tmp_path: Path, kind: str) -> None:
    assert supervised(lives(tmp_path, f"import strandline as sl; raise sl.{kind}('gone')", "pass"))[0] == 0
    assert started(tmp_path) == 2


def test_only_the_program_itself_leaves_word_of_its_error(tmp_path: Path) -> None:
    inner = "import strandline as sl; raise sl.SchemaError('no')"
    as_child = f"subprocess.run([sys.executable, '-c', {inner!r}]); sys.exit(1)"
    as_fork = f"import strandline as sl; sl.SchemaError; pid = os.fork()\nif pid == 0: {inner}\nos.wait(); sys.exit(1)"
    assert supervised(lives(tmp_path, as_child, as_fork, "pass"))[0] == 0
    assert started(tmp_path) == 3


def test_copies_have_numbers_and_each_is_started_again_alone(tmp_path: Path) -> None:
    file = tmp_path / "copy.py"
    file.write_text(
        "import os, pathlib, sys\n"
        "copy = os.environ['STRANDLINE_COPY'][0]\n"
        "note = pathlib.Path(sys.argv[1]) / copy\n"
        "first = not note.exists()\n"
        "note.touch()\n"
        "sys.exit(3 if copy == '2' and first else 0)\n"
    )
    code, said = supervised([sys.executable, str(file), str(tmp_path)], copies=3)
    assert code == 0
    assert [path.name for path in sorted(tmp_path.glob("[0-9]"))] == ["1", "2", "3"]
    (line,) = said
    assert line.startswith("strandline run: copy 2 of lives.py ended with exit code 3 after ")


def test_of_copies_the_exit_code_is_that_of_one_that_did_not_end_well(tmp_path: Path) -> None:
    code = "import os, sys; sys.exit(int(os.environ['STRANDLINE_COPY'][0]) - 1)"
    assert supervised([sys.executable, "-c", code], restart=None, copies=2) == (1, [])


# ---------------------------------------------------------------------- signals, of a process of its own

HEARING = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5)); "
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN); "
WITH_CHILD = "p = subprocess.Popen(['sleep', '1000']); (folder / 'child').write_text(str(p.pid)); "
WAITING = "(folder / 'up').touch(); time.sleep(1000)"


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """`strandline run lives.py FOLDER`, which deeds follow. It hears Ctrl-C also if the tests run in the background."""
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "signal.signal(signal.SIGHUP, signal.SIG_DFL); "  # ignored where the tests run under nohup
        "from strandline.cli.app import app; app(sys.argv[1:])"
    )
    return [sys.executable, "-c", program, "run", *lives(tmp_path)[1:]]


def up(process: subprocess.Popen[str], folder: Path) -> None:
    give_up_s = time.monotonic() + patience(60)
    while not (folder / "up").exists():
        assert process.poll() is None
        assert time.monotonic() < give_up_s
        time.sleep(0.02)


def start(command: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("number", "deed", "code"),
    [
        (signal.SIGTERM, HEARING + WAITING, 5),
        (signal.SIGTERM, WAITING, 128 + signal.SIGTERM),
        (signal.SIGHUP, WAITING, 128 + signal.SIGHUP),
        (signal.SIGINT, "signal.signal(signal.SIGINT, signal.default_int_handler); " + WAITING, 128 + signal.SIGINT),
    ],
)
def test_a_signal_goes_to_the_program_and_no_restart_follows(
    command: list[str], tmp_path: Path, number: signal.Signals, deed: str, code: int
) -> None:
    process = start([*command, deed])
    up(process, tmp_path)
    process.send_signal(number)
    assert process.wait(patience(60)) == code
    assert started(tmp_path) == 1
    assert "starts again" not in process.stderr.read()  # type: ignore[union-attr]


def test_a_second_signal_kills_the_program_and_all_that_it_has_started(command: list[str], tmp_path: Path) -> None:
    process = start([*command, DEAF + WITH_CHILD + WAITING])
    up(process, tmp_path)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(patience(60)) == 128 + signal.SIGKILL
    assert not is_alive(int((tmp_path / "child").read_text()))


def test_a_signal_during_a_pause_ends_it(command: list[str], tmp_path: Path) -> None:
    process = start([*command, "sys.exit(9)", "pass"])
    assert "starts again in 1 s" in process.stderr.readline()  # type: ignore[union-attr]
    process.send_signal(signal.SIGTERM)
    assert process.wait(patience(60)) == 9
    assert started(tmp_path) == 1


def test_what_a_dead_program_had_started_ends_before_it_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_command, "_GRACE_S", 0.1)
    child = "int((folder / 'child').read_text())"
    still_there = (
        f"sys.exit(os.path.exists('/proc/%d' % {child}) and 'Z' not in open('/proc/%d/stat' % {child}).read())"
    )
    code, said = supervised(lives(tmp_path, WITH_CHILD + KILLED, still_there), restart=QUICK)
    assert (code, len(said)) == (0, 1)


def test_a_program_ends_with_its_supervisor(command: list[str], tmp_path: Path) -> None:
    deed = "import strandline as sl; sl.cec; (folder / 'pid').write_text(str(os.getpid())); " + WAITING
    process = start([*command, deed])
    up(process, tmp_path)
    pid = int((tmp_path / "pid").read_text())
    process.kill()
    process.wait()
    give_up_s = time.monotonic() + patience(60)
    while is_alive(pid):
        assert time.monotonic() < give_up_s
        time.sleep(0.02)


# ---------------------------------------------------------------------- as process 1 of a container without an init

LEAVES_A_CHILD = "subprocess.Popen(['sleep', '0.3']); sys.exit(9)"
"""The child outlives its parent, as the JVM of a driver does, and then belongs to the supervisor."""


@pytest.fixture
def adopting(command: list[str]) -> list[str]:
    """The command, in a process that inherits the orphans of its descendants, as process 1 does."""
    subreaper = "import ctypes; assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0; "  # PR_SET_CHILD_SUBREAPER
    return [*command[:2], subreaper + command[2], *command[3:]]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")
def test_a_supervisor_that_inherits_orphans_starts_the_program_again(adopting: list[str], tmp_path: Path) -> None:
    process = start([*adopting, LEAVES_A_CHILD, "pass"])
    try:
        assert process.wait(patience(20)) == 0
    finally:
        process.kill()
    assert started(tmp_path) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")
def test_a_signal_ends_a_supervisor_that_inherits_orphans(adopting: list[str], tmp_path: Path) -> None:
    process = start([*adopting, LEAVES_A_CHILD, "pass"])
    try:
        assert "starts again in 1 s" in process.stderr.readline()  # type: ignore[union-attr]
        process.send_signal(signal.SIGTERM)
        assert process.wait(patience(20)) == 9
    finally:
        process.kill()
    assert started(tmp_path) == 1


# ---------------------------------------------------------------------- the command line


def test_arguments_of_the_program_follow_two_dashes(tmp_path: Path) -> None:
    file = tmp_path / "arguments.py"
    file.write_text("import sys; open(sys.argv[1], 'w').write(' '.join(sys.argv[2:]))")
    asked = ["run", str(file), str(tmp_path / "seen"), "--restart", "2s", "--", "--restart", "x"]
    assert CliRunner().invoke(app, asked).exit_code == 0
    assert (tmp_path / "seen").read_text() == "--restart x"


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        (["nothing.py"], "there is no program here"),
        (["{file}", "--restart", "10"], "has no unit"),
        (["{file}", "--restart", "soon"], "is not a duration"),
        (["{file}", "--restart", "0 s"], "restart="),
        (["{file}", "--replicas", "0"], "--replicas"),
        (["{file}", "--verbose"], "--verbose"),
    ],
)
def test_what_cannot_be_run_is_said_at_once(tmp_path: Path, asked: list[str], what: str) -> None:
    file = tmp_path / "program.py"
    file.write_text("raise AssertionError('it was started')")
    done = CliRunner().invoke(app, ["run", *(word.format(file=file) for word in asked)])
    assert done.exit_code in (1, 2)
    assert what in done.output


@pytest.mark.parametrize("wrong", ["none", "10", "0", "-1s"])
def test_a_pause_that_cannot_be_is_refused_with_the_word_off(tmp_path: Path, wrong: str) -> None:
    done = CliRunner().invoke(app, ["run", *lives(tmp_path, "pass")[1:], "--restart", wrong])
    assert done.exit_code == 1
    assert "--restart off" in " ".join(done.output.split())
    assert started(tmp_path) == 0


@pytest.mark.parametrize("off", ["off", "Off"])
def test_the_program_is_run_once_if_restarts_are_off(tmp_path: Path, off: str) -> None:
    done = CliRunner().invoke(app, ["run", *lives(tmp_path, "sys.exit(4)")[1:], "--restart", off])
    assert (done.exit_code, started(tmp_path)) == (4, 1)
