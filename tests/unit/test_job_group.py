"""Jobs that Strandline starts in a thread of somebody else leave that thread as it was."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.spark.operator.operator_job import OperatorJob
from strandline.spark.query.following_run import FollowingRun
from strandline.spark.query.job_group import job_group
from strandline.spark.query.pace import Pace
from tests.support.machine import patience

OURS = {
    "spark.jobGroup.id": "ours",
    "spark.job.description": "operator of a",
    "spark.job.interruptOnCancel": "true",
}
THEIRS = {
    "spark.jobGroup.id": "theirs",
    "spark.job.description": "a report",
    "spark.job.interruptOnCancel": "false",
}


class Context:
    """Keeps local properties as Spark does: None takes one away."""

    def __init__(self, properties: dict[str, str]) -> None:
        self.properties = dict(properties)

    def getLocalProperty(self, name: str) -> str | None:
        return self.properties.get(name)

    def setLocalProperty(self, name: str, value: str | None) -> None:
        self.properties.pop(name, None)
        if value is not None:
            self.properties[name] = value

    def setJobGroup(self, name: str, description: str, interruptOnCancel: bool = False) -> None:
        values = (name, description, str(interruptOnCancel).lower())
        self.properties |= dict(zip(OURS, values, strict=True))


@pytest.mark.parametrize("before", [{}, THEIRS, {"spark.scheduler.pool": "fast"}], ids=["none", "theirs", "others"])
@pytest.mark.parametrize("fails", [False, True])
def test_a_thread_has_the_group_again_that_it_had_before(before: dict[str, str], fails: bool) -> None:
    context: Any = Context(before)
    try:
        with job_group(context, "ours", "operator of a"):
            assert context.properties == {**before, **OURS}
            if fails:
                raise ValueError
    except ValueError:
        assert fails
    assert context.properties == before


def test_jobs_of_an_operator_over_streams_are_in_its_group_in_a_thread_of_its_own() -> None:
    ours: Any = Context({})
    seen: list[Any] = []
    job: Any = object.__new__(OperatorJob)
    job._context, job._group, job._output_place = ours, "ours", SimpleNamespace(url="a")
    job._promise = None
    state, spec = SimpleNamespace(writer=None, standings=()), SimpleNamespace(id="results")
    job.output = SimpleNamespace(state=state, spec=spec)
    job.catch_up = lambda *_, **__: seen.append((threading.current_thread().name, dict(ours.properties)))
    job.close = lambda: None
    events: Any = SimpleNamespace(run="a run", started=lambda: None, ended=lambda failure: None)
    nothing: Any = None
    run = FollowingRun(job._output_place, job, events, Pace(0.0), spark=nothing, follows=False)
    run.start()
    assert run.wait(patience(5))
    assert seen == [("strandline-operator", OURS)]
    assert ours.properties == {}
