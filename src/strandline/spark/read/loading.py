"""A reader of Spark's that is to become a DataFrame: what is wrong with its options is found by a Python of Spark's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strandline.spark.query.error_in_text import failure_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def loaded(reader: Any, where: str) -> DataFrame:
    """Loads the DataFrame; raises our error within Spark's, with the stream's address if it has none."""
    try:
        df: DataFrame = reader.load()
    except Exception as problem:
        raise failure_in(str(problem), where) or problem from None
    return df
