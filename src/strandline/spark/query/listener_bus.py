"""The way to Spark's listeners, in few calls of the JVM; in none for a batch if there is no listener.

Every name looked up in the JVM, and every call there, costs a round trip: classes are looked up once, and what is told
goes over as one text and one row. All of it is Spark's internals: where they do not work, no listener is told.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from strandline.clock import stopwatch_s

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ASK_EVERY_S = 3.0
_EVENTS = "StreamingQueryListener$Query"


class ListenerBus:
    """Tells Spark's listeners of one query. For one thread at a time; raises nothing."""

    def __init__(self, spark: SparkSession, query: str, run: str) -> None:
        self._spark = spark
        self._query = query
        self._run = run
        self._works = True
        self._is_shown: bool | None = None
        self._is_heard = False
        self._asked_s: float | None = None
        self._streams: Any = None
        self._progress: Any = None
        self._event: Any = None
        self._row: Any = None
        self._converter: Any = None

    def started(self, name: str | None, timestamp: str) -> None:
        """Tells that a query has started, always: else Spark passes on nothing of it."""
        self._guarded(lambda: self._post(self._class("StartedEvent")(*self._ids(), name, timestamp)))

    def progressed(self, body: Mapping[str, Any], metrics: str) -> None:
        """Tells of a batch; `metrics` is the name of the numbers in it that are observed."""
        self._guarded(lambda: self._tell(body, metrics) if self._has_listeners() else None)

    def ended(self, failure: str | None) -> None:
        """Tells of the end, always, as of the start."""
        self._guarded(lambda: self._post(self._class("TerminatedEvent")(*self._ids(), *self._options(failure, None))))

    def _guarded(self, tell: Any) -> None:
        if not self._works:
            return
        try:
            tell()
        except Exception:
            self._works = False

    def _has_listeners(self) -> bool:
        """Returns whether there were listeners some seconds ago."""
        if self._is_shown is None:
            context = self._spark.sparkContext
            conf = context._conf
            is_logged = conf.get("spark.eventLog.enabled", "false") == "true" or conf.get("spark.extraListeners", "")
            self._is_shown = bool(context.uiWebUrl or is_logged)
        if self._is_shown:
            return True
        now_s = stopwatch_s()
        if self._asked_s is None or now_s - self._asked_s > _ASK_EVERY_S:
            self._asked_s = now_s
            self._is_heard = len(self._manager.listListeners()) > 0
        return self._is_heard

    def _tell(self, body: Mapping[str, Any], metrics: str) -> None:
        numbers = body["observedMetrics"][metrics]
        if self._progress is None:
            self._look_up(numbers)
        progress = self._progress.fromJson(json.dumps(body))
        # Rows that were read from JSON have no values, as far as Spark's listeners are concerned.
        packed = packed_numbers(numbers.values())
        self._row.pointTo(packed, len(packed))
        progress.observedMetrics().put(metrics, self._converter.apply(self._row))
        self._post(self._event(progress))

    def _look_up(self, numbers: Mapping[str, float]) -> None:
        spark = self._jvm.org.apache.spark
        ddl = ", ".join(f"{name} {'double' if isinstance(v, float) else 'bigint'}" for name, v in numbers.items())
        schema = spark.sql.types.StructType.fromDDL(ddl)
        self._converter = spark.sql.catalyst.CatalystTypeConverters.createToScalaConverter(schema)
        self._row = spark.sql.catalyst.expressions.UnsafeRow(len(numbers))
        self._event = self._class("ProgressEvent")
        self._progress = getattr(getattr(spark.sql.streaming, "StreamingQueryProgress$"), "MODULE$")

    def _post(self, event: Any) -> None:
        self._manager.postListenerEvent(event)

    def _class(self, event: str) -> Any:
        return getattr(self._jvm.org.apache.spark.sql.streaming, _EVENTS + event)

    def _ids(self) -> list[Any]:
        ids = self._jvm.java.util.UUID
        return [ids.fromString(self._query), ids.fromString(self._run)]

    def _options(self, *values: str | None) -> list[Any]:
        option = self._jvm.scala.Option
        return [option.apply(value) for value in values]

    @property
    def _manager(self) -> Any:
        if self._streams is None:
            self._streams = self._spark._jsparkSession.streams()
        return self._streams

    @property
    def _jvm(self) -> Any:
        return self._spark._jvm


def packed_numbers(numbers: Iterable[float]) -> bytes:
    """Returns an `UnsafeRow` of at most 64 numbers, for one call of the JVM: integers as bigint, floats as double."""
    values = list(numbers)
    kinds = "".join("d" if isinstance(value, float) else "q" for value in values)
    return struct.pack(f"=q{kinds}", 0, *values)
