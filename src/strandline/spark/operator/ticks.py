"""A clock for Spark's query that the driver winds: a streaming DataFrame with one more row at every tick.

Spark's query over streams has to know only that there is something new, which the driver sees anyway. A source in
Python would tell as well; but Spark runs one in a process of its own, for each stream, and waits at every start until
that has imported everything: longer than all the rest of a start takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Ticks:
    """A clock that has ticked once. Spark forgets the rows of ticks that it has seen."""

    def __init__(self, spark: SparkSession) -> None:
        untyped: Any = spark
        jvm = untyped._jvm
        streams = jvm.org.apache.spark.sql.execution.streaming.runtime
        self._spark = spark
        self._stream = streams.MemoryStream.apply(jvm.org.apache.spark.sql.Encoders.BOOLEAN(), untyped._jsparkSession)
        self._row = jvm.PythonUtils.toSeq([True])
        self.tick()

    @property
    def df(self) -> DataFrame:
        """The ticks, for one query."""
        from pyspark.sql.classic.dataframe import DataFrame

        return DataFrame(self._stream.toDF(), self._spark)

    def tick(self) -> None:
        """Gives Spark a reason for a batch; raises if Spark is gone."""
        self._stream.addData(self._row)
