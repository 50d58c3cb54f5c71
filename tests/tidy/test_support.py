"""Tests of `tests/support`: the draw of a commit, second runs, waiting to be alone, simulations by time."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.spark.query import spark_log
from tests.simulation.catalogue import SIMULATIONS, Simulation
from tests.simulation.seeded_runs import run_for, run_seeds
from tests.support import shares
from tests.support.alone import Room
from tests.support.draw import commit, first_seed, generator
from tests.support.jvm_end import end_of_jvm
from tests.support.machine import LARGEST, REFERENCE_S, VARIABLE, patience, slowness, slowness_by
from tests.support.reruns import ALLOWED
from tests.support.shares import draw, drawn_part

ROOT = Path(__file__).parents[2]


def test_a_commit_always_draws_the_same_and_another_commit_something_else() -> None:
    assert first_seed("abc", "log") == first_seed("abc", "log")
    assert len({first_seed(text, purpose) for text in ("abc", "abd") for purpose in ("log", "one")}) == 4
    assert generator("abc", "x").random() == generator("abc", "x").random()
    assert commit() == commit() != ""


class Item:
    """A test as the draw sees it."""

    def __init__(self, nodeid: str, *marks: str) -> None:
        self.nodeid = nodeid
        self.marks = {mark: SimpleNamespace(args=("group",)) for mark in marks}

    def get_closest_marker(self, name: str) -> Any:
        return self.marks.get(name)

    def add_marker(self, mark: Any) -> None:
        self.marks[mark.name] = mark


def drawn(names: str, text: str, *more: Item, part: float = 1.0) -> tuple[str, str, str]:
    """Returns which tests are in the ordinary tier, in the long one, in none; capital letters are long ones."""
    items: list[Any] = [Item(n, "drawn", *["long"] * n.isupper()) for n in names.split()] + list(more)
    left_out = draw(items, text, part)
    tiers = (
        [i.nodeid for i in items if i not in left_out and "long" not in i.marks],
        [i.nodeid for i in items if i not in left_out and "long" in i.marks],
        [i.nodeid for i in items if i in left_out],
    )
    quick, long, none = ("".join(sorted(tier)) for tier in tiers)
    return quick, long, none


def test_of_the_tests_of_a_group_as_many_are_drawn_as_its_share_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(shares.SHARES, "group", shares.Share(2, 3))
    quick, long, none = drawn("a b c d e F G", "some commit", Item("other"), Item("slow", "slow"))
    assert [len(quick), len(long), len(none)] == [2 + len("otherslow"), 3, 2]
    assert sorted(quick + long + none) == sorted("abcdeFGotherslow")
    assert not set("FG") & set(quick)
    assert drawn("G F e d c b a", "some commit", Item("other"), Item("slow", "slow")) == (quick, long, none)
    assert len({drawn("a b c d e F G", str(n)) for n in range(100)}) > 50


def test_a_machine_that_is_twice_as_slow_draws_half_of_each_group_and_the_tests_of_no_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(shares.SHARES, "group", shares.Share(5, 8))
    names = "0 1 2 3 4 5 6 7 8 9 A B C D E F G H I J"
    numbers = []
    for commit_number in range(200):
        whole = drawn(names, str(commit_number), Item("other"))
        half = drawn(names, str(commit_number), Item("other"), part=drawn_part(2.0))
        assert set("other") <= set(half[0]) <= set(whole[0]), "it leaves out some ordinary tests and puts none in"
        assert len(half[1]) == 4
        numbers.append(len(half[0]) - len("other"))
    assert set(numbers) == {2, 3}
    assert 2.3 < sum(numbers) / len(numbers) < 2.7
    assert [drawn_part(slowness) for slowness in (0.5, 1.0, 1.25, 2.0, 2.5, 8.0)] == [1.0, 1.0, 0.8, 0.5, 0.4, 0.4]


def test_of_a_group_that_has_a_share_the_slowest_machine_runs_at_least_one_test() -> None:
    for share in (*shares.SHARES.values(), *shares.PLANS_SHARES.values()):
        for seed in range(50):
            slow = share.part(drawn_part(8.0), Random(seed))
            assert sum(slow) >= 1
            assert slow.quick <= share.quick
            assert slow.long <= share.long
            assert share.part(drawn_part(1.0), Random(seed)) == share


def test_a_short_load_does_not_change_the_number_of_the_machine_but_a_lasting_one_does() -> None:
    def number(*times_s: float) -> float:
        return slowness_by(iter(times_s).__next__)

    assert number(REFERENCE_S * 0.9) == 1.0, "the first is fast enough, and no second is made"
    assert number(REFERENCE_S * 6, REFERENCE_S * 5, REFERENCE_S) == 1.0
    assert number(*(REFERENCE_S * times for times in (3, 2, 2.5, 6, 4))) == 2.0
    assert number(*(REFERENCE_S * times for times in (30, 20, 25, 60, 40))) == LARGEST


def test_all_processes_of_a_run_inherit_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1.75")
    program = "from tests.support.machine import slowness; print(slowness())"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)
    assert float(done.stdout) == 1.75


def test_every_group_of_the_shares_has_tests() -> None:
    files = {group.partition("::")[0] for group in shares.SHARES if group.startswith("tests/")} | set(shares._GROUPS)
    assert [file for file in files if not (ROOT / file).exists()] == []
    marked = {group for group in shares.SHARES if not group.startswith("tests/")} - set(shares.FILES)
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert [group for group in marked if f'drawn("{group}")' not in sources] == []


def test_limits_grow_with_the_machine_and_never_shrink() -> None:
    assert slowness() >= 1.0
    assert patience(10) == 10 * slowness()


def test_whoever_wants_the_machine_for_itself_waits_for_others_and_others_wait_for_it(tmp_path: Path) -> None:
    first, alone, later = (Room(tmp_path) for _ in range(3))
    first.enter(alone=False)
    later.enter(alone=False)
    later.leave()
    events: list[str] = []

    def enter(room: Room, name: str, *, is_alone: bool) -> None:
        room.enter(alone=is_alone)
        events.append(name)

    waiting = threading.Thread(target=enter, args=(alone, "alone"), kwargs={"is_alone": True})
    waiting.start()
    waiting.join(0.1)
    behind = threading.Thread(target=enter, args=(later, "later"), kwargs={"is_alone": False})
    behind.start()
    behind.join(0.1)
    assert events == []
    first.leave()
    waiting.join(patience(10))
    behind.join(0.1)
    assert events == ["alone"]
    alone.leave()
    behind.join(patience(10))
    assert events == ["alone", "later"]
    for room in (first, alone, later):
        room.close()


def test_the_report_of_a_failure_says_how_the_jvm_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_text("a fatal error has been detected")
    monkeypatch.setattr(spark_log, "_current", log)
    jvm = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    spark = SimpleNamespace(SparkContext=SimpleNamespace(_gateway=SimpleNamespace(proc=jvm)))
    monkeypatch.setitem(sys.modules, "pyspark", spark)
    assert end_of_jvm() == ""
    jvm.kill()
    jvm.communicate()
    assert end_of_jvm() == "it is gone, with exit status -9; Spark's log:\na fatal error has been detected"
    spark.SparkContext._gateway = None
    assert end_of_jvm() == ""


CONFTEST = """
from tests.support.reruns import RerunLog, Reruns

