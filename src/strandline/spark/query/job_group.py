"""Spark's jobs of a thread: their group, by which they can be cancelled, and the steps that run in them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from strandline.clock import stopwatch_s
from strandline.wording import plural

if TYPE_CHECKING:
    from pyspark import SparkContext

GROUP = "spark.jobGroup.id"
DESCRIPTION = "spark.job.description"
_PROPERTIES = (GROUP, DESCRIPTION, "spark.job.interruptOnCancel")


class JobsCancelledError(Exception):
    """A job was about to start in a group that is cancelled."""


@contextlib.contextmanager
def job_group(context: SparkContext, name: str, description: str) -> Iterator[None]:
    """Lets jobs that this thread starts inside belong to the group; then it has the group again that it had before."""
    before = {each: context.getLocalProperty(each) for each in _PROPERTIES}
    context.setJobGroup(name, description, interruptOnCancel=True)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # Spark is gone, perhaps
            for each, value in before.items():
                context.setLocalProperty(each, value)  # type: ignore[arg-type]


class RunningSteps:
    """The steps of one operator that Spark runs now."""

    def __init__(self, context: SparkContext, url: str) -> None:
        self._context = context
        self._url = url
        self._now: tuple[int, int, float, str] | None = None

    @contextlib.contextmanager
    def shown(self, steps: int, tuples: int) -> Iterator[None]:
        """Shows that so many steps take in so many tuples, while they run."""
        context = self._context
        described = context.getLocalProperty(DESCRIPTION)
        context.setJobDescription(f"strandline: {self._url} takes in {plural(tuples, 'tuple')}")
        self._now = tuples, steps, stopwatch_s(), str(context.getLocalProperty(GROUP) or "")
        try:
            yield
        finally:
            self._now = None
            with contextlib.suppress(Exception):  # Spark is gone, perhaps
                context.setJobDescription(described)  # type: ignore[arg-type]

    @property
    def report(self) -> Mapping[str, Any]:
        """Tuples that they take in, steps, steps that are done, seconds so far; empty if none runs."""
        if (now := self._now) is None:
            return {}
        tuples, steps, began_s, group = now
        return {
            "input_tuples": tuples,
            "steps": steps,
            "steps_done": self._done(group),
            "seconds": round(stopwatch_s() - began_s, 3),
        }

    def _done(self, group: str) -> int:
        with contextlib.suppress(Exception):
            tracker = self._context.statusTracker()
            active = set(tracker.getActiveJobsIds()) & set(tracker.getJobIdsForGroup(group or None))
            jobs = [tracker.getJobInfo(job) for job in active]
            stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
            return sum(stage.numCompletedTasks for stage in stages if stage is not None)
        return 0
