"""A line a minute: how far the tests are, and what runs; and one for a test that fails, at once. For logs."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

EVERY_S = 60.0


class Progress:
    """Counts tests as they end and tells of it, also while one of them takes long."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._began_s = time.monotonic()
        self._all = 0
        self._ended = 0
        self._failed = 0
        self._running: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="progress", daemon=True)

    def pytest_sessionstart(self) -> None:
        self._thread.start()

    def pytest_sessionfinish(self) -> None:
        self._stop.set()
        self._thread.join()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._all = len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        self._all = len(ids)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[nodeid] = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed += 1
            self._write(f"failed: {report.nodeid}")
        if report.when == "teardown":
            self._ended += 1
            self._running.pop(report.nodeid, None)

    def line(self) -> str:
        """What is told."""
        minutes = (time.monotonic() - self._began_s) / 60
        told = f"{minutes:.0f} min: {self._ended:,} of {self._all or '?'} tests, {self._failed} failed"
        running = dict(self._running)
        longest = min(running, key=running.__getitem__, default=None)
        if longest is not None and (seconds := time.monotonic() - running[longest]) > EVERY_S / 6:
            told += f"; {longest.split('::', 1)[-1]} for {seconds:.0f} s"
        return told

    def _tell(self) -> None:
        while not self._stop.wait(EVERY_S):
            self._write(self.line())

    def _write(self, text: str) -> None:
        terminal: Any = self._config.pluginmanager.getplugin("terminalreporter")
        if terminal is not None:
            gap = "\n" if terminal._tw.width_of_current_line else ""  # behind the dots
            terminal.write_line(f"{gap}-- {text}")
