"""The group to which Spark's jobs of a thread belong, by which they can be cancelled."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

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
