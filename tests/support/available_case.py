"""An operator with a bound, its driver's side and its tasks, without a JVM: tasks are called, not sent."""

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import strandline as sl
from strandline.clock import ManualClock
from strandline.errors import StorageError
from strandline.inputs.stream_definition import output_spec
from strandline.log.reading.tentative_results import changes
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream import quiet
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.running.element import Element
from strandline.running.promise import Promise
from strandline.running.since import begun
from strandline.spark.operator import operator_inputs, operator_job, operator_task
from strandline.spark.operator.operator_inputs import OperatorInputs
from strandline.spark.operator.operator_job import OperatorJob
from strandline.spark.session.place import Place
from tests.support.items import append_items, item_spec

BOUND_US = 1_000_000
PATIENT_S = 60.0
"""How long stores are waited for that answer, however busy the machine is."""
HOUSEKEEPING: Any = SimpleNamespace(after_batch=lambda *_: None, report={}, stop=lambda: None)
CONTEXT: Any = SimpleNamespace(master="local[1]", getLocalProperty=lambda _: None, setJobDescription=lambda _: None)


def counted(*streams: sl.Stream) -> Any:
    return sl.union(*streams).window(sl.time_window(10)).aggregate(n=sl.count_all())


class Case:
    """Two inputs in folders, an operator over them, a clock that stands still unless it is told."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        over: Callable[..., Any] | None = None,
        since: int | None = None,
    ) -> None:
        """`over` makes the operator of the inputs; it counts them if there is none. `since` is as in `start`."""
        monkeypatch.setenv("STRANDLINE_STATE_DIR", str(folder / "state"))
        self.clock = ManualClock(1_000_000)
        for module in (operator_inputs, operator_job):
            monkeypatch.setattr(module, "SYSTEM_CLOCK", self.clock)
        monkeypatch.setattr(operator_job, "on_hosts", self.on_hosts)
        self.folders = [folder / name for name in ("north", "south")]
        self.inputs = [
            Log.create(LocalStorage(one), item_spec(1, name=f"{one.name}{abs(hash(folder))}"), self.clock)
            for one in self.folders
        ]
        streams = [sl.stream(str(one)) for one in self.folders]
        operator = (over or counted)(*streams)
        self.definition, self.policy = operator.definition, operator.policy
        self.place = Place(str(folder / "results"))
        spec = output_spec(self.definition, self.inputs[0].spec, None)
        element = Element(self.definition, self.policy)
        Log.create(self.place.storage(), begun(spec, since, self.inputs, element), self.clock)
        self.reports: list[Any] = []
        self.limit_s = PATIENT_S
        """How long an answer of the second input's store is waited for."""
        self.job = self.started(Promise(BOUND_US))

    @staticmethod
    def on_hosts(_context: Any, tasks: Sequence[Any], _hosts: Any, work: Any) -> list[Any]:
        """What travels is pickled, both ways."""
        return [pickle.loads(pickle.dumps(work(pickle.loads(pickle.dumps(task))))) for task in tasks]

    def started(self, promise: Promise | None) -> Any:
        places = [Place(str(one)) for one in self.folders]
        if promise is not None:
            limits_s = (PATIENT_S, self.limit_s)
            places = [place.within(limit_s) for place, limit_s in zip(places, limits_s, strict=True)]
        logs, unopened = [], set()
        for number, place in enumerate(places):
            try:
                logs.append(place.reopened())
            except StorageError:
                logs.append(Log(place.storage(), self.inputs[number].spec))
                unopened.add(number)
        output = Log.open(self.place.storage(), self.clock)
        element = Element(self.definition, self.policy, begins=output.spec.begins)
        inputs = OperatorInputs(
            places, element.input(logs), output, bears_failures=promise is not None, unopened=unopened
        )
        where = (self.place, output)
        return OperatorJob(CONTEXT, element, inputs, where, HOUSEKEEPING, promise=promise)

    def wait_for(self, limit_s: float) -> None:
        """From now on driver and tasks wait for so long for the second input's store."""
        self.limit_s = limit_s
        self.job.inputs.logs[1].storage._limit_s = limit_s
        self.job.inputs.places = (self.job.inputs.places[0], self.job.inputs.places[1].within(limit_s))
        self.job._sent = None
        operator_task._OPENED.clear()

    def write(self, number: int, first: int, end: int) -> None:
        append_items(self.inputs[number], {0: [(1, t, t) for t in range(first, end)]})
        quiet.pass_time(self.inputs[number], end, "run")

    def tick(self, seconds: float = 0.1) -> dict[str, Any]:
        """Some time later: a look, and what is to be done; the last report."""
        self.clock.advance(seconds)
        if (tick := self.job.look()) is not None:
            self.job.catch_up(Writer("query", "run", 0), lambda: True, self.reports.append, tick)
        return dict(self.reports[-1]) if self.reports else {}

    def told(self) -> list[str]:
        return self.shown("_kind")

    def shown(self, column: str) -> list[Any]:
        """A column of all that happened to results."""
        log = Log.open(self.place.storage())
        return [value for table in changes(log, 0) for value in table.column(column).to_pylist()]


def break_off(path: Path) -> None:
    """Nothing in this folder can be read: too many levels of links."""
    path.rename(path.with_name(f"{path.name}-hidden"))
    path.symlink_to(path)


def mend(path: Path) -> None:
    path.unlink()
    path.with_name(f"{path.name}-hidden").rename(path)


def move_away(path: Path) -> None:
    """As if its disk was not mounted."""
    path.rename(path.with_name(f"{path.name}-away"))


def move_back(path: Path) -> None:
    """As it is mounted again; nobody has written anything there meanwhile."""
    assert not path.exists()
    path.with_name(f"{path.name}-away").rename(path)


@contextmanager
def hung(path: Path) -> Iterator[None]:
    """Whoever opens this file waits, as on a mount whose server is gone: it is a pipe, and nobody writes into it."""
    hidden = path.with_name(f"hidden-{path.name}")
    if path.exists():
        path.rename(hidden)
    os.mkfifo(path)
    try:
        yield
    finally:
        # Readers get an end; who comes next finds the file as it was. A pipe without a reader cannot be opened.
        pipe = -1
        with suppress(OSError):
            pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        path.unlink()
        if hidden.exists():
            hidden.rename(path)
        if pipe >= 0:
            os.close(pipe)


class Numbered(sl.Operator):
    """Numbers tuples in the order in which they come; the sum of their numbers says what an object has seen."""

    output = "k long, t long, n long, total long"
    time = "t"

    def __init__(self) -> None:
        self.n = self.total = 0

    def process(self, tuples: pa.Table) -> pa.Table:
        found = []
        for row in tuples.to_pylist():
            self.n += 1
            self.total += self.n * row["v"]
            found.append({"k": row["k"], "t": row["t"], "n": self.n, "total": self.total})
        return pa.Table.from_pylist(found, schema=pa.schema([(name, pa.int64()) for name in ("k", "t", "n", "total")]))

    def get_checkpoint(self) -> dict[str, Any]:
        return {"n": self.n, "total": self.total}

    def restore_checkpoint(self, state: dict[str, Any]) -> None:
        self.n, self.total = state["n"], state["total"]
