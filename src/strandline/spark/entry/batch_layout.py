"""A batch on its way into blocks: to its partition, in order; all of it in Spark's own plan.

The numbers that change from batch to batch (the boundaries) sit in array literals, which Spark passes to its
generated code by reference. As plain literals they would be compiled into it, and every batch would pay for a new
compilation and a cold start.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from strandline.log.stream.column_types import fields_of, has_map
from strandline.log.stream.reason import AHEAD, KEY, LATE, TIME
from strandline.log.stream.spec import StreamSpec
from strandline.spark.entry.set_aside import EntryLimits, long_keys

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REASON_NUMBER = "__reason_number"
_JSON = {f"{kind}Format": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS" for kind in ("timestamp", "timestampNTZ")}
"""Spark's default leaves the microseconds out, and with them what may set two rows apart."""


class BatchRows:
    """Brings batches into the stream's order. Expressions are built once: each costs a call into the JVM."""

    def __init__(self, spec: StreamSpec) -> None:
        from pyspark.sql import functions as F

        self._spec = spec
        self._partition = F.pmod(F.hash(*[quoted(c) for c in spec.key]), F.lit(spec.partitions))
        lengths = [F.coalesce(F.octet_length(quoted(c)), F.lit(0)).cast("long") for c in long_keys(spec)]
        self._key_bytes = functools.reduce(operator.add, lengths, F.lit(0))
        self._time = quoted(spec.time)
        self._order = _order(spec)
        self.columns = [quoted(c) for c in spec.columns]

    def ordered(
        self, df: DataFrame, limits: EntryLimits, reasons: Sequence[str] = (), *, numbered: bool = False
    ) -> DataFrame:
        """Returns the batch with each row in its partition, in the stream's order.

        What `limits` keep out for one of `reasons` comes in partitions of its own, behind the others: one for each, or
        all in one, in the order of a further column, REASON_NUMBER, that has the number of the reason (null elsewhere).
        """
        from pyspark.sql import functions as F

        partition, partitions, order = self._partition, self._spec.partitions, self._order
        if reasons:
            late = F.lit(self._spec.late)
            reason = self._reason(limits, reasons)
            if numbered:
                df = df.withColumn(REASON_NUMBER, reason)
                reason = F.col(REASON_NUMBER)
                partition = F.when(reason.isNull(), partition).otherwise(late)
                partitions, order = partitions + 1, [reason, *order]
            else:
                partition, partitions = F.coalesce(late + reason, partition), partitions + len(reasons)
        return df.repartitionById(partitions, partition).sortWithinPartitions(*order)

    def _reason(self, limits: EntryLimits, reasons: Sequence[str]) -> Column:
        """Returns the number of the first reason to set a tuple aside; null if there is none."""
        from pyspark.sql import functions as F

        spec = self._spec
        latest = F.get(F.expr(f"array({_time_sql(spec, limits.latest)})"), F.lit(0))
        boundaries = F.expr(f"array({', '.join(_time_sql(spec, b) for b in limits.boundaries)})")
        out_of_range = (self._time < time_literal(spec, limits.time_min)) | (
            self._time > time_literal(spec, limits.time_max)
        )
        applies = {
            TIME: out_of_range,
            KEY: self._key_bytes > F.lit(limits.key_bytes_max),
            AHEAD: self._time > latest,
            LATE: self._time < F.get(boundaries, self._partition),
        }
        cases = [F.when(applies[r], F.lit(reasons.index(r))) for r in applies if r in reasons]
        return F.coalesce(*cases)


def quoted(name: str) -> Column:
    """Returns a column by its exact name, dots and all."""
    from pyspark.sql import functions as F

    return F.col("`" + name.replace("`", "``") + "`")


def time_literal(spec: StreamSpec, value: int) -> Column:
    """Returns a point in time as a literal of the time column's type."""
    from pyspark.sql import functions as F

    return F.expr(_time_sql(spec, value))


def _time_sql(spec: StreamSpec, value: int | None) -> str:
    kind = next(f["type"] for f in fields_of(spec.schema) if f["name"] == spec.time)
    if value is None:
        return f"CAST(NULL AS {kind if spec.time_is_timestamp else 'bigint'})"
    if kind == "timestamp":
        return f"timestamp_micros({value}L)"
    if kind == "timestamp_ntz":
        # Not as text, which ends with the year 9999; away from 1970, so that the first of all times has its days, too.
        days, rest_us = divmod(abs(value), 86_400_000_000)
        sign, seconds = "-" if value < 0 else "", f"{rest_us // 1_000_000}.{rest_us % 1_000_000:06d}"
        return f"TIMESTAMP_NTZ '1970-01-01' + make_dt_interval({sign}{days}, 0, 0, {sign}{seconds})"
    return f"{value}L"


def _order(spec: StreamSpec) -> list[Any]:
    """Returns the order: time first, then every other column, so that it does not depend on how the rows came."""
    from pyspark.sql import functions as F

    order = [quoted(spec.time)]
    for f in fields_of(spec.schema):
        if f["name"] != spec.time:
            column = quoted(f["name"])
            # Maps have no order of their own; their text has.
            order.append(F.to_json(F.struct(column), _JSON) if has_map(f["type"]) else column)
    return order
