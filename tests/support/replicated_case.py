"""A stream, the same operator over it twice, and operators over both, without a JVM: tasks are called, not sent."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import strandline as sl
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream import quiet
from strandline.log.stream.kinds import only_results
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.spark.operator import operator_job
from strandline.spark.operator.processing_element import ProcessingElement
from tests.support.available_case import CONTEXT, Case
from tests.support.items import append_items, item_spec

KERNELS: Any = SimpleNamespace(ready=lambda: None, close=lambda: None)


class Running(sl.Operator):
    """The sum of all values so far, tuple by tuple. A class needs no kernels."""

    output = "k long, t long, v long"
    time = "t"

    def __init__(self) -> None:
        self.total = 0

    def process(self, tuples: pa.Table) -> pa.Table:
        sums = self.total + np.cumsum(tuples.column("v").to_numpy())
        self.total = int(sums[-1]) if len(sums) else self.total
        return pa.table([tuples.column("k"), tuples.column("t"), pa.array(sums)], names=["k", "t", "v"])

    def get_checkpoint(self) -> dict[str, Any]:
        return {"total": self.total}

    def restore_checkpoint(self, state: dict[str, Any]) -> None:
        self.total = state["total"]


class Replicated:
    """A stream, the same operator over it twice, and operators over both."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("STRANDLINE_STATE_DIR", str(folder / "state"))
        monkeypatch.setattr(operator_job, "on_hosts", Case.on_hosts)
        monkeypatch.setattr(ProcessingElement, "start", lambda element, _spark: element)
        self.folder = folder
        self.input, self.beside = (
            Log.create(LocalStorage(folder / name), item_spec(2, name=f"{name}{abs(hash(folder))}"))
            for name in ("input", "beside")
        )

    def write(self, first: int, end: int, *logs: Log) -> None:
        for log in logs or (self.input, self.beside):
            append_items(log, {p: [(p, t, t) for t in range(first, end)] for p in range(2)})
            quiet.pass_time(log, end, "run")

    def job(self, operator: Any, name: str) -> Any:
        """The operator at work, as `start` has it."""
        return self.job_of(operator.into(str(self.folder / name)))

    def job_of(self, stage: Any) -> Any:
        """The stage at work."""
        element = stage.start(None)
        opened = element._opened()
        element.require_fit([log.spec.id for log in opened.logs])
        return element.job(SimpleNamespace(sparkContext=CONTEXT), opened, KERNELS)

    def replica(self, name: str) -> None:
        """One of the two takes in what there is."""
        catch_up(self.job(sl.stream(str(self.folder / "input")).apply(Running()), name))

    def replicas(self) -> sl.Replicas:
        return sl.replicas(str(self.folder / "one"), str(self.folder / "other"), patience="20 ms")

    def results(self, name: str) -> list[Any]:
        log = Log.open(LocalStorage(self.folder / name))
        tables = [only_results(t) for p in range(2) for t in log.read(p, columns=list(log.spec.columns))]
        return [row for table in tables for row in table.select(list(log.spec.columns)).to_pylist()]


def total(over: Any) -> Any:
    """An operator over anything."""
    return over.apply(Running())


def catch_up(job: Any, tick: Any = None) -> list[Any]:
    reports: list[Any] = []
    job.catch_up(Writer("query", "run", 0), lambda: True, reports.append, tick)
    return reports
