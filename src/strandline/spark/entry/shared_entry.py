"""One entry point, several who hold on to it: the query that reads the source runs as long as one of them does."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from strandline.clock import stopwatch_s
from strandline.errors import OptionError, SecondWriterError, StrandlineWarning
from strandline.spark.query.following import FollowingOperator
from strandline.spark.query.query import Query
from strandline.spark.query.spark_run import SparkRun
from strandline.spark.query.waiting import Waiting
from strandline.user_warning import warn

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from strandline.spark.query.operator_batches import FusedBatches
    from strandline.spark.session.place import Place

_LOOK_S = 0.1
_PATIENCE_S = 60.0


class EntryRun:
    """A query that reads a source, and those who hold on to it: the entry point itself, or operators behind it."""

    def __init__(
        self,
        spark_query: StreamingQuery,
        handler: FusedBatches,
        *,
        trigger: str | None,
        final: bool,
        spark_checkpoint_dir: str | None = None,
    ) -> None:
        self.spark_query = spark_query
        self.handler = handler
        self.trigger = trigger
        self.spark_checkpoint_dir = spark_checkpoint_dir
        self.end_is_heard = False
        """Whether somebody who held on to it has been told that it has ended: until then others count on joining it."""
        self._final = final
        self._lock = threading.Lock()
        self._shares: list[EntryShare] = []
        self._is_closing = False

    @property
    def is_open(self) -> bool:
        """Whether an operator can still join it."""
        return not self._is_closing and not self.handler.is_stopping and bool(self.spark_query.isActive)

    def require_same(self, trigger: str | None, spark_checkpoint_dir: str | None, *, final: bool) -> None:
        """`OptionError` if an operator asks for what the query that it joins does not do."""
        if trigger not in (None, self.trigger):
            asked = f"trigger={trigger!r}"
        elif spark_checkpoint_dir not in (None, self.spark_checkpoint_dir):
            asked = f"spark_checkpoint_dir={spark_checkpoint_dir!r}"
        elif final and not self._final:
            asked = "final=True"
        else:
            return
        raise OptionError(
            f"{asked}, but the source is being read already, with trigger={self.trigger!r}, "
            f"spark_checkpoint_dir={self.spark_checkpoint_dir!r}, final={self._final}: "
            "operators of one source share its query",
            where=self.handler.place.url,
            todo="give those that join it the same, or leave it out; or stop the others first",
        )

    def require_no_other(self, place: Place) -> None:
        """`SecondWriterError` if an operator writes there already."""
        with self._lock:
            operators = [share.operator for share in self._shares if share.operator is not None]
        if any(operator.place.url == place.url for operator in operators):
            raise SecondWriterError(
                "this stream is being written already, by an operator of this program on the same source",
                where=place.url,
                todo="stop that query first, or let it run",
            )

    def share(self, operator: FollowingOperator | None) -> Query:
        """A handle for the first who holds on to it."""
        share = EntryShare(self, operator)
        with self._lock:
            self._shares.append(share)
        return self._handle(share)

    def join(self, operator: FollowingOperator | None) -> Query | None:
        """A handle for one more who holds on to it; None if the query is coming to its end.

        With an operator, that follows from now on.
        """
        share = EntryShare(self, operator)
        with self._lock:  # whoever ends it has closed it before, or finds this operator
            if not self.is_open:
                return None
            self._shares.append(share)
            if operator is not None:
                self.handler.join(operator)
        return self._handle(share)

    def _handle(self, share: EntryShare) -> Query:
        if (operator := share.operator) is not None:
            operator.events.started()
            operator.when_failed = lambda: self._failed(share)
            if operator.failure is not None:
                self._failed(share)
        return Query(SparkRun(SharedSparkQuery(share), share))  # type: ignore[arg-type]

    def close(self) -> None:
        """Nobody can join it any more."""
        with self._lock:
            self._is_closing = True

    def wait_for_the_end(self) -> None:
        """Returns when it does nothing any more, once it is not open: whoever reads the source next must not meet it.

        That Spark's query ends is waited for as long as `Query.stop` would.
        """
        Waiting(self.spark_query).wait(_PATIENCE_S)
        self.handler.settle(None)
        for operator in list(self.handler.operators):
            operator.wait(None)

    def leave(self, share: EntryShare) -> bool:
        """Lets go of it, unless nobody else holds on to it: whether that is so."""
        with self._lock:
            if share not in self._shares:
                return False
            if len(self._shares) == 1:
                self._is_closing = True
                return True
            self._shares.remove(share)
        if share.operator is not None:
            self.handler.operators.remove(share.operator)
        share.leave()
        return False

    def _failed(self, share: EntryShare) -> None:
        """Lets go of an operator that failed, and says so: nobody may wait for it. The query ends with the last one."""
        is_last = self.leave(share)
        if share.operator is not None:
            share.operator.close()
        if is_last:
            # In a thread of its own: it waits for the batch under way, which may wait for this operator.
            threading.Thread(target=self.handler.end, daemon=True).start()
            return
        with contextlib.suppress(StrandlineWarning):  # made an error, it would end the source
            warn(
                f"the operator of {share.place.url} has failed, others on its source go on: {share.failure}",
            )


class EntryShare:
    """One who holds on to an entry point, as `Query` sees it: with an operator of its own, or for the stream's sake."""

    def __init__(self, run: EntryRun, operator: FollowingOperator | None) -> None:
        self.run = run
        self.operator = operator
        self._has_left = False
        self._is_for_all = False
        """Whether the end that comes is that of the whole stream."""

    @property
    def has_left(self) -> bool:
        """Whether the query goes on without it. Who finishes the stream answers for the query, even after leaving."""
        return self._has_left and not self._is_for_all

    def leave(self) -> None:
        """From now on the query goes on without it."""
        self._has_left = True

    @property
    def place(self) -> Place:
        """Where the stream is that its holder asked for."""
        return self.run.handler.place if self.operator is None else self.operator.place

    @property
    def urls(self) -> tuple[str, ...]:
        """Where the streams are that are written for it: the entry point's, and the operator's."""
        entry = self.run.handler.place.url
        return (entry,) if self.operator is None else (entry, self.operator.place.url)

    @property
    def report(self) -> Mapping[str, Any]:
        """What the last batch did, and what the operator did last; `commit` is that of the operator's stream."""
        handler = self.run.handler
        if self.operator is None:
            return handler.progress
        entry = {name: value for name, value in handler.progress.items() if name not in ("commit", "housekeeping")}
        return {**entry, **handler.input_housekeeping, **self.operator.report}

    @property
    def running(self) -> Mapping[str, Any]:
        """What the operator, or else the entry point, is at; empty if nothing."""
        return (self.operator.running if self.operator is not None else {}) or self.run.handler.running

    @property
    def spark_progress(self) -> Iterable[Any] | None:
        """What Spark's listeners were told of the operator; None: ask Spark's query."""
        return None if self.operator is None else self.operator.events.recent

    @property
    def failure(self) -> Exception | None:
        """What stopped the operator, or else the entry point before it had left."""
        own = None if self.operator is None else self.operator.failure
        return own or (None if self.has_left else self.run.handler.failure)

    @property
    def is_busy(self) -> bool:
        """Whether there is work left that Spark does not know of."""
        is_behind = self.operator is not None and self.operator.is_busy
        return is_behind or (not self.has_left and self.run.handler.is_busy)

    def take_in_all(self) -> None:
        """Returns when the operator has taken in everything that is published."""
        if self.operator is not None:
            self.operator.wait(None)

    def halt(self, timeout_s: float | None) -> bool:
        """Returns when the operator has taken in what is published; the last to leave waits for the batch under way."""
        began_s = stopwatch_s()
        is_free = True
        if self._is_for_all or self.run.leave(self):
            is_free = self.run.handler.halt(timeout_s)
        if self.operator is None:
            return is_free
        left_s = None if timeout_s is None else max(0.0, timeout_s - (stopwatch_s() - began_s))
        if not self.operator.wait(left_s):
            self.operator.cancel()
            return False
        return is_free

    def settle(self, timeout_s: float | None) -> bool:
        """Waits for the operator, and for the end of the stream if there is to be one."""
        is_done = self.has_left or self.run.handler.settle(timeout_s)
        if is_done and self.operator is not None:
            is_done = self.operator.wait(timeout_s)
            if is_done:
                self.operator.close()
        self.run.end_is_heard |= is_done and not self.has_left
        return is_done

    def require_can_complete(self) -> None:
        """An entry point decides when its stream is finished: for all who hold on to it."""
        self._is_for_all = True
        self.run.close()

    def finish_stream(self, again: Callable[[], StreamingQuery] | None = None) -> None:
        """Completes the stream, in a thread of its own."""
        self.run.handler.finish_stream(again)


