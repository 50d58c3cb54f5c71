"""Stateless work between streams: `where`, `select`, `rekey`."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import strandline as sl
from tests.support.machine import patience

pytestmark = pytest.mark.spark

SALES = pa.schema(
    [
        ("item", pa.int64()),
        ("shop", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("a", pa.int64()),
        ("b", pa.float64()),
    ]
)
SECOND = 1_000_000


def sale(i):
    return {"item": i % 3, "shop": f"shop {i % 2}", "at": i * SECOND, "a": i % 7 - 2, "b": 0.5 * i}


@pytest.fixture(scope="module")
def sales(feed_in, drain, tmp_path_factory):
    """A stream of sales by item, in two commits."""
    folder = tmp_path_factory.mktemp("sales")
    batches = [[sale(i) for i in range(first, first + 60)] for first in (0, 60)]
    drain(feed_in(folder / "feed", *batches, schema=SALES).df, folder / "sales", key="item", lateness="5 s")
    return str(folder / "sales")


def run(aggregation, spark, path):
    assert aggregation.start(spark, str(path), trigger="available-now").await_termination(patience(120))


def totals(path):
    return {
        (r["item"], r["window_start"]): (r["total"], r["n"])
        for p in (0, 1)
        for r in sl.stream(str(path)).log(p)
        if r["_kind"] == 0
    }


def expected():
    found = {}
    for r in map(sale, range(120)):
        if r["a"] > 0:
            total, n = found.get((r["item"], r["at"] // (10 * SECOND)), (0.0, 0))
            found[(r["item"], r["at"] // (10 * SECOND))] = (total + r["a"] * r["b"], n + 1)
    return {key: value for key, value in found.items() if (key[1] + 1) * 10 <= 119 - 5}


@pytest.mark.long
def test_an_operator_behind_where_and_select_refuses_to_go_on_with_another_expression(sales, spark, tmp_path):
    path = tmp_path / "totals"

    def totals_where(condition):
        stream = sl.stream(sales).where(condition).select("item", "at", total=pc.field("a") * pc.field("b"))
        return stream.window(sl.time_window("10 s")).aggregate(total=sl.sum("total"), n=sl.count_all())

    run(totals_where(pc.field("a") > 0), spark, path)
    found = {(k, int(s.timestamp()) // 10): v for (k, s), v in totals(path).items()}
    assert found == expected()
    assert sl.stream(str(path)).open_windows().num_rows > 0
    run(totals_where(pc.field("a") > 0), spark, path)
    with pytest.raises(sl.StreamMismatchError, match=r"\(a > 0\).*\(a > 1\)"):
        totals_where(pc.field("a") > 1).start(spark, str(path))


def test_a_source_with_where_persists_everything(spark, feed, tmp_path):
    rows = [sale(i) for i in range(30)]
    source = sl.source(
        feed(rows, schema=SALES).df, str(tmp_path / "sales"), key="item", time="at", partitions=1, lateness="1 s"
    )
    picked = source.where(pc.field("shop") == "shop 1")
    run(picked.window(sl.count_window(2)).aggregate(most=sl.max("a")), spark, tmp_path / "most")
    assert sl.stream(str(tmp_path / "sales")).offsets() == {0: 30}
    assert sl.stream(str(tmp_path / "most")).read(spark).count() == 3 * (5 // 2)
    with pytest.raises(sl.OptionError, match="DataFrame is not persisted yet"):
        picked.read(spark)


def test_reading_gives_what_an_operator_would_see(sales, spark):
    shaped = sl.stream(sales).where(pc.field("a") > 3).select("item", "at", total=pc.field("a") * pc.field("b"))
    found = {(r["item"], r["total"]) for r in shaped.read(spark).collect()}
    assert found == {(r["item"], r["a"] * r["b"]) for r in map(sale, range(120)) if r["a"] > 3}
    assert {(r["item"], r["total"]) for r in shaped.to_arrow().to_pylist()} == found
    assert shaped.to_arrow(since="1970-01-01 00:01:00+00:00").num_rows < len(found)
    assert shaped.read(spark).schema.simpleString() == "struct<item:bigint,at:timestamp,total:double>"


@pytest.mark.long
def test_rekey_reads_shuffles_and_persists_in_one_call(sales, spark, tmp_path):
    path = tmp_path / "by-shop"
    by_shop = sl.stream(sales).where(pc.field("a") > 0).rekey("shop", str(path))  # in the active session
    run(by_shop.window(sl.count_window(5)).aggregate(last=sl.last("b")), spark, tmp_path / "last")
    with pytest.raises(sl.StreamMismatchError, match=r"\(a > 0\).*\(a < 0\)"):
        sl.stream(sales).where(pc.field("a") < 0).rekey("shop", str(path)).start()
    stream = sl.stream(str(path))
    rows = sorted((r for p in (0, 1) for r in stream.log(p)), key=lambda r: r["at"])
    wanted = [r for r in map(sale, range(120)) if r["a"] > 0]
    assert [(r["shop"], r["b"]) for r in rows] == [(r["shop"], r["b"]) for r in wanted]
    assert (stream.partitions, stream.read(spark, late=True).count()) == (2, 0)
    assert sl.stream(str(tmp_path / "last")).read(spark).count() == sum(
        len([r for r in wanted if r["shop"] == shop]) // 5 for shop in ("shop 0", "shop 1")
    )


@pytest.mark.parametrize("options", [{"max_tuples_per_batch": 10}, {"time": "a"}, {"heartbeat": "1 s"}])
def test_rekey_of_what_comes_unevenly_has_to_say_a_lateness(sales, tmp_path, options):
    with pytest.raises(sl.OptionError, match="rekey needs lateness=") as error:
        sl.stream(sales).rekey("shop", str(tmp_path / "by-shop"), **options)
    assert "lateness=" in error.value.todo


def test_what_was_not_too_far_ahead_for_the_first_stream_is_not_for_the_second(sales, spark, feed, items, tmp_path):
    future = [{**row, "at": row["at"] + 3_000_000_000 * 1_000_000} for row in items(6)]
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    entry = sl.persist(feed(future).df, first, key="k", time="at", lateness="1 s", max_ahead=None)
    entry.start(trigger="available-now").await_termination(patience(60))
    sl.stream(first).rekey("v", second, spark=spark).start(trigger="available-now").await_termination(patience(60))
    assert sl.stream(second).read(spark).count() == 6


def test_a_tuple_that_cannot_be_computed_stops_rekey_with_an_error_that_names_it(sales, spark, tmp_path):
    ratio = sl.stream(sales).select("item", "at", "shop", ratio=pc.field("a") / (pc.field("a") - 4))
    query = ratio.rekey("shop", str(tmp_path / "by-shop"), spark=spark).start(trigger="available-now")
    with pytest.raises(sl.InputError, match="a tuple cannot be computed: divide by zero") as error:
        query.await_termination(patience(120))
    assert "a=4" in error.value.where
    assert "where(pc.field(" in error.value.todo
