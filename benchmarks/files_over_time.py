"""How many files a live stream of small batches has, minute by minute, in simulated time.

A writer publishes one batch a second into a stream in memory, and does after each batch what a writer does for its
stream: it joins small blocks, announces what they replaced, deletes it a grace later, drops old commits. Numbers of
files depend on neither the tuples of a batch nor the disk, so that hours take seconds.
"""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest import mock

from benchmarks.small_batches import PARTITIONS, append_batch, new_stream
from strandline.clock import ManualClock
from strandline.log.stream.log import Log
from strandline.spark.operator import housekeeping
from strandline.spark.operator.housekeeping import Housekeeping
from strandline.testing import MemoryStorage

_EVERY_S = 600


class _Inline(Housekeeping):
    """Housekeeping that does its work at once, in the thread of the caller."""

    def _begin(self) -> None:
        self._work()


class _Place:
    """A stream in memory, as housekeeping opens it."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def open(self) -> Log:
        return Log.open(self._log.storage, self._log.clock)


def files_over_time(minutes: int) -> dict[str, Any]:
    """Returns the files after every ten minutes, and the largest numbers of live and of waiting blocks."""
    clock = ManualClock(1_000_000)
    storage = MemoryStorage(clock)
    rows: list[dict[str, int]] = []
    live_max = waiting_max = 0
    with mock.patch.object(housekeeping, "_REST", 0.0):
        log = new_stream(storage, clock)
        keeper = _Inline(_Place(log), None, "auto")  # type: ignore[arg-type]
        for second in range(60 * minutes):
            before = log.state.seq
            append_batch(log, second, 1)
            clock.advance(1)
            is_told = (second + 1) % _EVERY_S == 0
            if is_told or log.state.seq // 64 != before // 64:
                log.refresh()
                live = [sum(1 for _ in log.blocks(p)) for p in range(PARTITIONS)]
                live_max = max(live_max, *live)
            keeper.after_batch(log, before)
            if is_told:
                files = Counter(listed.key.partition("/")[0] for listed in storage.list(""))
                waiting = files["blocks"] - sum(live)
                waiting_max = max(waiting_max, waiting // PARTITIONS)
                others = files.total() - files["blocks"] - files["commits"]
                row = {"minute": (second + 1) // 60, "live_blocks": sum(live), "waiting_blocks": waiting}
                rows.append({**row, "commits": files["commits"], "others": others})
        if failure := keeper.report.get("housekeeping", {}).get("failure"):
            raise RuntimeError(failure)
    return {
        "partitions": PARTITIONS,
        "live_blocks_per_partition_max": live_max,
        "waiting_blocks_per_partition_max": waiting_max,
        "over_time": rows,
    }