def pytest_addoption(parser):
    parser.addoption("--no-reruns", action="store_true")
    parser.addoption("--rerun-log")

def pytest_configure(config):
    config.addinivalue_line("markers", "spark: needs a JVM")
    config.pluginmanager.register(Reruns(config), "reruns")
    config.pluginmanager.register(RerunLog(config.getoption("--rerun-log")), "rerun log")
"""
FAILS_ONCE = """
from pathlib import Path
import pytest

def fails_the_first_time(name):
    marker = Path(__file__).with_name(name)
    if not marker.exists():
        marker.touch()
        raise ValueError(f"{name} was not there")

@pytest.mark.spark
def test_with_spark():
    fails_the_first_time("spark")

def test_without():
    fails_the_first_time("other")
"""


@pytest.mark.parametrize("options", [[], ["--no-reruns"]], ids=["reruns", "none"])
def test_only_tests_of_real_processes_get_a_second_run_and_it_is_on_record(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_once.py").write_text(FAILS_ONCE)
    log = tmp_path / "reruns.jsonl"
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", f"--rootdir={tmp_path}", str(tmp_path)]
    command += [f"--rerun-log={log}", "-p", "no:cacheprovider", "--rerun-show-tracebacks", *options]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=patience(60))
    if options:
        assert "2 failed" in done.stdout, done.stdout + done.stderr
        assert not log.exists()
        return
    assert "1 failed, 1 passed, 1 rerun" in done.stdout, done.stdout + done.stderr
    assert "ValueError: spark was not there" in done.stdout
    (noted,) = (json.loads(line) for line in log.read_text().splitlines())
    assert noted["test"].endswith("test_once.py::test_with_spark")
    assert "ValueError: spark was not there" in noted["failure"]
    shown = subprocess.run(
        [sys.executable, "-m", "tests.support.reruns", str(log)], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    assert "test_with_spark failed the first time with" in shown
    assert "1 tests needed a second run" in shown
    log.write_text("".join(json.dumps({**noted, "test": f"test {n // 2}"}) + "\n" for n in range(2 * ALLOWED + 1)))
    many = subprocess.run([sys.executable, "-m", "tests.support.reruns", str(log)], cwd=ROOT, check=False)
    assert many.returncode == 1, "one more than allowed, each noted twice"


def test_a_seed_that_fails_is_named_with_the_command_that_repeats_it() -> None:
    def run(seed: int) -> None:
        if seed == 12:
            raise LookupError("a result is missing")

    simulation = Simulation("log", "", run, 0)
    with pytest.raises(AssertionError, match="simulation log, seed 12, LookupError: a result is missing") as raised:
        run_for(simulation, 60.0, 10)
    assert 'test_seeds_of_this_commit[log]" --seed 12' in str(raised.value)
    run_seeds(simulation, range(12))


def test_seeds_run_until_the_time_is_over_and_at_least_one() -> None:
    ran: list[int] = []
    assert run_for(Simulation("log", "", ran.append, 0), 0.0, 7) == 1
    assert run_for(Simulation("log", "", ran.append, 0), 0.0, 8, least=3) == 3
    assert run_for(Simulation("log", "", ran.append, 0), 0.05, 11) > 10
    assert ran == list(range(7, 7 + len(ran)))


@pytest.mark.long
def test_simulate_sums_up_what_it_has_run(tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    command = [sys.executable, "-m", "tests.simulation.simulate", "--minutes=0.1", "--seed=5", f"--summary={summary}"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=patience(240))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(summary.read_text())
    assert found["seed"] == 5
    assert found["failures"] == []
    assert found["crashes"] > 0
    assert set(found["simulations"]) <= set(SIMULATIONS)
    assert sum(one["runs"] for one in found["simulations"].values()) == found["runs"] > 0
