"""`rekey` as an operator: each tuple of the input is where Spark would place it, in an order of its own."""

from __future__ import annotations

from decimal import Context, Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import strandline as sl
from strandline.operators.stateless.spark_partitions import spark_partitions
from strandline.testing.spark_placement import partition_of
from tests.support.operator_streams import COLUMNS, Row, Tuples

KEYS: tuple[Any, ...] = ("k", "s", ["k", "s"], ["s", "v"], "t")


@pytest.mark.parametrize("seed", range(25))
def test_each_tuple_is_in_the_partition_of_its_key_in_the_order_of_time_partition_and_offset(seed: int) -> None:
    rng = Random(seed)
    feed = _feed(rng.choice([1, 2, 3]), rng.choice([0, 8]))
    key, partitions = rng.choice(KEYS), rng.choice([1, 2, 3, 5])
    operator = feed.rekey(key, partitions=partitions)
    restless = sl.testing.run(operator, max_tuples_per_batch=rng.choice([1, 7, 1000]))
    tuples = Tuples(rng)
    for _ in range(30):
        feed.add([tuple(row[c] for c in COLUMNS) for row in tuples.rows(rng.randint(0, 9))])
        if rng.random() < 0.4:
            restless.crash()
        if rng.random() < 0.6:
            restless.step()
    feed.finish()
    restless.step()
    calm = sl.testing.run(operator)
    calm.step()
    expected = plain_rekey(feed, [key] if isinstance(key, str) else key, partitions)
    assert sum(map(len, expected)) == feed.tuples().num_rows > 30
    for partition, rows in enumerate(expected):
        for run in (restless, calm):
            assert repr(_stored(run, partition)) == repr(rows), "as text: nan is not itself"
    assert restless.input_log.state.boundaries == calm.input_log.state.boundaries
    assert restless.input_log.state.finished


def plain_rekey(feed: Any, key: list[str], partitions: int) -> list[list[Row]]:
    """The specification: all tuples by time, then input partition, then offset, each in the partition of its key."""
    log = feed.input_log
    tables = [pa.concat_tables(list(log.read(p, 0))) for p in range(log.spec.partitions) if log.state.ends[p]]
    rows = sorted((row for table in tables for row in table.to_pylist()), key=lambda row: row["t"])  # stable
    found: list[list[Row]] = [[] for _ in range(partitions)]
    for row in rows:
        values, kinds = [row[name] for name in key], [COLUMNS[name] for name in key]
        found[partition_of(values, kinds, partitions)].append({name: row[name] for name in COLUMNS})
    return found


def _feed(partitions: int, lateness: int) -> Any:
    schema = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    return sl.testing.stream(schema, key="k", time="t", lateness=lateness, partitions=partitions)


def _stored(run: Any, partition: int) -> list[Row]:
    names = list(run.input_log.spec.columns)
    return [row for table in run.input_log.read(partition, 0) for row in table.select(names).to_pylist()]


@pytest.mark.parametrize("seed", range(20))
def test_columns_are_placed_as_values_are_one_by_one(seed: int) -> None:
    rng = Random(seed)
    kinds = rng.choices(sorted(_KINDS), k=rng.choice([1, 2, 3]))
    many = rng.choice([0, 1, 50])
    columns, plain = [], []
    for kind in kinds:
        values = [None if rng.random() < 0.2 else _KINDS[kind][1](rng) for _ in range(many + 2)]
        columns.append(pa.chunked_array([pa.array(values, _KINDS[kind][0])]).slice(2))  # as a piece of a table is
        plain.append(values[2:])
    partitions = rng.choice([1, 2, 7, 10_000])
    expected = [partition_of(values, kinds, partitions) for values in zip(*plain, strict=True)]
    assert spark_partitions(columns, kinds, partitions).tolist() == expected


def _whole(bits: int) -> Any:
    return lambda rng: rng.choice([rng.randrange(-(1 << bits - 1), 1 << bits - 1), -1, 0, 1, -(1 << bits - 1)])


def _decimal(rng: Random, digits: int, scale: int) -> Decimal:
    most = 10 ** rng.randint(1, digits) - 1
    unscaled = rng.choice([rng.randint(-most, most), 0, -1, 127, 128, -128, -129, most, -most])
    return Decimal(max(-most, min(most, unscaled))).scaleb(-scale, Context(prec=38))


_KINDS: dict[str, Any] = {
    "byte": (pa.int8(), _whole(8)),
    "short": (pa.int16(), _whole(16)),
    "integer": (pa.int32(), _whole(32)),
    "long": (pa.int64(), _whole(64)),
    "boolean": (pa.bool_(), lambda rng: rng.random() < 0.5),
    "string": (pa.string(), lambda rng: "".join(rng.choices("aé€😀\0z", k=rng.randrange(12)))),
    "binary": (pa.binary(), lambda rng: rng.randbytes(rng.randrange(15))),
    "decimal(10,2)": (pa.decimal128(10, 2), lambda rng: _decimal(rng, 10, 2)),
    "decimal(18,0)": (pa.decimal128(18, 0), lambda rng: _decimal(rng, 18, 0)),
    "decimal(19,3)": (pa.decimal128(19, 3), lambda rng: _decimal(rng, 19, 3)),
    "decimal(38,10)": (pa.decimal128(38, 10), lambda rng: _decimal(rng, 38, 10)),
}


def test_times_and_dates_are_placed_by_their_numbers() -> None:
    numbers = [0, -1, 1_767_225_600_000_000, 12_345]
    for kind, of in (("timestamp", pa.timestamp("us", "UTC")), ("timestamp_ntz", pa.timestamp("us"))):
        column = pa.array(numbers, pa.int64()).cast(of)
        assert spark_partitions([column], [kind], 1000).tolist() == [partition_of([n], [kind], 1000) for n in numbers]
    days = pa.array([0, -1, 20_000], pa.int32()).cast(pa.date32())
    expected = [partition_of([n], ["date"], 1000) for n in (0, -1, 20_000)]
    assert spark_partitions([days], ["date"], 1000).tolist() == expected


@pytest.mark.parametrize("seed", range(6))
def test_tuples_that_cannot_be_computed_are_set_aside_once_each(seed: int) -> None:
    rng = Random(seed)
    feed = _feed(rng.choice([1, 2, 3]), 8)
    feed.add([tuple(row[c] for c in COLUMNS) for row in Tuples(rng).rows(60)])
    feed.finish()
    by_rest = feed.select("k", "t", "v", rest=pc.field("v") / (pc.field("k") - 2)).rekey("rest", partitions=3)
    run = sl.testing.run(by_rest, on_error="set_aside")
    run.step()
    bad = [row for row in feed.tuples().to_pylist() if row["k"] == 2 and row["v"] is not None]
    assert sorted(row["t"] for row in run.set_aside.to_pylist()) == sorted(row["t"] for row in bad)
    assert run.results.num_rows == feed.tuples().num_rows - len(bad)
