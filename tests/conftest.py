"""What every test shares: the choice of what to run, and a line of progress a minute."""

import os

import pytest

from tests.progress import Progress

LONG_TIMEOUT_S = 900


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # of several processes, the one that has the terminal
        config.pluginmanager.register(Progress(config), "progress")
    # Spark's JVMs live for seconds here: what their second compiler does for speed never pays. A third less CPU.
    # Nor does anybody look at their UI.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -Dspark.ui.enabled=false")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-long", action="store_true", help="run the tests marked long, too")
    parser.addoption("--run-slow", action="store_true", help="run all tests: those marked long and slow, too")
    parser.addoption("--seed", type=int, help="run the simulation with this seed alone")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("long") or item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.timeout(LONG_TIMEOUT_S))  # a test's own limit comes first
    if config.getoption("--run-slow"):
        return
    left_out = {"slow": "--run-slow"}
    if not config.getoption("--run-long"):
        left_out["long"] = "--run-long"
    for item in items:
        for mark, option in left_out.items():
            if item.get_closest_marker(mark):
                item.add_marker(pytest.mark.skip(reason=f"{mark}: runs with {option}"))
                break
