"""The compiled loops of an operator, footprints included, beside the smallest loop that could do the same counting.

What is in `tuples_per_s`: everything that an `AggregateOperator` does in a step (begin, feed, save), the arrays that it
allocates included, but for the conversion from and to Arrow: finding the open window of a tuple, opening, adding,
closing it with a result, the trace of what changed, and footprints (G-opens, and G-checks for extent 2x and replay
500,000). What is out: `input_batch` before and `Columns` after. `tuples_per_s_with_arrow` has them in. Nothing is read
from or written to a log; keys and prices are in memory.

The bare loop is one Numba function with a hash table of the keys (open addressing): it looks the key up, counts to the
window's size and adds. It writes no results, remembers no offsets, keeps no trace, and a key keeps its place for good.
Both get the same batches; the first half warms up, the second is measured.
"""

# mypy: disable-error-code="no-untyped-call,untyped-decorator,no-any-return"

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

import strandline as sl
from benchmarks.averages import Ids, Prices, Windows, plan_of
from benchmarks.harness import KEYS, rounds, say, spread
from strandline.operators.aggregate.aggregate_operator import AggregateOperator
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.kernels.kernel_arrays import Int64s
from strandline.operators.open_windows.arrays import Batch
from strandline.operators.open_windows.window_state import WindowState
from strandline.operators.operator import Footprints, Limits

SIZES = {  # tuples, tuples a batch, keys, window sizes
    "tiny": (40_000, 10_000, 1_000, (10,)),
    "small": (4_000_000, 250_000, KEYS, (1, 10, 100, 1000)),
    "large": (16_000_000, 250_000, KEYS, (1, 10, 100, 1000)),
}
HEADLINE = 10
POLICY = sl.cec(extent="2x", replay=500_000)
_MIX = -7046029254386353131  # what the operator's own table mixes with


def run(size: str, repeat: int = 3) -> dict[str, Any]:
    """Measures every window size and returns the result."""
    tuples, batch, keys, windows = SIZES[size]
    rng = np.random.default_rng(1)
    ids, prices = rng.integers(0, keys, tuples), rng.random(tuples)
    table = [_measure(ids, prices, keys, batch, window, repeat) for window in windows]
    best = next(row for row in table if row["window"] == HEADLINE)
    return {
        "benchmark": "kernel",
        "size": size,
        "repeat": repeat,
        "tuples": tuples,
        "keys": keys,
        "tuples_per_s": best["tuples_per_s"],
        "tuples_per_s_with_arrow": best["tuples_per_s_with_arrow"],
        "tuples_per_s_bare_loop": best["tuples_per_s_bare_loop"],
        "ratio_to_bare_loop": best["ratio_to_bare_loop"],
        "bytes_per_open_window": best["bytes_per_open_window"],
        "spread": best["spread"],
        "results_match": all(row["results_match"] for row in table),
        "result_hash": best["result_hash"],
        "table": table,
    }


def _measure(ids: Ids, prices: Prices, keys: int, batch: int, window: int, repeat: int) -> dict[str, Any]:
    _operator(ids[: 2 * batch], prices[: 2 * batch], batch, window)  # compiles
    _bare(ids[: 2 * batch], prices[: 2 * batch], keys, batch, window)
    runs: list[_Run] = []

    def operator() -> float:
        runs.append(_operator(ids, prices, batch, window))
        return runs[-1].kernel_s

    seconds = rounds({"operator": operator, "bare": lambda: _bare(ids, prices, keys, batch, window)[0]}, repeat)
    half = len(ids) - _half(len(ids), batch)
    last = runs[-1]
    _, closed, total = _bare(ids, prices, keys, batch, window)
    expected = Windows.expected(ids, prices, np.arange(len(ids)), window)
    best = {name: min(taken) for name, taken in seconds.items()}
    row = {
        "window": window,
        "tuples_per_s": round(half / best["operator"]),
        "tuples_per_s_with_arrow": round(half / min(r.whole_s for r in runs)),
        "tuples_per_s_bare_loop": round(half / best["bare"]),
        "ratio_to_bare_loop": round(best["bare"] / best["operator"], 3),
        "open_windows": last.open_windows,
        "bytes_per_open_window": round(last.state_bytes / last.open_windows, 1) if last.open_windows else None,
        "results": len(last.windows),
        "g_open_per_tuple": round(last.opened / half, 4),
        "g_check_per_tuple": round(last.checked / half, 4),
        "spread": {name: spread(taken) for name, taken in seconds.items()},
        "results_match": last.windows.same_as(expected)
        and closed == len(expected)
        and bool(np.isclose(total, expected.averages.sum() * window, rtol=1e-9)),
        "result_hash": last.windows.hash(),
    }
    say(
        f"kernel window {window:>4}: {row['tuples_per_s']:>12,} tuples/s   with Arrow "
        f"{row['tuples_per_s_with_arrow']:>12,}   bare loop {row['tuples_per_s_bare_loop']:>12,}   "
        f"ratio {row['ratio_to_bare_loop']:.2f}"
    )
    return row


