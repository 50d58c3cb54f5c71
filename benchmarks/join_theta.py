"""A theta join as an operator alone, one core, no logs: every right tuple meets the last 8,192 left ones of any key.

In: everything that `begin`, `feed` and `end` do, Arrow to arrays and results to Arrow included; two columns of doubles
are compared. Seconds are those of the processor, so that other programs do not count, and the best round's. The first
batch fills the window and is not measured.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import cpu_stopwatch, say, spread
from benchmarks.orders import ORDERS, PAYMENTS, Ids, orders
from strandline.operators.join.definition import JoinDefinition, JoinInput
from strandline.operators.join.join_windows import JoinWindows

APART = 1e-6
"""Less than this lies between an amount and what is paid."""


def theta(window: int, batch: int, batches: int, repeat: int) -> dict[str, Any]:
    """Comparisons a second, and whether results are right; `batch` tuples of each side at a time."""
    rng = np.random.default_rng(13)
    fed, amounts = [], []
    for first in range(0, batch * (batches + 1), batch):
        tables = [orders(rng, first, rng.integers(0, batch, batch), name) for name in ("amount", "paid")]
        places = np.arange(first, first + batch) * 2
        fed.append([table.append_column("_offset", pa.array(places + side)) for side, table in enumerate(tables)])
        amounts.append([table.column(2).to_numpy() for table in tables])
    join = JoinDefinition.of(
        JoinInput(ORDERS, ("id",), "at"),
        JoinInput(PAYMENTS, ("id",), "at"),
        JoinWindows("partition", sizes=(window, 0), match="any"),
        lambda left, right: left.amount - right.paid < APART and right.paid - left.amount < APART,
    )
    found = np.zeros((0, 2))
    seconds = []
    for _ in range(repeat + 1):  # the first one compiles
        taken, found = _run(join, fed)
        seconds.append(taken)
    left, right = (np.concatenate([pair[side] for pair in amounts]) for side in (0, 1))
    compared = window * batch * batches
    row = {
        "window": window,
        "comparisons_per_s": round(compared / min(seconds[1:])),
        "results": len(found),
        "spread": spread(seconds[1:]),
        "results_match": np.array_equal(np.sort(found, axis=0), np.sort(_expected(left, right, window), axis=0)),
    }
    say(f"join, theta, window of {window:,}: {row['comparisons_per_s'] / 1e6:,.0f} M comparisons/s and core")
    return row


def _run(join: JoinDefinition, fed: list[list[pa.Table]]) -> tuple[float, Any]:
    """CPU seconds of all batches but the first, and amount and paid of all results."""
    found: list[list[pa.Array]] = []
    operator, seconds = join.fresh(), 0.0
    names = [name for name, _ in join.result_columns]
    places = names.index("amount"), names.index("paid")

    def work(tables: list[pa.Table]) -> None:
        operator.begin()
        found.extend(operator.feed(tables))
        operator.end()

    for number, tables in enumerate(fed):
        taken = cpu_stopwatch(lambda tables=tables: work(tables))  # type: ignore[misc]
        seconds += taken if number else 0.0
    columns = [[np.asarray(arrays[place]) for arrays in found] for place in places]
    return seconds, np.stack([np.concatenate(column) for column in columns], axis=1)


def _expected(left: Any, right: Any, window: int) -> Any:
    """Amount and paid of all pairs: a right tuple meets the left one of its time and those before it."""
    order = np.argsort(left)
    first, end = (np.searchsorted(left[order], right + side * 2 * APART) for side in (-1, 1))
    owners: Ids = np.repeat(np.arange(len(right)), end - first)
    met = order[np.concatenate([np.arange(a, b) for a, b in zip(first, end, strict=True)])]
    is_kept = (met <= owners) & (met > owners - window)
    one, other = left[met], right[owners]
    is_near = (one - other < APART) & (other - one < APART)
    return np.stack([one, other], axis=1)[is_kept & is_near]
