"""An operator in Spark's streaming tab and for its listeners.

An operator over a stream runs in a Spark query that reads no rows, because the operator's tasks read the blocks: its
numbers are put where Spark would have counted them. An operator behind an entry point shares that one's query and is
behind it by a batch: to Spark's listeners it is a query of its own. Both ways go through internals of Spark 4.3; where
they do not work, nothing is shown, and nothing else changes.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

from strandline.clock import SYSTEM_CLOCK, stopwatch_s
from strandline.spark.query.follower import Follower
from strandline.spark.query.listener_bus import ListenerBus
from strandline.spark.query.unsafe_row import packed_text
from strandline.units import time_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

METRICS = "strandline"
_WHOLE = ("open_windows", "extent", "replay", "results", "footprints", "waiting", "state_bytes")
_SECONDS = ("predicted_recovery_s", "predicted_cold_recovery_s", "step_s", "checkpoint_s")
_RECENT = 100
_PATIENCE_S = 5.0
"""For listeners that hold up the last word about an operator."""


def metrics_of(report: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a report, over all partitions."""
    whole = {name: report.get(name, 0) for name in _WHOLE}
    sums = {name: sum(value.values()) if isinstance(value, Mapping) else int(value) for name, value in whole.items()}
    return {**sums, **{name: float(report.get(name, 0.0)) for name in _SECONDS}}


# ---------------------------------------------------------------------- a Spark query of its own


def observed(ticks: DataFrame) -> DataFrame:
    """The same ticks, with a column in which Spark reports the numbers of an operator. No row ever passes it."""
    from pyspark.sql import functions as F

    kinds = {**dict.fromkeys(_WHOLE, "long"), **dict.fromkeys(_SECONDS, "double")}
    # As texts: each call of a function is several round trips to the JVM, and a look at the stack.
    told = (f"CAST(get_json_object(max(report), '$.{name}') AS {kind}) AS {name}" for name, kind in kinds.items())
    return ticks.selectExpr("'' AS report").observe(METRICS, *map(F.expr, told))


class QueryNumbers:
    """Puts the numbers of an operator into the progress of the Spark query that it runs in."""

    def __init__(self) -> None:
        self._works = True
        # Every name looked up in the JVM, and every call there, costs a round trip.
        self._run: Any = None
        self._row: Any = None

    def put(self, query: StreamingQuery | None, jvm: Any, tuples: int, report: Mapping[str, Any]) -> None:
        """For the batch that is under way: `tuples` were taken in, and the report tells the rest."""
        if not self._works or query is None or not report:
            return
        try:
            if self._run is None:
                self._run = query._jsq.streamingQuery()
                self._row = jvm.org.apache.spark.sql.catalyst.expressions.UnsafeRow(1)
            plan = self._run.lastExecution().executedPlan()
            if tuples:
                plan.collectLeaves().head().longMetric("numOutputRows").add(tuples)
            packed = packed_text(json.dumps(metrics_of(report)))
            self._row.pointTo(packed, len(packed))
            plan.accumulator().add(self._row)
        except Exception:
            self._works = False


# ---------------------------------------------------------------------- a query to listeners only


class ListenerEvents:
    """Tells Spark's listeners of an operator as of a query: that it has started, what each batch did, that it ended.

    In a thread of its own, so that the operator is at its next batch while they are told of the last.
    """

    def __init__(self, spark: SparkSession, name: str, operator: str, description: str) -> None:
        self._name = name
        self._id = operator
        self._run = str(uuid.uuid4())
        self._description = description
        self._batch = -1
        self._told_s: float | None = None
        self._has_ended = False
        self._lock = Lock()
        self._bus = ListenerBus(spark, self._id, self._run)
        self._thread = Follower("strandline-listeners")
        self.recent: deque[Any] = deque(maxlen=_RECENT)
        """What was told, as PySpark's StreamingQueryProgress."""

    def started(self) -> None:
        """Once, before the first batch; again, it does nothing."""
        with self._lock:
            if self._told_s is not None:
                return
            self._told_s = stopwatch_s()
            now = _now()
            self._hand_over(lambda: self._bus.started(self._name, now))

    def progressed(self, report: Mapping[str, Any]) -> None:
        """After each batch."""
        from pyspark.sql.streaming.listener import StreamingQueryProgress

        self.started()
        self._batch += 1
        body = self._body(report)
        self.recent.append(StreamingQueryProgress.fromJson(body))
        self._hand_over(lambda: self._bus.progressed(body, METRICS))

    def ended(self, failure: Exception | None) -> None:
        """Once, at the end; returns when listeners have been told, or take too long."""
        with self._lock:
            if self._has_ended:
                return
            self._has_ended = True
        if self._told_s is not None and self._thread.wait(_PATIENCE_S):
            problem = None if failure is None else str(failure)
            self._hand_over(lambda: self._bus.ended(problem))
            self._thread.wait(_PATIENCE_S)
        self._thread.close()

    def _hand_over(self, tell: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # its thread is gone: the end has been told
            self._thread.hand_over(tell)

    def _body(self, report: Mapping[str, Any]) -> dict[str, Any]:
        now_s = stopwatch_s()
        tuples, took_s = int(report["input_tuples"]), max(1e-6, float(report["operator_s"]))
        since_s = max(took_s, now_s - (self._told_s or now_s))
        self._told_s = now_s
        rates = {"inputRowsPerSecond": tuples / since_s, "processedRowsPerSecond": tuples / took_s}
        took_ms = round(took_s * 1e3)
        numbers = metrics_of(report)
        source = {"description": self._description, "startOffset": None, "endOffset": None, "latestOffset": None}
        state = {
            "operatorName": METRICS,
            "numRowsTotal": numbers["open_windows"],
            "numRowsUpdated": numbers["footprints"],
            "allUpdatesTimeMs": round(numbers["step_s"] * 1e3),
            "numRowsRemoved": numbers["results"],
            "allRemovalsTimeMs": 0,
            "commitTimeMs": round(numbers["checkpoint_s"] * 1e3),
            "memoryUsedBytes": numbers["state_bytes"],
            "numRowsDroppedByWatermark": 0,
            "numShufflePartitions": len(report["extent"]),
            "numStateStoreInstances": len(report["extent"]),
            "customMetrics": {},
        }
        return {
            "id": self._id,
            "runId": self._run,
            "name": self._name,
            "timestamp": _now(),
            "batchId": self._batch,
            "batchDuration": took_ms,
            "numInputRows": tuples,
            **rates,
            "durationMs": {"addBatch": took_ms, "triggerExecution": took_ms},
            "eventTime": {},
            "stateOperators": [state],
            "sources": [{**source, "numInputRows": tuples, **rates, "metrics": {}}],
            "sink": {"description": METRICS, "numOutputRows": numbers["results"], "metrics": {}},
            "observedMetrics": {METRICS: numbers},
        }


def _now() -> str:
    return time_text(SYSTEM_CLOCK.now_us(), is_timestamp=True).replace(" ", "T") + "Z"
