"""Shares the tests out among test processes: file by file, but one by one where tests are few and long."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

ONE_BY_ONE = ("tests/crash/", "tests/simulation/", "tests/tidy/test_examples.py")


class Schedule(LoadScopeScheduling):  # type: ignore[misc]
    """Keeps the tests of a file together, so that their fixtures are made once."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if nodeid.startswith(ONE_BY_ONE) else nodeid.partition("::")[0]
