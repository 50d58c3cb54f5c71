"""An operator in Spark's streaming tab and for its listeners: a query of its own, although Spark runs none for it.

The events go through internals of Spark 4.3; where these do not work, nothing is shown, and nothing else changes.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from threading import Lock
from typing import TYPE_CHECKING, Any

from strandline.clock import SYSTEM_CLOCK, stopwatch_s
from strandline.spark.query.listener_bus import ListenerBus
from strandline.units import time_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

METRICS = "strandline"
_WHOLE = ("open_windows", "extent", "replay", "results", "footprints", "waiting", "state_bytes")
_SECONDS = ("predicted_recovery_s", "predicted_cold_recovery_s", "step_s", "checkpoint_s")
_RECENT = "spark.sql.streaming.numRecentProgressUpdates"
_PATIENCE_S = 5.0
"""For listeners that hold up the last word about an operator."""


def metrics_of(report: Mapping[str, Any]) -> dict[str, float]:
    """Returns the numbers of a report, over all partitions."""
    whole = {name: report.get(name, 0) for name in _WHOLE}
    sums = {name: sum(value.values()) if isinstance(value, Mapping) else int(value) for name, value in whole.items()}
    return {**sums, **{name: float(report.get(name, 0.0)) for name in _SECONDS}}


class ListenerEvents:
    """Tells Spark's listeners of an operator as of a query: that it has started, what each batch did, that it ended.

    In a thread of its own, so that the operator is at its next batch while they are told of the last.
    """

    def __init__(self, spark: SparkSession, name: str | None, operator: str, description: str) -> None:
        self._name = name
        self._id = operator
        self.run = str(uuid.uuid4())
        """The id of the run, as listeners get it."""
        self._description = description
        self._batch = -1
        self._told_s: float | None = None
        self._has_ended = False
        self._lock = Lock()
        self._bus = ListenerBus(spark, self._id, self.run)
        self._thread = Follower("strandline-listeners")
        self.recent: deque[Any] = deque(maxlen=int(spark.conf.get(_RECENT) or 100))
        """The last progress reports, as PySpark's StreamingQueryProgress."""

    def started(self) -> None:
        """Tells that the query has started, before the first batch; the second call does nothing."""
        with self._lock:
            if self._told_s is not None:
                return
            self._told_s = stopwatch_s()
            now = _now()
            self._hand_over(lambda: self._bus.started(self._name, now))

    def progressed(self, report: Mapping[str, Any]) -> None:
        """Tells of a batch."""
        from pyspark.sql.streaming.listener import StreamingQueryProgress

        self.started()
        self._batch += 1
        body = self._body(report)
        self.recent.append(StreamingQueryProgress.fromJson(body))
        self._hand_over(lambda: self._bus.progressed(body, METRICS))

    def ended(self, failure: Exception | None) -> None:
        """Tells of the end, once; returns when listeners have been told, or take too long."""
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
            "runId": self.run,
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


class Follower:
    """Does one piece of work in a thread of its own, while the caller prepares the next; loses no failure."""

    def __init__(self, name: str) -> None:
        # The same thread for all pieces: Spark keeps a thread in the JVM for each of ours.
        self._thread = ThreadPoolExecutor(1, name)
        self._piece: Future[None] | None = None
        self._turn = Lock()

    def hand_over(self, work: Callable[[], None]) -> None:
        """Starts the work once the piece before it is done. Raises what stopped that one."""
        with self._turn:
            if self._piece is not None:
                self._piece.result()
            self._piece = self._thread.submit(work)

    def wait(self, timeout_s: float | None) -> bool:
        """Waits until it has nothing to do; returns False if that takes longer. Raises no failure of the work."""
        return self._piece is None or bool(wait_for([self._piece], timeout_s).done)

    def close(self) -> None:
        """Ends the thread; nothing may be handed over afterwards."""
        self._thread.shutdown(wait=False)


def _now() -> str:
    return time_text(SYSTEM_CLOCK.now_us(), is_timestamp=True).replace(" ", "T") + "Z"
