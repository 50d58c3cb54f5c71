"""A batch on its way into blocks: to its partition, in order; all of it in Spark's own plan.

The numbers that change from batch to batch (the boundaries) sit in array literals, which Spark passes to its
generated code by reference. As plain literals they would be compiled into it, and every batch would pay for a new
compilation and a cold start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strandline.log.columns import fields_of, has_map
from strandline.log.spec import StreamSpec
from strandline.log.state import LogState
from strandline.units import time_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_JSON = {f"{kind}Format": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS" for kind in ("timestamp", "timestampNTZ")}
"""Spark's default leaves the microseconds out, and with them what may set two rows apart."""


class Rows:
    """Brings batches into the stream's order. Expressions are built once: each costs a call into the JVM."""

    def __init__(self, spec: StreamSpec) -> None:
        from pyspark.sql import functions as F

        self._spec = spec
        self._partition = F.pmod(F.hash(*[quoted(c) for c in spec.key]), F.lit(spec.partitions))
        self._late = F.lit(spec.late)
        self._time = quoted(spec.time)
        self._order = _order(spec)
        self.columns = [quoted(c) for c in spec.columns]

    def ordered(self, df: DataFrame, state: LogState, *, split_late: bool = True) -> DataFrame:
        """The batch, each row in its partition, in the stream's order.

        Late tuples have a partition of their own, unless the caller takes it upon itself to look for them.
        """
        from pyspark.sql import functions as F

        partition, partitions = self._partition, self._spec.partitions
        if split_late and any(b is not None for b in state.boundaries):
            boundaries = F.expr(f"array({', '.join(_time_sql(self._spec, b) for b in state.boundaries)})")
            is_late = self._time < F.get(boundaries, partition)
            partition, partitions = F.when(is_late, self._late).otherwise(partition), partitions + 1
        return df.repartitionById(partitions, partition).sortWithinPartitions(*self._order)


def quoted(name: str) -> Column:
    """A column by its exact name, dots and all."""
    from pyspark.sql import functions as F

    return F.col("`" + name.replace("`", "``") + "`")


def time_literal(spec: StreamSpec, value: int) -> Column:
    """A point in time as a literal of the time column's type."""
    from pyspark.sql import functions as F

    return F.expr(_time_sql(spec, value))


def _time_sql(spec: StreamSpec, value: int | None) -> str:
    kind = next(f["type"] for f in fields_of(spec.schema) if f["name"] == spec.time)
    if value is None:
        return f"CAST(NULL AS {kind if spec.time_is_timestamp else 'bigint'})"
    if kind == "timestamp":
        return f"timestamp_micros({value}L)"
    if kind == "timestamp_ntz":
        second = time_text(value // 1_000_000 * 1_000_000, is_timestamp=True)[:19]
        return f"TIMESTAMP_NTZ '{second}.{value % 1_000_000:06d}'"
    return f"{value}L"


def _order(spec: StreamSpec) -> list[Any]:
    """Time first, then every other column, so that the order does not depend on how the rows came."""
    from pyspark.sql import functions as F

    order = [quoted(spec.time)]
    for f in fields_of(spec.schema):
        if f["name"] != spec.time:
            column = quoted(f["name"])
            # Maps have no order of their own; their text has.
            order.append(F.to_json(F.struct(column), _JSON) if has_map(f["type"]) else column)
    return order