class SharedSparkQuery:
    """Spark's query as one of several sees it who hold on to it: its end is theirs, theirs is not its end."""

    def __init__(self, share: EntryShare) -> None:
        self._share = share
        self._query = share.run.spark_query

    def __getattr__(self, name: str) -> Any:
        return getattr(self._query, name)

    @property
    def isActive(self) -> bool:
        """Whether it runs, for this one."""
        return not self._share.has_left and bool(self._query.isActive)

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """As in Spark; returns, too, when this one has left."""
        end_s = None if timeout is None else stopwatch_s() + timeout
        while not self._share.has_left:
            left_s = _LOOK_S if end_s is None else min(_LOOK_S, end_s - stopwatch_s())
            if left_s < 0.001:  # Spark counts in milliseconds, and takes none for a mistake
                return self._query.awaitTermination(0.001)  # type: ignore[arg-type]
            if self._is_ending(left_s):
                return self._query.awaitTermination()
        return True

    def _is_ending(self, timeout_s: float) -> bool:
        """Whether its end has begun: Spark says so before its manager has let go of the query.

        Only a wait without a limit is one for the whole of the end.
        """
        try:
            return bool(self._query.awaitTermination(timeout_s))  # type: ignore[arg-type]
        except Exception:  # the next wait raises it again
            return True

    def exception(self) -> BaseException | None:
        """What stopped it, unless this one had left before."""
        return None if self._share.has_left else self._query.exception()

    def stop(self) -> None:
        """Stops it if nobody else holds on to it."""
        if not self._share.has_left:
            self._query.stop()
