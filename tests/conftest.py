"""Chooses which tests run, sets their time limits, and registers what watches them."""

import gc
from typing import Any

import pytest

from tests.support import quick_spark
from tests.support.draw import commit
from tests.support.kernel_times import KernelTimes
from tests.support.machine import patience, slowness
from tests.support.progress import Progress
from tests.support.reruns import RerunLog, Reruns
from tests.support.schedule import Schedule
from tests.support.shares import draw as draw_tests
from tests.support.shares import drawn_part

TIMEOUT_S = 300
LONG_TIMEOUT_S = 600


def pytest_configure(config: pytest.Config) -> None:
    slowness()  # measured before the test processes start, which inherit it
    config.pluginmanager.register(Reruns(config), "reruns")
    config.pluginmanager.register(KernelTimes(config), "kernel times")
    if not hasattr(config, "workerinput"):  # of several processes, the one that has the terminal
        config.pluginmanager.register(Progress(config), "progress")
        config.pluginmanager.register(RerunLog(config.getoption("--rerun-log")), "rerun log")
    quick_spark.use()


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [
        f"machine: {slowness():.2f} times as slow as the reference; time limits are multiplied by that",
        f"seeds and crashes: drawn from {drawn_from(config)!r}; --draw takes the text of another run",
        f"groups of tests: {groups_drawn(config)}",
    ]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-long", action="store_true", help="run the tests marked long, too")
    parser.addoption("--run-slow", action="store_true", help="run all tests: those marked long and slow, too")
    parser.addoption("--seed", type=int, help="run the simulations with this seed alone")
    parser.addoption("--draw", metavar="TEXT", help="draw seeds and crashes from this, not from the hash of the commit")
    parser.addoption("--part", type=float, help="draw this part of all shares, not the one that fits the machine")
    parser.addoption("--no-reruns", action="store_true", help="do not repeat failed tests of real processes")
    parser.addoption("--rerun-log", metavar="FILE", help="add a line of JSON a repeated test to this file")


@pytest.hookimpl(tryfirst=True)  # -m sees the marks that the draw gives
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--run-slow"):
        left_out = set() if is_named(config) else draw_tests(items, drawn_from(config), part_of_shares(config))
        marks = {"slow"} if config.getoption("--run-long") else {"slow", "long"}
        left_out |= {item for item in items if any(item.get_closest_marker(mark) for mark in marks)}
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    for item in items:
        own = item.get_closest_marker("timeout")
        is_long = item.get_closest_marker("long") or item.get_closest_marker("slow")
        seconds = own.args[0] if own else LONG_TIMEOUT_S if is_long else TIMEOUT_S
        item.add_marker(pytest.mark.timeout(patience(seconds)), append=False)


def drawn_from(config: pytest.Config) -> str:
    """Returns the text that seeds and crashes are drawn from: the hash of the commit, unless `--draw` names another."""
    return str(config.getoption("--draw") or commit())


def part_of_shares(config: pytest.Config) -> float:
    """Returns the part of its shares that this run draws: the one that fits the machine, unless `--part` is given."""
    part = config.getoption("--part")
    return drawn_part(slowness()) if part is None else float(part)


def is_named(config: pytest.Config) -> bool:
    """Returns whether files, folders or a `-k` are asked for, which are run whole."""
    return bool(config.getoption("file_or_dir") or config.getoption("keyword"))


def groups_drawn(config: pytest.Config) -> str:
    """Returns how much of the large groups of tests this run draws, as its first lines say it."""
    if config.getoption("--run-slow") or is_named(config):
        return "run whole"
    part = part_of_shares(config)
    return f"{part:.0%} of their shares, as many as this machine has time for; --part {part} draws them elsewhere"


def pytest_collection_finish() -> None:
    """Lets the garbage collector pass over the collected tests: a fifth of the CPU of tests that compile kernels."""
    gc.collect()
    gc.freeze()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Schedule:
    return Schedule(config, log)


@pytest.fixture(scope="session")
def draw(request: pytest.FixtureRequest) -> str:
    """Returns the text that seeds and crashes are drawn from."""
    return drawn_from(request.config)
