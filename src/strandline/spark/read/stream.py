"""A handle on a stream that exists: read it with Spark or without, look after it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

import pyarrow as pa

from strandline.clock import SYSTEM_CLOCK, Clock
from strandline.errors import OptionError, StreamNotFoundError
from strandline.inputs.stream_definition import definition_of
from strandline.log.operator_state.loss_record import loss_table
from strandline.log.operator_state.origin_logs import opened_origins
from strandline.log.reading.bounds import Bound, Bounds, log_time
from strandline.log.reading.moment import Moment
from strandline.log.storage.redaction import redacted_url
from strandline.log.stream.log import Log
from strandline.log.stream.spec import StreamSpec
from strandline.log.upkeep import compaction, consumer_registry, retention
from strandline.log.upkeep.grace import GRACE
from strandline.operators.expressions.shape import AS_IS
from strandline.recovery.window_report import current_windows, saved_windows
from strandline.spark.describe.operator_input import OperatorInput
from strandline.spark.describe.rekey import Rekeyed, rekey_operator, rekeyed
from strandline.spark.describe.reprs import stream_html, stream_text
from strandline.spark.query import translation
from strandline.spark.read.arrow_reading import ArrowReading
from strandline.spark.read.block_reading import read_blocks, read_with_tentative
from strandline.spark.read.read_options import MOMENT, SECRET_OPTIONS
from strandline.spark.read.spark_reading import loaded, streamed
from strandline.spark.session.place import Place, path_text
from strandline.spark.session.preconditions import require_classic
from strandline.spark.session.time_zone import current_zone, session_zone
from strandline.times import Time
from strandline.units import Duration, clock_us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from strandline.log.reading.summary import Summary
    from strandline.spark.entry.entry import Entry

_FIRST_LOOK_S = 0.05
_LOOK_S = 1.0
T = TypeVar("T")


class Stream(ArrowReading, OperatorInput):
    """A persistent stream. Every method sees what is published when it is called."""

    def __init__(self, path: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self._input_place = Place(path_text(path), options=dict(storage_options or {}))
        self._log = self._input_place.open()

    def __repr__(self) -> str:
        return stream_text(self._log)

    def _repr_html_(self) -> str:
        return stream_html(self._log)

    # ------------------------------------------------------------------ facts

    @property
    def schema(self) -> StructType:
        """The tuples' schema, as Spark has it."""
        from strandline.spark.read.source_schema import spark_schema

        return spark_schema(self._log.spec, positions=False)

    @property
    def partitions(self) -> int:
        """Into how many partitions the keys are spread."""
        return self._log.spec.partitions

    def offsets(self) -> dict[int, int]:
        """Returns the end of each partition: the offset that the next tuple will get."""
        log = self._fresh()
        return dict(enumerate(log.state.ends[: self.partitions]))

    @property
    def is_finished(self) -> bool:
        """True if its writer has finished it: no tuple will ever be added."""
        return self._fresh().state.finished

    def describe(self) -> Summary:
        """Describes the stream as `strandline inspect` does, as an object."""
        from strandline.inputs.stream_definition import words_of
        from strandline.log.reading.summary import summary

        return summary(self._fresh(), open_input=lambda path: self._input_place.beside(path).open(), words_of=words_of)

    # ------------------------------------------------------------------ reading with Spark

    def read(
        self,
        spark: SparkSession,
        *,
        since: Bound | None = None,
        until: Bound | None = None,
        late: bool = False,
        positions: bool = False,
        tentative: bool = False,
    ) -> DataFrame:
        """Reads the results published so far as a DataFrame, from `since` (inclusive) to `until` (exclusive).

        Bounds are times, or offsets per partition such as `offsets()` returns. Blocks outside of them are not opened.
        A time without a zone is on the clock of the session's (`spark.sql.session.timeZone`), text or datetime.
        On file systems Spark's own Parquet reader reads the blocks, elsewhere Python does. `late` reads the late side
        log instead; `positions` adds the columns `_partition` and `_offset`, in the side log also `_reason`.
        `tentative`, of an operator with a bound, adds the results that it guesses while inputs are missing, and the
        column `_tentative`, which says of each whether it is one.
        """
        require_classic(spark)
        translation.install()
        if late and tentative:
            raise OptionError(
                "late=True does not go with tentative=True",
                todo="leave one of them out: late tuples are never tentative",
            )
        log = self._fresh()
        bounds = Bounds.of(log, since, until, session_zone(spark), late=late)
        if log.storage.local_path("x") is None:
            moment = Moment.of(log, bounds, tentative=tentative)
            options = {"late": late, "positions": positions, "tentative": tentative}
            return self._read_through_python(spark, moment, (bounds.time_from, bounds.time_until), options)
        if tentative:
            return read_with_tentative(spark, log, bounds, positions=positions)
        chosen = [log.spec.late] if late else range(log.spec.partitions)
        blocks = [b for p in chosen for b in bounds.blocks(log, p)]
        return read_blocks(spark, log, blocks, bounds, late=late, positions=positions)

    def _read_through_python(
        self, spark: SparkSession, moment: Moment, times: tuple[int | None, int | None], options: Mapping[str, bool]
    ) -> DataFrame:
        """Reads through Python where Spark itself cannot read: planned at each use, of the tuples published now."""
        from strandline.spark.session.session import register

        register(spark)
        bounds = {name: f"{time:+d}" for name, time in zip(("since", "until"), times, strict=True) if time is not None}
        given: dict[str, Any] = {
            **self._source_options(),
            **options,
            **bounds,
            MOMENT: moment.to_text(),
        }  # the sign: no date
        return loaded(spark.read.format("strandline").options(**given), self._input_place.url)

    def read_stream(
        self,
        spark: SparkSession,
        *,
        start: Time = "earliest",
        max_tuples_per_batch: int | None = None,
        consumer: str | None = None,
        late: bool = False,
        positions: bool = False,
        tentative: bool = False,
    ) -> DataFrame:
        """Reads the results as a streaming DataFrame, from "earliest", "latest" or a time (as in `read`) on.

        `max_tuples_per_batch` bounds a batch. A reader that gives itself a name with `consumer` is registered: what it
        has not read yet is not truncated. `late` follows the side log instead, in the order of its offsets; with a time
        as `start` it begins at the first tuple there whose time is not before it.
        `tentative` gives all that happens to the results of an operator with a bound, in order, and three columns more:
        `_kind` is "stable", "tentative", "undo" (every tentative row of this `_partition` before this `_offset` is
        void) or "rec_done" (what was void is corrected).
        """
        options = {
            **self._source_options(),
            "max_tuples_per_batch": max_tuples_per_batch,
            "consumer": consumer,
            "late": late,
            "positions": positions,
            "tentative": tentative,
        }
        return streamed(
            spark, self._input_place.url, options, start, lambda time, zone: log_time(self._log, time, "start", zone)
        )

    def create_view(self, spark: SparkSession | str, name: str | None = None, *, streaming: bool = False) -> None:
        """Makes the results a temporary view of the session given, or of the active one: `create_view("items")`.

        It holds what is published now, like any view of a DataFrame: create it again for what came since. A table,
        `CREATE TABLE items USING strandline OPTIONS (path '…')`, always shows the newest; with `streaming` it is a view
        of the stream, for `spark.readStream.table("items")`.
        """
        session, view = session_and_name(spark, name)
        (self.read_stream(session) if streaming else self.read(session)).createOrReplaceTempView(view)

    def _source_options(self) -> dict[str, str]:
        return {"path": self._input_place.url, SECRET_OPTIONS: json.dumps(dict(self._input_place.options))}

    # ------------------------------------------------------------------ operators

    @property
    def _input_spec(self) -> StreamSpec:
        """For operators: what this stream is."""
        return self._log.spec

    @overload
    def rekey(self, key: str | Sequence[str], path: None = None, *, partitions: int | None = None) -> Rekeyed: ...

    @overload
    def rekey(
        self, key: str | Sequence[str], path: str, *, spark: SparkSession | None = None, **options: Any
    ) -> Entry: ...

    def rekey(
        self,
        key: str | Sequence[str],
        path: str | None = None,
        *,
        spark: SparkSession | None = None,
        **options: Any,
    ) -> Rekeyed | Entry:
        """Gives the tuples another key. With a `path` it reads, shuffles and persists them there; `start` starts it.

        Time, partitions and lateness are this stream's unless they are given, see `rekeyed`. Other options are those
        of `read_stream` and of `sl.source`. Late tuples of this stream take no part.

        Without a path it is an operator, see `OperatorInput.rekey`: `rekey(key).availability("3 s").into(path)`.
        """
        if path is None:
            return rekey_operator(self, AS_IS, key, options, spark)
        return rekeyed(self, self.read_stream, key, path, spark, options)

    def open_windows(self, *, now: bool = False) -> pa.Table:
        """Returns the open windows of all partitions: those that a recovery begins with, or with `now` those it ends
        with.

        Without `now` state is as of each footprint (`_input`), which takes no look at the input. With it, the input is
        replayed, as in a recovery, and state is as of the last commit; nothing is written.
        """
        log = self._operators()
        if not now:
            return saved_windows(log)
        return current_windows(log, opened_origins(log, lambda path: self._input_place.beside(path).open()))

    def recovery(self) -> list[dict[str, Any]]:
        """Predicts a recovery as of now, per partition: extent, replay, N, T and seconds."""
        standings = enumerate(self._operators().state.standings)
        rows = [{"partition": p, "mode": s.mode, **s.forecast()} for p, s in standings]
        # Everywhere else the two predictions have `recovery` in their names.
        return [{name.replace("_recovery_s", "_s"): value for name, value in row.items()} for row in rows]

    def losses(self) -> pa.Table:
        """Returns what failures have cost an operator whose policy does not replay (`sl.partial`, `sl.none`), a row
        each.

        `partition`, `from` and `until` (input offsets; over several inputs places in their order, with `time_from` and
        `time_until`), `tuples`, `windows` lost altogether, windows that closed `incomplete`, `at`, `commit`, `reason`.
        """
        return loss_table(self._operators())

    def _operators(self) -> Log:
        """Returns the log with all that is published; raises `OptionError` if no operator writes the stream."""
        log = self._fresh()
        definition_of(log.spec, log.storage.url)
        return log

    # ------------------------------------------------------------------ looking after it

    def truncate(self, before: Bound) -> dict[int, int]:
        """Drops whole blocks before a time or before offsets; returns where each partition begins now.

        A time without a zone is on the clock of the active session's zone, without a session on this machine's.
        Refused, with the consumer named, if a registered consumer still needs some of it.
        """
        log = self._fresh()
        if isinstance(before, Mapping):
            starts = retention.truncate(log, before_offset=before)
        else:
            starts = retention.truncate(log, before_time=log_time(log, before, "before", current_zone))
        return dict(enumerate(starts[: self.partitions]))

    def compact(self, *, target_bytes: int = compaction.TARGET_BYTES) -> compaction.Compacted:
        """Joins small blocks of the past into large ones, while writers and readers run."""
        return compaction.compact(self._fresh(), target_bytes=target_bytes)

    def collect(self, *, grace: Duration = GRACE) -> list[str]:
        """Deletes files that nothing refers to, announced `grace` earlier; safe while writers and readers run."""
        return retention.collect(self._fresh(), grace_us=clock_us(grace, "grace"))

    def register_consumer(self, name: str, needs: Mapping[int, int] | Sequence[int] | None = None) -> None:
        """Keeps the tuples from `needs` on (by default: everything there is) until the consumer moves on or goes."""
        log = self._fresh()
        if needs is None:
            needs = log.state.starts[: self.partitions]
        elif isinstance(needs, Mapping):
            needs = [needs.get(p, log.state.starts[p]) for p in range(self.partitions)]
        consumer_registry.register(log, name, needs)

    def unregister_consumer(self, name: str) -> None:
        """Removes a registration, so that its tuples may be truncated; raises `OptionError` for an unknown name."""
        known = [registered.name for registered in self._fresh().state.consumers]
        consumer_registry.unregister(self._log, name)  # in any case, as it also removes what a crash has left
        if name not in known:
            raise OptionError(
                f"there is no consumer {name!r}",
                where=redacted_url(self._log.storage.url),
                todo=f"choose one of {', '.join(known)}" if known else "nothing to do: no consumer is registered",
            )

    def _fresh(self) -> Log:
        self._log.refresh()
        return self._log


def stream(path: str, *, storage_options: Mapping[str, Any] | None = None, wait: Duration | None = None) -> Stream:
    """Opens the stream at `path`; with `wait="10 s"`, waits that long for a writer to create it."""
    return once_there(lambda: Stream(path, storage_options), 0 if wait is None else clock_us(wait, "wait"))


def once_there(open_: Callable[[], T], patience_us: int, clock: Clock = SYSTEM_CLOCK) -> T:
    """Calls `open_` again and again for so long while there is no stream; then raises `StreamNotFoundError`."""
    end_us = clock.steady_us() + patience_us
    pause_s = _FIRST_LOOK_S
    while True:
        try:
            return open_()
        except StreamNotFoundError:
            left_s = (end_us - clock.steady_us()) / 1e6
            if left_s <= 0:
                raise
        clock.sleep(min(pause_s, left_s))
        pause_s = min(_LOOK_S, 2 * pause_s)


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
