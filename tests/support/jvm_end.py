"""Says how the JVM of a test process ended. All later tests of the process fail then, whatever they test."""

from __future__ import annotations

import sys
from typing import Any

from strandline.spark.query import spark_log

SHOWN = 3_000
"""So many characters of Spark's log."""


def end_of_jvm() -> str:
    """Returns the exit status of the JVM and the end of Spark's log; empty if there is none, or if it runs."""
    context: Any = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    gateway = getattr(context, "_gateway", None)
    status = None if gateway is None else gateway.proc.poll()
    if status is None:
        return ""
    log = spark_log.current()
    told = log.read_text(errors="replace")[-SHOWN:] if log is not None and log.exists() else "there is none"
    return f"it is gone, with exit status {status}; Spark's log:\n{told}"