def _half(tuples: int, batch: int) -> int:
    return tuples // batch // 2 * batch


# ---------------------------------------------------------------------- the operator


class _Timed(AggregateOperator):
    """The operator, with a stopwatch that stands still while columns are converted."""

    def __init__(self, plan: AggregateDefinition, state: WindowState) -> None:
        super().__init__(plan, state)
        self.kernel_s = 0.0
        self._converting_s = 0.0

    def begin(self) -> None:
        began = time.perf_counter()
        super().begin()
        self.kernel_s += time.perf_counter() - began

    def _run(self, batch: Batch) -> tuple[Int64s, Batch]:
        began = time.perf_counter()
        found = super()._run(batch)
        self.kernel_s += time.perf_counter() - began
        return found

    def save(self, position: int, limits: Limits) -> Footprints:
        began, self._converting_s = time.perf_counter(), 0.0
        saved = super().save(position, limits)
        self.kernel_s += time.perf_counter() - began - self._converting_s
        return saved

    def _footprints(self, records: Int64s) -> list[pa.Array]:
        began = time.perf_counter()
        columns = super()._footprints(records)
        self._converting_s += time.perf_counter() - began
        return columns


@dataclass
class _Run:
    """What the second half took and gave."""

    windows: Windows
    open_windows: int
    state_bytes: int
    kernel_s: float = 0.0
    whole_s: float = 0.0
    opened: int = 0
    checked: int = 0


def _operator(ids: Ids, prices: Prices, batch: int, window: int) -> _Run:
    plan = plan_of(window)
    operator = _Timed(plan, WindowState.empty(plan.width, plan.layout, timed=False))
    position, whole_s, results = 0, 0.0, []
    opened = checked = 0
    for first in range(0, len(ids), batch):
        table = pa.table(
            {
                "item_id": ids[first : first + batch],
                "item_price": prices[first : first + batch],
                "_offset": np.arange(first, first + batch),
            }
        )
        if first == _half(len(ids), batch):
            operator.kernel_s = whole_s = 0.0
            opened = checked = 0
        began = time.perf_counter()
        operator.begin()
        found = list(operator.feed([table]))
        position += sum(len(columns[0]) for columns in found)
        saved = operator.save(position, POLICY.limits(operator.state.open_windows, 0, None))
        whole_s += time.perf_counter() - began
        opened += len(saved.opened[0])
        checked += len(saved.checked[0])
        position += len(saved.opened[0]) + len(saved.checked[0])
        results += found
    names = [*(name for name, _ in plan.result_columns), "_kind"]
    tables = [pa.table([*c, np.zeros(len(c[0]), np.int8)], names=names) for c in results]
    state = operator.state
    nbytes = sum(array.nbytes for array in state.image().arrays.values())
    return _Run(Windows.found(tables), state.open_windows, nbytes, operator.kernel_s, whole_s, opened, checked)


# ---------------------------------------------------------------------- the bare loop


def _bare(ids: Ids, prices: Prices, keys: int, batch: int, window: int) -> tuple[float, int, float]:
    """Seconds of the second half, windows closed, and the sum of all they summed up."""
    table = np.full(1 << (2 * keys - 1).bit_length(), -1, np.int32)
    held, counts, sums = np.zeros(keys, np.int64), np.zeros(keys, np.int64), np.zeros(keys)
    used = closed = 0
    total = seconds = 0.0
    for first in range(0, len(ids), batch):
        if first == _half(len(ids), batch):
            seconds = 0.0
        k, v = ids[first : first + batch], prices[first : first + batch]
        began = time.perf_counter()
        used, more, added = _count(k, v, table, held, counts, sums, used, window)
        seconds += time.perf_counter() - began
        closed += more
        total += added
    return seconds, closed, total


@njit(nogil=True)
def _count(
    ids: Ids, prices: Prices, table: Any, held: Ids, counts: Ids, sums: Prices, used: int, window: int
) -> tuple[int, int, float]:
    mask = len(table) - 1
    closed, total = 0, 0.0
    for i in range(len(ids)):
        key = ids[i]
        mixed = key * _MIX
        bucket = (mixed ^ (mixed >> 32)) & mask
        while table[bucket] >= 0 and held[table[bucket]] != key:
            bucket = (bucket + 1) & mask
        slot = table[bucket]
        if slot < 0:
            slot = used
            used += 1
            table[bucket] = slot
            held[slot] = key
        counts[slot] += 1
        sums[slot] += prices[i]
        if counts[slot] == window:
            total += sums[slot]
            counts[slot] = 0
            sums[slot] = 0.0
            closed += 1
    return used, closed, total
