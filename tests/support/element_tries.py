"""Elements whose tries begin, fail and end as a test says."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from strandline.spark.query.element_run import ElementRun
from strandline.spark.query.query import Query
from strandline.spark.session.place import Place
from tests.support.machine import patience

PLACE = Place("memory://restart/out")


class OneTry(ElementRun):
    """One try of an element, which fails or ends when the test says so."""

    stops_with_program = False

    def __init__(self, number: int) -> None:
        self.place = PLACE
        self.number = number
        self.over = threading.Event()
        self.problem: Exception | None = None
        self.has_finished = False
        self.commit = 7

    def end(self, problem: Exception | None = None) -> None:
        self.problem = problem
        self.over.set()

    id = name = property(lambda self: "out")  # type: ignore[assignment]
    run_id = property(lambda self: str(self.number))  # type: ignore[assignment]
    report: Mapping[str, Any] = property(lambda self: {"commit": self.commit})  # type: ignore[assignment]
    running = status = property(lambda self: {})  # type: ignore[assignment]
    recent_progress: Sequence[Any] = ()  # type: ignore[assignment]

    @property
    def is_active(self) -> bool:
        return not self.over.is_set()

    def exception(self) -> Exception | None:
        return self.problem

    def wait(self, timeout_s: float | None) -> bool:
        return self.over.wait(timeout_s)

    def stop(self, patience_s: float | None) -> None:
        self.over.set()

    def finish(self) -> None:
        self.has_finished = True
        self.over.set()

    def process_all_available(self) -> None:
        pass

    def explain(self, *, extended: bool) -> None:
        pass


class Element:
    """An element whose tries the test sees; a start raises what the test has put into `refusals`."""

    def __init__(self) -> None:
        self.tries: list[OneTry] = []
        self.refusals: list[Exception] = []
        self._began = threading.Condition()

    def begin(self) -> Query:
        with self._began:
            if self.refusals and self.tries:
                raise self.refusals.pop(0)
            self.tries.append(OneTry(len(self.tries)))
            self._began.notify_all()
            return Query(self.tries[-1])

    def wait_for_try(self, number: int) -> OneTry:
        with self._began:
            assert self._began.wait_for(lambda: len(self.tries) > number, patience(30)), "it was not started again"
            return self.tries[number]
