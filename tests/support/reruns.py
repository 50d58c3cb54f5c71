"""Runs a failed test of real processes a second time, alone, and reports every test that needed it.

Only tests marked `spark` or `crash` get a second run: a loaded machine can disturb them. All other tests are
deterministic, so a failure of theirs is final. `pytest-rerunfailures` repeats the test; this module chooses the tests,
keeps other test processes out while one is repeated, and writes the first failures into a file for `.ci/run`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.alone import Room

MARKS = ("spark", "crash")
ALLOWED = 3
"""So many tests of a run of CI may need a second run."""


class Reruns:
    """The choice of the tests, in every test process."""

    def __init__(self, config: pytest.Config) -> None:
        self._is_off = config.getoption("--no-reruns") or config.getoption("usepdb")
        self._config = config
        self._room: Room | None = None

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._is_off:
            return
        for item in items:
            if any(item.get_closest_marker(mark) for mark in MARKS):
                item.add_marker(pytest.mark.flaky(reruns=1))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if self._room is None:
            self._room = Room(self._shared_folder())
        self._room.enter(alone=getattr(item, "execution_count", 1) > 1)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self) -> None:
        if self._room is not None:
            self._room.leave()

    def pytest_unconfigure(self) -> None:
        if self._room is not None:
            self._room.close()

    def _shared_folder(self) -> Path:
        """Returns a folder that the test processes of this run share; a process without peers has one of its own."""
        factory: Any = self._config._tmp_path_factory  # type: ignore[attr-defined]  # as pytest's own fixture does
        folder: Path = factory.getbasetemp()
        return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


class RerunLog:
    """The list of first failures, in the process that has the terminal."""

    def __init__(self, path: str | None) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._path is not None and report.outcome == "rerun":  # type: ignore[comparison-overlap]
            line = json.dumps({"test": report.nodeid, "failure": str(report.longrepr)})
            with Path(self._path).open("a") as file:
                file.write(line + "\n")


def main() -> None:
    """Prints the tests that `--rerun-log` has noted, and exits with 1 if they are too many."""
    noted = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    first = {one["test"]: one["failure"] for one in reversed(noted)}  # a test can fail in its teardown, too
    for test, failure in first.items():
        print(f"\n{test} failed the first time with\n{failure}")
    print(f"\n{len(first)} tests needed a second run; at most {ALLOWED} may")
    sys.exit(1 if len(first) > ALLOWED else 0)


if __name__ == "__main__":
    main()
