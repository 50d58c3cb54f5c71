"""The run of a pipeline: the queries of its elements, from the first start to the last end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from types import TracebackType
from typing import Any

from strandline.clock import SYSTEM_CLOCK
from strandline.errors import OptionError, StrandlineWarning, StreamNotFoundError
from strandline.log.storage.redaction import redacted_url
from strandline.log.stream.log_state import LogState
from strandline.running.oldest_waiting import OldestWaiting
from strandline.spark.entry.entry import Entry
from strandline.spark.pipeline.network import Network
from strandline.spark.query.error_in_text import in_short
from strandline.spark.query.query import Query
from strandline.spark.query.waiting import wait_for
from strandline.spark.session.copies import await_streams
from strandline.spark.session.place import Place, path_text
from strandline.supervision import this_copy
from strandline.units import Duration, seconds
from strandline.user_warning import warn
from strandline.wording import plural

_CHECK_EVERY_S = 0.1
_PATIENCE_S = 60.0


class PipelineRun:
    """Handle on a pipeline at work. `run[path]` is the query of one element.

    `with run:` stops all elements at the end of the block.
    """

    def __init__(self, network: Network, begin: Callable[[str], Query], bounded: Set[str]) -> None:
        """Takes the function that starts the element of an address, and the addresses of operators with a bound."""
        self._network = network
        self._begin = begin
        self._bounded = bounded
        self._queries: dict[str, Query] = {}
        self._failures: dict[str, BaseException] = {}
        self._lock = threading.Lock()
        """Held while an element starts, so that a stop does not miss it."""
        self._stops = False
        self._change = threading.Condition()
        """Tells those who wait that an element has failed, or that none is at work any more."""
        self._has_ended = False
        self._has_told = False
        sources = [url for url in network.elements if isinstance(network.elements[url], Entry)]
        self._own = frozenset(network.elements)
        self._waiting = OldestWaiting([*sources, *network.others], network.passages, SYSTEM_CLOCK)
        self._is_timed = False
        """True if the time that tuples wait is known; False while elements run one after the other."""

    # ------------------------------------------------------------------ starting

    def start(self, *, one_by_one: bool) -> None:
        """Starts the elements in order, and looks after them in a thread.

        `one_by_one`: that thread starts each element when those before it have come to their end.
        """
        from pyspark import InheritableThread

        self._is_timed = not one_by_one
        if not one_by_one:
            self._start_all()
        work = self._go_through if one_by_one else self._watch
        InheritableThread(self._until_the_end, args=(work,), name="strandline-pipeline", daemon=True).start()

    def _start_all(self) -> None:
        """Starts all elements; if one cannot start, stops those before it and raises its error."""
        try:
            for url in self._network.elements:
                self._queries[url] = self._begin(url)
        except BaseException:
            self._stop_queries(self._queries)
            raise

    def _go_through(self) -> None:
        """Starts one element after the other, each when the one before has ended; none behind one that has failed."""
        left_out: set[str] = set()
        for url in self._network.elements:
            if url in left_out:
                continue
            try:
                with self._lock:
                    if self._stops or not threading.main_thread().is_alive():
                        return
                    self._queries[url] = self._begin(url)
                while not self._queries[url].await_termination(_CHECK_EVERY_S):
                    pass
            except Exception as problem:
                behind = self._network.behind(url)
                left_out.update(behind)
                self._tell(url, problem, f", so {_listed(behind)} cannot begin" if behind else "")
                self._note(url, problem)

    def _watch(self) -> None:
        """Stops what depends on an element that has failed, until no element is at work."""
        while any(query.is_active for query in self._queries.values()):
            self._look_for_failures()
            self._waiting.look(self._states(), self._own)
            threading.Event().wait(_CHECK_EVERY_S)
        self._look_for_failures()

    def _until_the_end(self, work: Callable[[], None]) -> None:
        """Does the work of the thread. An error in it is that of the element which started last."""
        try:
            work()
        except Exception as problem:
            self._note(next(reversed(self._queries), ""), problem)
        finally:
            with self._change:
                self._has_ended = True
                self._change.notify_all()

    # ------------------------------------------------------------------ failures

    def _look_for_failures(self) -> None:
        for url, query in list(self._queries.items()):
            if url not in self._failures and not query.is_active and (problem := query.exception()) is not None:
                self._bear(url, problem)

    def _bear(self, url: str, problem: BaseException) -> None:
        """Stops the elements that need the results of one that failed, but for those that bridge missing inputs.

        The error is noted last: when `await_termination` raises it, all that had to stop has stopped.
        """
        behind = [other for other in self._network.behind(url, but=self._bounded) if self._queries[other].is_active]
        try:
            self._stop_queries({other: self._queries[other] for other in behind})
        except Exception as trouble:  # the others are looked after in any case
            self._tell(url, trouble, f" and {_listed(behind)} could not be stopped")
        if going_on := [other for other, query in self._queries.items() if query.is_active]:
            stopped = f", so {_listed(behind)} stopped" if behind else ""
            self._tell(url, problem, f"{stopped}; {_listed(going_on)} go on")
        self._note(url, problem)

    @staticmethod
    def _tell(url: str, problem: BaseException, consequence: str) -> None:
        with contextlib.suppress(StrandlineWarning):  # made an error, it would end the thread
            warn(f"the element of {redacted_url(url)} has failed{consequence}: {in_short(problem)}")

    def _states(self) -> dict[str, LogState]:
        """Returns the streams of all elements, each as the element that has seen most of it knows it."""
        found: dict[str, LogState] = {}
        for query in self:
            for url, state in query._run.states.items():
                if url not in found or found[url].seq < state.seq:
                    found[url] = state
        return found

    def _note(self, url: str, problem: BaseException) -> None:
        with self._change:
            self._failures[url] = problem
            self._change.notify_all()

    # ------------------------------------------------------------------ as its user sees it

    def __getitem__(self, path: str) -> Query:
        """Returns the query of the element that writes the stream at this path."""
        url = self._network.written_for(Place(path_text(path)).url)
        if url in self._network.finished:
            raise OptionError(
                "this source has no query: its stream is finished, and the pipeline only reads it",
                where=redacted_url(url),
                todo=f"read the stream: sl.stream({redacted_url(url)!r})",
            )
        if url not in self._network.elements:
            raise OptionError(
                "no element of this pipeline writes a stream at this path",
                where=redacted_url(url),
                todo=f"ask for one of {_listed(self._network.elements)}",
            )
        if url not in self._queries:
            raise OptionError(
                "this element has not begun yet: the elements before it are still at work",
                where=redacted_url(url),
                todo='ask later; with trigger="available-now" elements run one after the other',
            )
        return self._queries[url]

    def __iter__(self) -> Iterator[Query]:
        """Yields the queries of the elements that have begun, each behind those that it depends on."""
        return iter(list(self._queries.values()))

    @property
    def is_active(self) -> bool:
        """True while any element is at work, or one is still to begin."""
        return not self._has_ended

    @property
    def progress(self) -> dict[str, Any]:
        """The state of the whole (running, stopped, failed), and the progress of each element by its address.

        `failed` has the errors that have ended elements, in words; it is left out while there are none.
        `oldest_waiting_s`, while the elements follow each other: for how long the oldest tuple of the sources has
        waited for the last results, stable or tentative; 0 if none waits.
        """
        state = "failed" if self._failures else "stopped" if self._has_ended else "running"
        failed = {url: in_short(problem) for url, problem in self._failures.items()}
        elements = {url: query.progress for url, query in list(self._queries.items())}
        waiting = {"oldest_waiting_s": round(self._waiting.seconds, 3)} if self._is_timed and self.is_active else {}
        return {"state": state, **({"failed": failed} if failed else {}), **waiting, "elements": elements}

    def exception(self) -> BaseException | None:
        """Returns the first error that has ended an element; None if there is none."""
        return next(iter(self._failures.values()), None)

    def await_termination(self, timeout: float | Duration | None = None) -> bool:
        """Waits until all elements have ended (True) or `timeout` has passed (False).

        Raises the error of an element as soon as that has ended it. Elements that do not depend on it go on until
        `stop`.
        """
        limit_s = None if timeout is None else seconds(timeout, "timeout")
        if not wait_for(self._wait, limit_s):
            return False
        self._raise_failure()
        return True

    def stop(self) -> None:
        """Stops all elements after the batches under way, the last of the pipeline first."""
        with self._lock:
            self._stops = True
        self._stop_queries(self._queries)
        wait_for(self._wait_for_the_end, _PATIENCE_S)

    def finish(self) -> None:
        """Ends the pipeline: finishes the streams of its sources, lets each operator take that in, then stops it.

        Each source ends after the batch under way: what it has not read yet is left out. `process_all_available`
        before this waits for that. All windows of time close, and all results are final. Raises, and finishes nothing,
        if an element has failed or is not at work, or if the pipeline reads a stream that others write and have not
        finished.
        """
        self._raise_failure()
        for url in self._network.elements:
            self._require_at_work(url)
        copy = this_copy()
        if copy is not None and not copy.writes_all:
            places = [self._network.places[url] for url in self._network.awaited]
            await_streams(places, lambda log: log.state.finished, "finished")
        self._network.require_finished_by_others()
        for url, query in self._queries.items():
            if isinstance(self._network.elements[url], Entry):
                query.finish()
            else:
                query.process_all_available()
                query.stop()
        wait_for(self._wait_for_the_end, _PATIENCE_S)
        self._raise_failure()

    def _require_at_work(self, url: str) -> None:
        """Raises `OptionError` if an element has ended, or is down: it would not take in the end of the sources."""
        query = self._queries.get(url)
        if query is not None and query.is_active:
            if "next_try_s" not in query.progress:
                return
            what, todo = "waits for its next try", "finish the pipeline when it is at work again, see run.progress"
        else:
            with contextlib.suppress(StreamNotFoundError):
                if self._network.elements[url]._input_place.open().state.finished:
                    return
            what, todo = "is not at work", "start the pipeline again, then finish it; nothing is finished yet"
        raise OptionError(
            f"the pipeline cannot be finished: this element {what}, and would not read the end of its inputs",
            where=redacted_url(url),
            todo=todo,
        )

    def process_all_available(self) -> None:
        """Waits until each element has taken in all that the sources have now. For tests, as Spark's is."""
        for query in self:
            query.process_all_available()

    def __enter__(self) -> PipelineRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops all elements; raises what had ended one, unless that was raised already or something else is."""
        self.stop()
        if problem is None and not self._has_told:
            self._raise_failure()

    def __repr__(self) -> str:
        progress = self.progress
        down = sum("next_try_s" in one for one in progress["elements"].values())
        told = [progress["state"], plural(len(self._network.elements), "element"), *([f"{down} down"] if down else [])]
        return f"PipelineRun({', '.join(told)})"

    def _wait(self, timeout_s: float) -> bool:
        with self._change:
            return self._change.wait_for(lambda: self._has_ended or bool(self._failures), timeout_s)

    def _wait_for_the_end(self, timeout_s: float) -> bool:
        with self._change:
            return self._change.wait_for(lambda: self._has_ended, timeout_s)

    def _raise_failure(self) -> None:
        if (problem := self.exception()) is not None:
            self._has_told = True
            raise problem from None

    @staticmethod
    def _stop_queries(queries: Mapping[str, Query]) -> None:
        """Stops them, the last one first; the first problem is raised when all of them have been asked to stop."""
        with contextlib.ExitStack() as stopping:
            for query in queries.values():
                stopping.callback(query.stop)


def _listed(urls: Iterable[str]) -> str:
    return ", ".join(map(redacted_url, urls))
