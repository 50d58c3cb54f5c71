"""The run of an element that starts again when it has failed: one query after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from strandline.errors import OptionError, StrandlineError, StrandlineWarning
from strandline.log.storage.redaction import redacted_url
from strandline.log.stream.log_state import LogState
from strandline.spark.query.element_run import ElementRun
from strandline.spark.query.error_in_text import in_short
from strandline.spark.query.query import Query
from strandline.spark.query.restart import Restart
from strandline.spark.query.waiting import wait_for
from strandline.spark.session.place import Place
from strandline.user_warning import warn

_LOOK_S = 0.2


def _of_this_try(name: str) -> Any:
    return property(lambda run: getattr(run._query, name))


class RestartingRun(ElementRun):
    """An element that is started again after errors that may pass. Its user sees one run, whatever fails in it."""

    stops_with_program = False  # the query of each try does that

    def __init__(self, place: Place, begin: Callable[[], Query], restart: Restart) -> None:
        """Starts the element with `begin`, and raises the error if that fails: only later errors are borne."""
        self.place = place
        self._begin = begin
        self._restart = restart
        self._query = begin()
        self._change = threading.Condition()
        self._stops = self._has_ended = False
        self._failure: Exception | None = None
        """The error that no other try will follow."""
        self._down: dict[str, Any] = {}
        """The failure, for `progress`; empty while the element is at work."""
        self._restarts = self._tries = 0
        """How often it was started again; how many tries have failed in a row, without a commit between."""
        self._unknown = 0
        """How many of the last of these tries have failed in a row with errors that Strandline does not know."""

    def start(self) -> None:
        """Lets the thread begin that looks after the element."""
        from pyspark import InheritableThread

        InheritableThread(self._supervise, name="strandline-restart", daemon=True).start()

    # ------------------------------------------------------------------ its thread

    def _supervise(self) -> None:
        try:
            while (problem := self._until_it_fails()) is not None and self._starts_again(problem):
                pass
        except Exception as problem:  # a defect, which is not to pass for a good end
            self._failure = problem
        finally:
            with self._change:
                self._down = {}
                self._has_ended = True
                self._change.notify_all()

    def _until_it_fails(self) -> Exception | None:
        """Waits for the end of the query; returns the error that has ended it."""
        stood_at = self._query.progress.get("commit")
        while self._query.is_active:
            with self._change:
                self._change.wait(_LOOK_S)
        if self._query.progress.get("commit") != stood_at:
            self._tries = self._unknown = 0  # it has published something, so these are other troubles
        problem = self._query.exception()
        with self._change:
            if self._stops:
                self._failure = problem
                return None
        return problem

    def _starts_again(self, problem: Exception) -> bool:
        """Pauses and starts the element, until it is at work; returns False if no other try follows."""
        while True:
            self._tries += 1
            self._unknown = 0 if isinstance(problem, StrandlineError) else self._unknown + 1
            if not self._bears(problem) or not self._pause(problem):
                return False
            try:
                query = self._begin()
            except Exception as found:
                problem = found
                continue
            with self._change:
                self._query = query
                self._change.notify_all()
                stops = self._stops
            self._restarts += 1
            self._down = {}
            if stops:
                query.stop()  # who asked meanwhile has stopped the query before
            return True

    def _bears(self, problem: Exception) -> bool:
        """Returns whether another try follows; notes the error if it cannot pass."""
        if not self._stops and not self._restart.bears(problem, self._unknown):
            self._failure = problem
        return not self._stops and self._failure is None

    def _pause(self, problem: Exception) -> bool:
        """Says what has failed, and waits before the next try; returns False if the run stops meanwhile."""
        pause_s = self._restart.pause_s(self._tries)
        told = in_short(problem)
        self._down = {"failed": told, "tries": self._tries, "next_try_s": pause_s}
        where = redacted_url(self.place.url)
        with suppress(StrandlineWarning):  # made an error, it would end the thread
            warn(f"the element of {where} has failed and starts again in {pause_s:g} s, try {self._tries}: {told}")
        with self._change:
            return not self._change.wait_for(lambda: self._stops, pause_s)

    # ------------------------------------------------------------------ as its query shows it

    spark_query = _of_this_try("spark_query")
    urls = _of_this_try("urls")
    id = _of_this_try("id")
    run_id = _of_this_try("run_id")
    name = _of_this_try("name")
    status = _of_this_try("status")
    recent_progress = _of_this_try("recent_progress")

    @property
    def states(self) -> Mapping[str, LogState]:
        """The streams of this try, as it has last seen them."""
        return self._query._run.states

    @property
    def report(self) -> Mapping[str, Any]:
        """The figures of the last batch, the number of restarts, and what has failed while the element is down."""
        restarts = {"restarts": self._restarts} if self._restarts else {}
        return {**self._query.progress, **restarts, **self._down}

    @property
    def running(self) -> Mapping[str, Any]:
        """Nothing: the query of this try has it in its report."""
        return {}

    @property
    def is_active(self) -> bool:
        """True while the element is at work, or waits for the next try."""
        return not self._has_ended

    def exception(self) -> Exception | None:
        """Returns the error that no other try follows."""
        return self._failure

    def wait(self, timeout_s: float | None) -> bool:
        """Waits for the end; returns False if it takes longer."""
        return wait_for(self._ends_within, timeout_s)

    def stop(self, patience_s: float | None) -> None:
        """Ends the element after the batch under way, and lets no other try follow."""
        with self._change:
            self._stops = True
            self._change.notify_all()
        self._query.stop()
        self.wait(patience_s)

    def finish(self) -> None:
        """Ends the element after the batch under way, then finishes its stream; raises if it is down."""
        if self._down and not self._has_ended:
            raise OptionError(
                "the element has failed and waits for its next try: its stream cannot be finished now",
                where=redacted_url(self.place.url),
                todo="call finish() again when query.progress has no `failed` any more",
            )
        with self._change:
            self._stops = True
            self._change.notify_all()
        problem: Exception | None = None
        try:
            self._query.finish()
        except Exception as raised:
            with self._change:
                self._stops = not self._query.is_active
            if not self._stops:
                raise  # it was refused, and the element goes on
            problem = raised
        self.wait(None)
        if problem is not None and self._failure is None:  # else the query of its user raises that
            raise problem

    def process_all_available(self) -> None:
        """Returns when everything is taken in that the inputs have now; goes on with the next try if one fails."""
        while True:
            query = self._query
            try:
                query.process_all_available()
                return
            except Exception:
                wait_for(partial(self._goes_on_without, query), None)
                if self._has_ended:
                    return  # `exception` has the error, if it has failed

    def explain(self, *, extended: bool) -> None:
        self._query.explain(extended)

    def _goes_on_without(self, query: Query, timeout_s: float) -> bool:
        """Returns whether another try is at work, or none will follow."""
        with self._change:
            return self._change.wait_for(lambda: self._has_ended or self._query is not query, timeout_s)

    def _ends_within(self, timeout_s: float) -> bool:
        with self._change:
            return self._change.wait_for(lambda: self._has_ended, timeout_s)


def started(place: Place, begin: Callable[[], Query], restart: Restart | None) -> Query:
    """Starts an element with `begin`; with `restart`, returns a query that goes on after errors that may pass."""
    if restart is None:
        return begin()
    run = RestartingRun(place, begin, restart)
    run.start()
    return Query(run)
