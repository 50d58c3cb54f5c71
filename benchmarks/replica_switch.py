"""How long a reader of two replicas is without results when the one that it reads is lost.

Both are operators over the same streams, in real time. Again and again the storage of the replica that a reader
follows fails (its folder becomes a link to itself, which nobody can open), and its operator stands still; measured is
the time until the reader has the first new result of the other. Then the lost one comes back and catches up, before the
other is lost.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

import strandline as sl
from benchmarks.bounded_operator import BoundedOperator, calm_results
from benchmarks.harness import say
from benchmarks.input_failures import TICK_S, warm_up
from benchmarks.sensors import WRITE_S, Numbers, Sensors, join_of, sleep_until
from strandline.log.reading.results import result_blocks
from strandline.running.promise import Promise

LOOK = "50 ms"
"""The reader looks as often."""
APART_S = 0.77
"""From a loss to the return, and from that to the next loss."""


def switches(folder: Path, times: int, tuples_per_s: int = 3_000) -> dict[str, Any]:
    """The longest and the median time without results, and whether the reader got each result once and in order."""
    warm_up(folder / "warm")
    sensors = Sensors(folder / "in", 3, tuples_per_s)
    replicas = [
        BoundedOperator(folder / f"replica{n}", sensors.paths, join_of(3), Promise(3_000_000)) for n in range(2)
    ]
    start = time.time()
    for moment in range(2):
        sensors.write(round((start + moment * WRITE_S) * 1e6))
    for replica in replicas:
        replica.tick()
    reader = _Reader([replica.path for replica in replicas])
    reader.start()
    losses = _Losses(sensors, replicas, reader)
    losses.run(times)
    sensors.finish()
    while not all(replica.output.state.finished for replica in replicas):
        for replica in replicas:
            replica.tick()
    reader.join(30)
    calm = calm_results(folder / "calm", sensors.paths, join_of(3))
    expected = [table.column("number").to_numpy() for _, table in result_blocks(calm, 0, ["number"])]
    taken = reader.waited_s(losses.lost)
    say(f"availability: a reader changes to another replica in {max(taken):.3f} s at most, of {len(taken)} times")
    return {
        "switch_s": round(max(taken), 3),
        "switches": {"times": len(taken), "median_s": round(float(np.median(taken)), 3), "tick_s": TICK_S},
        "stable_match": np.array_equal(reader.numbers(), np.concatenate(expected)),
    }


class _Losses:
    """Writes the streams, lets replicas tick in turns, and loses the one that is read, so many times."""

    def __init__(self, sensors: Sensors, replicas: Sequence[BoundedOperator], reader: _Reader) -> None:
        self._sensors, self._replicas, self._reader = sensors, replicas, reader
        self._gone: BoundedOperator | None = None
        self.lost: list[tuple[float, str]] = []
        """When a replica was lost, and its id."""

    def run(self, times: int) -> None:
        """In real time."""
        start = time.time()
        # Both tick one right after the other, which is the worst case; losses come at all moments of a tick.
        due: list[tuple[float, int, float, Callable[[float], None]]] = [
            (start + WRITE_S, 0, WRITE_S, self._write),
            *((start + TICK_S, 1 + n, TICK_S, partial(self._tick, n)) for n in range(2)),
            (start + APART_S, 9, APART_S, self._change),
        ]
        heapq.heapify(due)
        while len(self.lost) < times or self._gone is not None:
            moment, order, every_s, act = due[0]
            sleep_until(moment)
            act(moment)
            heapq.heapreplace(due, (moment + every_s, order, every_s, act))

    def _write(self, moment: float) -> None:
        self._sensors.write(round(moment * 1e6))

    def _tick(self, number: int, _: float) -> None:
        if self._replicas[number] is not self._gone:
            self._replicas[number].tick()

    def _change(self, _: float) -> None:
        """Loses a replica, or has it come back."""
        if self._gone is not None:
            _heal(self._gone.path)
            self._gone = None
            return
        self._gone = next(one for one in self._replicas if one.output.spec.id == self._reader.stream)
        _fail(self._gone.path)
        self.lost.append((time.time(), self._gone.output.spec.id))


def _fail(path: Path) -> None:
    path.rename(path.with_name("kept"))
    path.symlink_to(path)


def _heal(path: Path) -> None:
    path.unlink()
    path.with_name("kept").rename(path)


class _Reader(threading.Thread):
    """Follows the replicas, and notes when what came from which."""

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__(daemon=True)
        self._replicas = sl.replicas(*(str(path) for path in paths))
        self._got: list[tuple[float, str, Numbers]] = []

    def run(self) -> None:
        """Until the stream is finished."""
        for table, place in self._replicas.follow(every=LOOK):
            stable = table.filter(pc.equal(table.column("_kind"), "stable"))
            if len(stable):
                self._got.append((time.time(), place["stream"], stable.column("number").to_numpy()))

    @property
    def stream(self) -> str:
        """The id of the replica that was read last."""
        while not self._got:
            time.sleep(0.01)
        return self._got[-1][1]

    def numbers(self) -> Numbers:
        """The tuples of all results, in order."""
        return np.concatenate([numbers for *_, numbers in self._got])

    def waited_s(self, lost: Sequence[tuple[float, str]]) -> list[float]:
        """From each loss to the first result of another replica."""
        return [next(at for at, stream, _ in self._got if at > since and stream != id_) - since for since, id_ in lost]
