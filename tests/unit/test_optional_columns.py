"""A keyed function over a union of streams that differ: optional columns are null where a stream has none."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc
import pytest

import strandline as sl
from strandline.errors import OptionError, SchemaError
from strandline.testing.feed import Feed


def streams() -> tuple[Feed, Feed]:
    same: dict[str, Any] = {"key": "item", "lateness": 5, "partitions": 1}
    orders = sl.testing.stream("item long, at long, pieces long, note string", time="at", **same)
    prices = sl.testing.stream("item long, since long, price double, currency string", time="since", **same)
    return orders, prices


@sl.keyed(
    state="price double, currency string", output="total double, currency string", optional="pieces, price, currency"
)
def priced(state: Any, row: Any, out: Any) -> Any:
    if row.is_null("pieces"):
        state.price = row.price
        state.currency = row.currency
        return 0
    if state.is_new:
        return sl.CLOSE
    out.total = row.pieces * state.price
    out.currency = state.currency
    return sl.EMIT


@pytest.mark.parametrize("orders_first", [True, False])
def test_columns_that_one_stream_has_are_null_in_the_other(orders_first: bool) -> None:
    orders, prices = streams()
    inputs = (orders, prices) if orders_first else (prices, orders)
    run = sl.testing.run(sl.union(*inputs).apply(priced))
    prices.add([(1, 10, 2.5, "EUR"), (1, 30, 3.0, "CHF")])
    orders.add([(1, 5, 1, ""), (1, 20, 4, ""), (1, 40, 4, ""), (2, 40, 4, "")])
    run.step()
    run.crash()
    for feed in (orders, prices):
        feed.finish()
    run.step()
    found = [(r["item"], r["time"], r["total"], r["currency"]) for r in run.rows]
    assert found == [(1, 20, 10.0, "EUR"), (1, 40, 12.0, "CHF")]


def test_they_may_be_made_by_a_select_before_the_union() -> None:
    orders, prices = streams()
    twice = orders.where(pc.field("pieces") > 1).select("item", "at", pieces=pc.field("pieces") * 2)
    run = sl.testing.run(sl.union(twice, prices).apply(priced))
    prices.add([(1, 10, 2.5, "EUR")])
    orders.add([(1, 20, 4, ""), (1, 21, 1, "")])
    for feed in (orders, prices):
        feed.finish()
    run.step()
    assert [(r["time"], r["total"]) for r in run.rows] == [(20, 20.0)]


def test_columns_of_no_interest_that_are_added_later_change_nothing() -> None:
    orders, prices = streams()
    first = sl.union(orders, prices).apply(priced).definition
    more = sl.testing.stream(
        "item long, at long, pieces long, note string, more long", key="item", time="at", lateness=5, partitions=1
    )
    assert sl.union(more, prices).apply(priced).definition.to_json() == first.to_json()


def named(optional: Any) -> Any:
    @sl.keyed(state="n long", output="n long", optional=optional)
    def counted(state: Any, row: Any, out: Any) -> Any:
        out.n = row.pieces + row.price
        return sl.EMIT

    return counted


def test_without_it_a_column_that_a_stream_lacks_is_refused_and_the_way_is_named() -> None:
    orders, prices = streams()
    for inputs in ((orders, prices), (prices, orders)):
        with pytest.raises((SchemaError, OptionError), match=r'optional="(price|pieces)"'):
            sl.union(*inputs).apply(named(""))


@pytest.mark.parametrize(
    ("optional", "what"),
    [
        ("pieces, prize", "no stream of the union has a column 'prize'"),
        ("pieces, price, item", "'item' is the key or the time of a stream"),
        ("pieces, price, since", "'since' is the key or the time of a stream"),
    ],
)
def test_what_no_stream_has_or_every_stream_needs_is_refused(optional: str, what: str) -> None:
    with pytest.raises(SchemaError, match=what):
        sl.union(*streams()).apply(named(optional))


@pytest.mark.parametrize("optional", [3, ["pieces"], "pieces long", "pieces,,price"])
def test_it_is_a_text_of_names(optional: Any) -> None:
    with pytest.raises(OptionError, match="optional="):
        named(optional)


def test_types_have_to_be_the_same_where_the_column_is_there() -> None:
    orders, prices = streams()
    other = prices.select("item", "since", price="price", pieces=pc.field("price"))
    with pytest.raises(SchemaError, match="pieces"):
        sl.union(orders, other).apply(named("pieces, price"))
