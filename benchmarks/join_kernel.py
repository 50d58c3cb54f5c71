"""The join as an operator alone, one core, no logs: a band of two seconds in which a tuple meets one of the other side.

In: everything that `begin`, `feed`, `advance` and `end` do, Arrow to arrays and results to Arrow included. Out: logs,
putting tuples in order, footprints (none are due), the state cache. The first half of the batches is not measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import say, spread, stopwatch
from benchmarks.orders import BAND, BAND_US, ORDERS, PAYMENTS, Matches, apart_us, definition, orders
from strandline.operators.join.join_operator import JoinOperator

Results = list[list[pa.Array]]


def kernel(keys: int, batch: int, batches: int, repeat: int) -> dict[str, Any]:
    """Tuples a second of batches with `batch` tuples a side, memory of a kept tuple, and whether results are right."""
    rng = np.random.default_rng(11)
    ids = rng.integers(0, keys, (2, batch * batches))
    every_us = apart_us(keys)
    fed: list[list[pa.Table]] = []
    for first in range(0, batch * batches, batch):
        tables = [
            orders(rng, first, own[first : first + batch], name, every_us)
            for own, name in zip(ids, ("amount", "paid"), strict=True)
        ]
        places = np.arange(first, first + batch) * 2
        fed.append([table.append_column("_offset", pa.array(places + side)) for side, table in enumerate(tables)])
    reach = BAND_US // every_us
    operator, _, results = _run(fed)  # compiles
    schema = [name for name, _ in operator.definition.result_columns]
    tables = [pa.table([*c, np.zeros(len(c[0]), np.int8)], names=[*schema, "_kind"]) for c in results]
    found = Matches.found(tables, every_us)
    expected = Matches.expected(ids[0], ids[1], -reach, reach)
    seconds = [_run(fed)[1] for _ in range(repeat)]
    ring_bytes = sum(array.nbytes for ring in operator.rings for array in ring.image().values())
    measured = 2 * batch * (batches - batches // 2)
    row = {
        "kernel_tuples_per_s": round(measured / min(seconds)),
        "bytes_per_live_tuple": round(ring_bytes / operator.open_windows, 1),
        "results_per_tuple": round(len(found) / (2 * batch * batches), 3),
        "spread": spread(seconds),
        "results_match": found.same_as(expected),
        "result_hash": found.hash(),
    }
    say(f"join, kernel: {row['kernel_tuples_per_s']:,} tuples/s, {row['bytes_per_live_tuple']} bytes a live tuple")
    return row


def _run(fed: list[list[pa.Table]]) -> tuple[JoinOperator, float, Results]:
    """The operator after all batches, seconds of the second half of them, and all results."""
    operator, seconds = definition(BAND, ORDERS, PAYMENTS).fresh(), 0.0
    results: Results = []
    for number, tables in enumerate(fed):
        boundary = int(tables[0].column("at")[-1].value) + 1
        taken = stopwatch(_step(operator, tables, boundary, results))
        if number >= len(fed) // 2:
            seconds += taken
    return operator, seconds, results


def _step(operator: JoinOperator, tables: list[pa.Table], boundary: int, results: Results) -> Callable[[], None]:
    def work() -> None:
        operator.begin()
        results.extend(operator.feed(tables))
        operator.advance(boundary)
        operator.end()

    return work
