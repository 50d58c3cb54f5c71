"""The time zone of a session: on its clock are the times that say no zone, as in Spark's own SQL."""

from __future__ import annotations

import datetime as dt
import sys
from typing import TYPE_CHECKING

from strandline.times import Zone, zone_named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTING = "spark.sql.session.timeZone"


def session_zone(spark: SparkSession) -> Zone:
    """Returns the zone that `spark.sql.session.timeZone` names, when it is asked for: Python may not know all of
    Spark's."""
    return lambda: zone_named(str(spark.conf.get(SETTING)))


def current_zone() -> dt.tzinfo | None:
    """Returns the zone of the active session, or of the program's only one; None without a session."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    context = getattr(spark, "_sc", None)
    is_stopped = context is not None and context._jsc is None
    return None if spark is None or is_stopped else zone_named(str(spark.conf.get(SETTING)))
