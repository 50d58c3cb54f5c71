"""The losses of an operator's stream as a table."""

from __future__ import annotations

import pyarrow as pa

from strandline.log import loss_record
from strandline.log.log import Log

_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("from", pa.int64()),
        ("until", pa.int64()),
        ("tuples", pa.int64()),
        ("windows", pa.int64()),
        ("incomplete", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("commit", pa.int64()),
        ("reason", pa.string()),
        ("time_from", pa.int64()),
        ("time_until", pa.int64()),
    ]
)


def loss_table(log: Log) -> pa.Table:
    """Every loss on record, by partition, the oldest first; without rows for a stream that has lost nothing."""
    rows = [
        {
            "partition": loss.partition,
            "from": loss.first,
            "until": loss.until,
            "tuples": loss.tuples,
            "windows": loss.windows,
            "incomplete": loss.incomplete,
            "at": loss.at_us,
            "commit": loss.commit,
            "reason": loss.reason,
            "time_from": loss.time_from,
            "time_until": loss.time_until,
        }
        for standing in log.state.standings
        for loss in reversed([*loss_record.newest_first(log.storage, standing.losses)])
    ]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)
