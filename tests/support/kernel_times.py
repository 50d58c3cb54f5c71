"""Says at the end of a test run how long its processes compiled and loaded kernels: often a third of all time."""

from __future__ import annotations

import sys
from typing import Any

import pytest

OUTPUT, LONGEST = "kernels", "tests with kernels"
NAMED_S, SHOWN = 1.0, 10


class KernelTimes:
    """Collects the tallies of the test processes."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._tallies: list[tuple[int, int, float]] = []
        self._longest: list[tuple[float, str]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        before = self._seconds()
        done = yield
        if (seconds := self._seconds() - before) > NAMED_S:
            self._longest.append((seconds, item.nodeid))
        return done

    @staticmethod
    def _seconds() -> float:
        module = sys.modules.get("strandline.operators.kernels.kernel_cache")
        return 0.0 if module is None else float(module.TALLY.seconds)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        module = sys.modules.get("strandline.operators.kernels.kernel_cache")
        if module is None:
            return
        tally = module.TALLY.compiled, module.TALLY.loaded, module.TALLY.seconds
        output: dict[str, Any] | None = getattr(self._config, "workeroutput", None)
        if output is None:
            self._tallies += [tally] * any(tally)
        else:
            output[OUTPUT] = tally
            output[LONGEST] = self._longest

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        tally = getattr(node, "workeroutput", {}).get(OUTPUT)
        if tally is not None:
            self._tallies.append(tuple(tally))
            self._longest += [(seconds, test) for seconds, test in node.workeroutput[LONGEST]]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for compiled, loaded, seconds in self._tallies:
            terminalreporter.write_line(
                f"kernels of a test process: {compiled:,} compiled, {loaded:,} loaded, {seconds:.0f} s for both"
            )
        for seconds, test in sorted(self._longest, reverse=True)[:SHOWN]:
            terminalreporter.write_line(f"  {seconds:5.1f} s for those of {test}")
