"""The driver's side of an operator over replicas: a step that fails with one of them is made with another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strandline.inputs.replicas.replica_set import MISSING
from strandline.log.stream.manifest import Writer
from strandline.running.step import Done, Step
from strandline.spark.operator.available_task import Unread
from strandline.spark.operator.operator_job import OperatorJob
from strandline.spark.operator.operator_task import OperatorTask, OperatorWork


@dataclass(frozen=True, slots=True)
class ReplicaWork:
    """What all tasks have in common; called with a task, it does the task."""

    common: OperatorWork

    def __call__(self, task: OperatorTask) -> Done | Unread:
        """What Spark calls on some machine; `Unread` if something cannot be read, so that Spark does not try again."""
        try:
            return self.common(task)
        except MISSING as problem:
            return Unread(problem)


class ReplicaJob(OperatorJob):
    """One operator between its inputs, of which some are replicas, and its output."""

    def _take_in(self, writer: Writer) -> Sequence[Done]:
        """Takes in some of what is new from the replicas that are there; nothing done if nothing is new, or none is."""
        while self.inputs.are_there:
            try:
                return super()._take_in(writer)
            except MISSING as problem:
                if not self.inputs.bears(problem):
                    raise
                self.inputs.refresh()  # without that one, for a while: so this ends
        return ()

    def _run_steps(self, steps: Sequence[Step]) -> Sequence[Done]:
        tasks = [OperatorTask(step, self.inputs.blocks(step)) for step in steps]
        tuples = sum(task.tuples for task in tasks)
        found = self._run_tasks(ReplicaWork(self._with_kernels()), tasks, [s.partition for s in steps], tuples)
        for one in found:
            if isinstance(one, Unread):
                raise one.problem
        return [one for one in found if isinstance(one, Done)]
