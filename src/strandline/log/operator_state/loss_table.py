"""The losses of an operator's stream as a table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from strandline.log.operator_state import loss_record
from strandline.log.operator_state.loss import Loss
from strandline.log.stream.log import Log

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


NOT_ON_RECORD = "not on record"
"""The reason of a row that stands for all losses of a partition whose record is gone or rotten."""


def loss_table(log: Log) -> pa.Table:
    """Returns every loss, by partition, the oldest first; without rows for a stream that has lost nothing.

    Losses whose record cannot be read are one row at the head of their partition, with their sums and nothing else.
    """
    rows: list[dict[str, Any]] = []
    for partition, standing in enumerate(log.state.standings):
        found = loss_record.on_record(log.storage, standing.losses)
        if found.count > 0:
            hole = {"partition": partition, "tuples": found.tuples, "windows": found.windows, "reason": NOT_ON_RECORD}
            rows.append(hole)
        rows += map(_row, reversed(found.losses))
    return pa.Table.from_pylist(rows, schema=_SCHEMA)  # leaves out fields that are no columns


def _row(loss: Loss) -> dict[str, Any]:
    return {**loss.to_json(), "from": loss.first, "tuples": loss.tuples, "at": loss.at_us}
