"""Tuples on their way into a stream: each once, to its key's partition, in an order that the source cannot change."""

import datetime as dt
import random
from decimal import Decimal

import pyarrow as pa
import pytest

pytestmark = pytest.mark.spark

BERRIES = ("fig", "", None, "ümlaut", "a" * 40)


def in_order(batches, partition_of, key="k", time="at"):
    """The specification: batch after batch, by time and then by every other column, nulls first."""
    found = {}
    for rows in batches:
        others = [name for name in rows[0] if name != time] if rows else []
        for row in sorted(rows, key=lambda r: [(r[n] is not None, r[n]) for n in (time, *others)]):
            found.setdefault(partition_of[row[key]], []).append(row)
    return found


def partitions_of(content, key="k"):
    places = {}
    for partition, rows in content.items():
        for row in rows:
            places.setdefault(row[key], set()).add(partition)
    assert all(len(found) == 1 for found in places.values()), f"a key in two partitions: {places}"
    return {k: found.pop() for k, found in places.items()}


def times_as_numbers(content):
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return {
        p: [{**row, "at": (row["at"] - epoch) // dt.timedelta(microseconds=1)} for row in rows]
        for p, rows in content.items()
    }


def test_tuples_arrive_once_by_time_and_then_by_every_column(feed, drain, content, tmp_path):
    choice = random.Random(1)
    batches = [
        [{"k": choice.randrange(9), "v": choice.choice(BERRIES), "at": choice.randrange(30)} for _ in range(60)]
        for _ in range(4)
    ]
    source = feed(*batches[:2])
    drain(source.df, tmp_path / "s", partitions=3)
    for rows in batches[2:]:
        source.add(rows)
    drain(source.df, tmp_path / "s", partitions=3)  # the same keys go the same way after a restart

    found = times_as_numbers(content(tmp_path / "s"))
    partition_of = partitions_of(found)
    assert found == in_order(batches, partition_of)
    assert set(partition_of.values()) == {0, 1, 2}


def test_the_order_of_rows_and_files_in_the_source_changes_nothing(feed, drain, content, items, tmp_path):
    rows = items(200, keys=20)
    choice = random.Random(2)
    shuffled = choice.sample(rows, len(rows))
    straight = feed(rows[:100], rows[100:], name="straight", files_per_batch=2)
    crooked = feed(shuffled[:20], shuffled[20:21], shuffled[21:], name="crooked", files_per_batch=3)
    drain(straight.df, tmp_path / "a")
    drain(crooked.df.repartition(7), tmp_path / "b")
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_batches_without_tuples_and_partitions_without_tuples(feed, drain, content, items, tmp_path):
    source = feed(items(4, keys=1), items(3, first=100), items(2, first=200, keys=1))
    progress = drain(source.df.where("at < '1970-01-01 00:01:40' or k = 0 and v > 'v2'"), tmp_path / "s")
    assert (progress["batch"], progress["commit"], progress["tuples"]) == (2, 2, 2)
    found = content(tmp_path / "s")
    assert sorted(row["v"] for rows in found.values() for row in rows) == ["v0", "v1", "v2", "v200", "v201", "v3"]
    assert sorted(map(len, found.values())) == [0, 6]


KEYS = [
    ("string", pa.string(), ["a", "b", "", "ü", "long enough to have a tail"]),
    ("binary", pa.binary(), [b"", b"\x00", b"\xff\xfe", b"abcdefg"]),
    ("decimal", pa.decimal128(30, 5), [Decimal("1.5"), Decimal("-2"), Decimal("12345678901234567890.12345")]),
    ("date", pa.date32(), [dt.date(1969, 12, 31), dt.date(2026, 1, 31), dt.date(1600, 2, 29)]),
    ("boolean", pa.bool_(), [True, False]),
    ("byte", pa.int8(), [-128, 0, 127]),
    ("timestamp without zone", pa.timestamp("us"), [dt.datetime(2026, 1, 1), dt.datetime(1950, 1, 1, 0, 0, 0, 1)]),
]


@pytest.mark.parametrize(("kind", "values"), [row[1:] for row in KEYS], ids=[row[0] for row in KEYS])
def test_a_key_of_any_type_or_null_keeps_its_partition(kind, values, feed, drain, content, tmp_path):
    schema = pa.schema([("k", kind), ("at", pa.int64())])
    keys = [*values, None]
    source = feed([{"k": k, "at": 1} for k in keys], schema=schema)
    drain(source.df, tmp_path / "s")
    source.add([{"k": k, "at": 2} for k in reversed(keys)])
    drain(source.df, tmp_path / "s")
    found = content(tmp_path / "s")
    assert set(partitions_of(found)) == set(keys)
    assert sum(map(len, found.values())) == 2 * len(keys)


def test_several_key_columns_make_one_key(feed, drain, content, tmp_path):
    schema = pa.schema([("a", pa.string()), ("b", pa.int32()), ("at", pa.int64())])
    pairs = [(a, b) for a in ("x", "y", None) for b in (1, 2, None)]
    rows = [{"a": a, "b": b, "at": at} for at in (1, 2) for a, b in pairs]
    drain(feed(rows[:9], rows[9:], schema=schema).df, tmp_path / "s", key=["a", "b"])
    found = content(tmp_path / "s")
    places = partitions_of({p: [{**r, "k": (r["a"], r["b"])} for r in rows] for p, rows in found.items()})
    assert set(places) == set(pairs)
    assert set(places.values()) == {0, 1}


def test_one_partition_keeps_everything_in_one_order(feed, drain, content, items, tmp_path):
    drain(feed(items(20)[::-1], items(20, first=20)[::-1]).df, tmp_path / "s", partitions=1)
    assert [row["v"] for row in content(tmp_path / "s")[0]] == [f"v{i}" for i in range(40)]
