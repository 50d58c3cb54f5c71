"""Streams by name, for SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session_and_name(spark: SparkSession | str, name: str | None) -> tuple[SparkSession, str]:
    """Returns session and name for `create_view(spark, "items")`; for `create_view("items")` the active session."""
    from pyspark.sql import SparkSession

    if isinstance(spark, str) and name is None:
        active = SparkSession.getActiveSession()
        if active is None:
            raise OptionError(
                "there is no active Spark session to create a view in",
                todo='start one with sl.session(), or pass yours: create_view(spark, "items")',
            )
        return active, spark
    if isinstance(spark, str) or not isinstance(name, str):
        raise OptionError(
            f"create_view({spark!r}, {name!r}) does not name a view",
            todo='write create_view("items") or create_view(spark, "items")',
        )
    return spark, name
