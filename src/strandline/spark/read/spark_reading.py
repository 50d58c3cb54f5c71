"""DataFrames of `format("strandline")`: a Python process of Spark's finds out what is wrong with their options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from strandline.spark.query.error_in_text import failure_in
from strandline.spark.session.time_zone import session_zone
from strandline.times import Time, Zone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def loaded(reader: Any, where: str) -> DataFrame:
    """Loads the DataFrame; raises our error within Spark's, with the stream's address if it has none."""
    try:
        df: DataFrame = reader.load()
    except Exception as problem:
        raise failure_in(str(problem), where) or problem from None
    return df


def streamed(
    spark: SparkSession,
    where: str,
    options: Mapping[str, Any],
    start: Time,
    as_integer: Callable[[Time, Zone], int],
) -> DataFrame:
    """Loads a streaming DataFrame that begins at "earliest", "latest" or a time; leaves out options that are None."""
    from strandline.spark.session.session import register_as_it_is

    register_as_it_is(spark)
    if not isinstance(start, str) or start not in ("earliest", "latest"):
        start = f"{as_integer(start, session_zone(spark)):+d}"  # the sign: no date
    given = {name: value for name, value in {**options, "start": start}.items() if value is not None}
    return loaded(spark.readStream.format("strandline").options(**given), where)
