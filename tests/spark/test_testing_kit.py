"""The kit for users' tests places, orders and judges tuples as the entry point does with Spark."""

import datetime as dt
import math
from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest

import strandline as sl
from strandline.log.storage.storage_url import open_storage
from strandline.log.stream.log import Log

pytestmark = pytest.mark.spark

KEYS = {
    "k_long": (pa.int64(), [0, -1, 1 << 40, 7]),
    "k_int": (pa.int32(), [0, -(1 << 31), 5]),
    "k_short": (pa.int16(), [3, -3]),
    "k_text": (pa.string(), ["", "a", "abcd", "é\U0001f600", "long" * 9]),
    "k_blob": (pa.binary(), [b"", b"\xff\x00\x80", b"abcde"]),
    "k_day": (pa.date32(), [dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
    "k_flag": (pa.bool_(), [True, False]),
    "k_moment": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(1969, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, 1, 1, 1, 5, dt.UTC)],
    ),
    "k_small": (pa.decimal128(10, 2), [Decimal("-99999999.99"), Decimal("0.01")]),
    "k_large": (
        pa.decimal128(30, 4),
        [Decimal("-1.0000"), Decimal("99999999999999999999999999.9999"), Decimal("0.0128")],
    ),
}
VALUES = {
    "x": (pa.float64(), [0.0, -0.0, math.nan, -math.inf, 1.5]),
    "tags": (pa.list_(pa.int64()), [[], [1], [1, 2], [None]]),
    "pair": (pa.struct([("a", pa.string()), ("b", pa.int32())]), [{"a": "z", "b": 1}, {"a": None, "b": 2}]),
}
NOW = dt.datetime.now(dt.UTC).replace(microsecond=0)
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in VALUES.items()])
SCHEMA = SCHEMA.append(pa.field("at", pa.timestamp("us", "UTC")))
for _name, (_kind, _) in KEYS.items():
    SCHEMA = SCHEMA.append(pa.field(_name, _kind))


def batch(rng, number):
    rows = []
    for _ in range(120):
        row = {n: None if rng.random() < 0.2 else rng.choice(some) for n, (_, some) in (KEYS | VALUES).items()}
        row["at"] = NOW + dt.timedelta(seconds=10 * number + rng.randint(-25, 3))
        if rng.random() < 0.03:
            row["at"] = NOW + dt.timedelta(days=3)
        rows.append(row)
    return rows


def plain(tables):
    """Equal if the rows are, NaN and zeros included."""
    return [repr(row) for table in tables for row in table.to_pylist()]


def test_the_kit_and_the_entry_point_make_the_same_stream_of_the_same_batches(feed, drain, tmp_path):
    rng = Random(11)
    batches = [batch(rng, number) for number in range(3)]
    options = {"key": list(KEYS), "time": "at", "partitions": 5, "lateness": "5 s", "max_ahead": "1 day"}
    drain(feed(*batches, schema=SCHEMA).df, tmp_path / "real", **options)
    kit = sl.testing.stream(SCHEMA, clock=sl.testing.HandClock(NOW), **options)
    for rows in batches:
        kit.add(rows)
    real, ours = Log.open(open_storage(str(tmp_path / "real"))), kit.input_log
    assert real.state.boundaries == ours.state.boundaries
    assert real.state.ends == ours.state.ends
    assert real.state.ends[real.spec.late] > 20
    for p in range(real.spec.partitions + 1):
        assert plain(real.read(p)) == plain(ours.read(p)), p
    sides = [[(b.first, b.end, b.reason) for b in log.blocks(log.spec.late)] for log in (real, ours)]
    assert sides[0] == sides[1]
