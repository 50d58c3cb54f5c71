"""A join that keeps one tuple of one side and none of the other: each tuple beside the last value before it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import strandline as sl
from strandline.testing.feed import Feed

ONE, NONE = sl.count_window(1), sl.count_window(0)


def streams() -> tuple[Feed, Feed]:
    same: dict[str, Any] = {"key": "item", "time": "at", "lateness": 5}
    orders = sl.testing.stream("item long, at long, pieces long", **same)
    prices = sl.testing.stream("item long, at long, price long", **same)
    return orders, prices


@pytest.mark.parametrize("counts_at_once", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_each_tuple_meets_the_last_value_before_it_whatever_comes_first(seed: int, counts_at_once: bool) -> None:
    rng, (orders, prices) = Random(seed), streams()
    joined = prices.join(orders, left=ONE, right=NONE) if counts_at_once else orders.join(prices, left=NONE, right=ONE)
    run = sl.testing.run(joined)
    told: dict[Feed, list[tuple[int, int, int]]] = {orders: [], prices: []}
    for at in range(0, 60, 3):
        for feed in rng.sample((orders, prices), 2):
            rows = [(rng.randrange(3), at + rng.randrange(3), rng.randrange(1_000)) for _ in range(rng.randrange(4))]
            feed.add(rows)
            told[feed] += sorted(rows, key=lambda row: (row[1], row[0], row[2]))
            run.step()
        if rng.random() < 0.3:
            run.crash()
    for feed in (orders, prices):
        feed.finish()
    run.step()
    expected = []
    for item, at, pieces in told[orders]:
        valid = [p for p in told[prices] if p[0] == item and (p[1] <= at if counts_at_once else p[1] < at)]
        if valid:
            expected.append((item, at, pieces, max(enumerate(valid), key=lambda p: (p[1][1], p[0]))[1][2]))
    assert sorted((r["item"], r["time"], r["pieces"], r["price"]) for r in run.rows) == sorted(expected) != []
