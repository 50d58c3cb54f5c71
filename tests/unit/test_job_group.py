"""Jobs that Strandline starts in a thread of somebody else leave that thread as it was."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.spark.operator.operator_job import OperatorJob
from strandline.spark.query.job_group import job_group
from strandline.spark.query.operator_batches import OperatorBatches
from strandline.spark.query.sources import Sources

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


def test_taking_in_all_that_is_published_leaves_the_callers_group() -> None:
    context, seen = Context(THEIRS), []
    job: Any = object.__new__(OperatorJob)
    job._context, job._group, job._output_place = context, "ours", SimpleNamespace(url="a")
    job.time_has_passed = lambda: True
    job.catch_up = lambda *_: seen.append(dict(context.properties))
    batches: Any = object.__new__(OperatorBatches)
    batches._sources, batches._at_work, batches._in_words = Sources(), nullcontext(), nullcontext
    job.inputs = SimpleNamespace(refresh=lambda: None)
    batches._job, batches._query, batches._run, batches._batch, batches._stopping = job, "q", "r", 3, False
    batches.take_in_all()
    assert seen == [OURS]
    assert context.properties == THEIRS
