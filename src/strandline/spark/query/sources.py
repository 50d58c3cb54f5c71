"""The queries that persist the DataFrames among the inputs of an operator: they start before it and end with it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from strandline.errors import StrandlineError
from strandline.spark.query.error_in_text import meaning
from strandline.spark.query.query import Query
from strandline.spark.query.restart import BEHIND_A_BOUND
from strandline.spark.query.restarting_run import started
from strandline.spark.query.trigger import AVAILABLE_NOW

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.spark.operator.processing_element import EntryPoint, QueryOptions


class Sources:
    """Some entry points at work, each in a query of its own."""

    def __init__(self) -> None:
        self._queries: list[Query] = []

    @classmethod
    def start(cls, spark: SparkSession, entries: Iterable[EntryPoint], options: QueryOptions) -> Sources:
        """Starts them, or joins those that run; with "available-now" returns when all of them have ended.

        Raises what keeps one of them from working; then none is left running. With a bound, a source that fails later
        is started again, and its stream is a missing input meanwhile.
        """
        sources = cls()
        restart = BEHIND_A_BOUND if options.promise is not None else options.restart
        try:
            for entry in entries:
                begin = partial(entry.persist_with, spark, options)
                sources._queries.append(started(entry._input_place, begin, restart))
            if options.trigger == AVAILABLE_NOW:
                for query in sources._queries:
                    query.await_termination()
        except BaseException:
            sources.stop()
            raise
        return sources

    @property
    def reports(self) -> list[dict[str, Any]]:
        """The figures of the last batch of each."""
        return [query.progress for query in self._queries]

    @property
    def failure(self) -> Exception | None:
        """The error that stopped one of them; None if all run or ended well."""
        for query in self._queries:
            problem = query.exception()
            if problem is not None:
                known = (
                    problem if isinstance(problem, Exception) else StrandlineError(str(problem), where=query.urls[0])
                )
                return meaning(known, query.urls[0])
        return None

    def take_in_all(self) -> None:
        """Returns when everything that the DataFrames have now is published."""
        for query in self._queries:
            if query.is_active:
                query.process_all_available()

    def finish(self) -> None:
        """Stops them after the batches under way, then finishes their streams; raises what keeps one from it."""
        for query in self._queries:
            query.finish()

    def __len__(self) -> int:
        return len(self._queries)

    def stop(self) -> None:
        """Stops them after the batches under way; those that others hold on to go on for these."""
        for query in self._queries:
            with contextlib.suppress(Exception):  # the first failure is the one that is told
                query.stop()
