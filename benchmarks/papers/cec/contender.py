"""An operator of the CEC paper's evaluation: it shares its input with others, and has a clock and logs of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import strandline as sl
from benchmarks.averages import Averages, Items, Windows
from benchmarks.recovery import _recover, _windows, windows_left_by
from strandline.clock import ManualClock
from strandline.log.storage.local_storage import LocalStorage
from strandline.recovery.recover import Recovery
from strandline.running.step import Done

WINDOW = 10
ITEMS = 100_000
"""Items of the paper, over count windows of 10: about 90,000 are open at any time."""
_RESULT = ["item_id", "window_start", "window_end", "average", "_kind"]


@dataclass(frozen=True)
class Recovered:
    """The recovery of one moment, the best of some."""

    extent: int
    load_s: float
    replayed: int
    replay_s: float


class Contender:
    """An operator under one policy."""

    def __init__(self, name: str, items: Items, folder: Path, policy: sl.Policy, window: int = WINDOW) -> None:
        """Puts its logs into `folder / name`; the items lie in `folder / "items"`."""
        self.folder = folder / name
        self.clock = ManualClock(1_000_000)
        self._window = window
        storage = LocalStorage(self.folder / "averages", durability="os")
        self.operator = Averages(items, storage, self.folder / "cache", window, policy, self.clock)
        (self.folder / "items").symlink_to(folder / "items", target_is_directory=True)

    def step(self, tuples: int) -> Done:
        """Takes in a batch."""
        return self.operator.step(tuples)

    def recovered(self, rounds: int) -> Recovered:
        """Returns the best of so many recoveries from the files; raises if the state is not the operator's own."""
        expected, found = windows_left_by(self.operator), list[Recovery]()
        for _ in range(rounds):
            one = _recover(self.folder, self._window)
            if not np.array_equal(_windows(one.operator), expected):
                raise RuntimeError(f"{self.folder.name}: the recovered windows are not those that were open")
            found.append(one.recovery)
        best = min(found, key=lambda r: r.load_s + r.replay_s)
        loads, replays = (r.load_s for r in found), (r.replay_s for r in found)
        return Recovered(best.extent, min(loads), best.replayed, min(replays))

    def results_since(self, offset: int) -> pa.Table:
        """Returns the results from an offset of the output on."""
        log = self.operator.log
        nothing = pa.schema([log.spec.block.field(name) for name in _RESULT]).empty_table()
        tables = (table.select(_RESULT) for table in log.read(0, offset))
        return pa.concat_tables([nothing, *(t.filter(pa.compute.equal(t.column("_kind"), 0)) for t in tables)])

    def result_hash(self) -> str:
        """Returns the hash of all results: the same under each policy."""
        return Windows.found([self.results_since(0)]).hash()


def require_same_results(contenders: list[Contender]) -> None:
    """Raises unless all contenders have published the same results."""
    if len({one.result_hash() for one in contenders}) != 1:
        raise RuntimeError("the results differ between policies")
