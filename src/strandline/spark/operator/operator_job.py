"""The driver's side of an operator: decides what a batch takes in, lets Spark run the steps, publishes the results."""

from __future__ import annotations

import contextlib
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeVar

from strandline.clock import SYSTEM_CLOCK, stopwatch_s
from strandline.errors import ConflictError, StorageError
from strandline.log.operator_state.loss import total_losses
from strandline.log.operator_state.standing import Standing
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.upkeep import consumer_registry
from strandline.running.batch import overdue, run_batch
from strandline.running.element import Element
from strandline.running.end_of_outage import end_outage
from strandline.running.step import Done, Step
from strandline.spark.entry.side_log_watch import SideLogWatch
from strandline.spark.operator.affinity import LiveHosts, balanced, on_hosts
from strandline.spark.operator.housekeeping import Housekeeping
from strandline.spark.operator.kernel_shipping import KernelShipping
from strandline.spark.operator.operator_inputs import OperatorInputs
from strandline.spark.operator.operator_task import OperatorTask, OperatorWork
from strandline.spark.operator.recovery_target import RecoveryTarget
from strandline.spark.operator.recovery_warnings import warn_of_losses, warn_of_older
from strandline.spark.query.job_group import JobsCancelledError, job_group
from strandline.spark.query.running_steps import RunningSteps
from strandline.spark.session.place import Place

if TYPE_CHECKING:
    from pyspark import SparkContext

Task = TypeVar("Task")
Outcome = TypeVar("Outcome")

_REGISTER_EVERY_S = 5.0


def _counts(done: Sequence[Done]) -> dict[str, int]:
    """What was set aside, by reason."""
    found: Counter[str] = Counter()
    for d in done:
        found.update({reason: sum(table.num_rows for table in tables) for reason, tables in d.aside.items()})
    return dict(found)


def _standing(standings: Sequence[Standing]) -> dict[str, Any]:
    return {
        "open_windows": sum(s.open for s in standings),
        "extent": {p: s.extent for p, s in enumerate(standings)},
        "replay": {p: s.replay for p, s in enumerate(standings)},
        "predicted_recovery_s": round(max(s.predicted_s for s in standings), 3),
        "predicted_cold_recovery_s": round(max(s.predicted_cold_s for s in standings), 3),
        **({"losses": asdict(total)} if (total := total_losses(s.losses for s in standings)) else {}),
    }


class OperatorJob:
    """One operator between its inputs and its output."""

    def __init__(
        self,
        context: SparkContext,
        element: Element,
        inputs: OperatorInputs,
        output: tuple[Place, Log],
        housekeeping: Housekeeping,
        name: str | None = None,
        kernels: KernelShipping | None = None,
    ) -> None:
        self._context = context
        self._hosts = LiveHosts(context)
        self.inputs = inputs
        self._output_place, self.output = output
        self._work = OperatorWork(
            element,
            inputs.places,
            tuple(log.spec.to_json() for log in inputs.logs),
            self._output_place,
            self.output.spec.to_json(),
        )
        self._kernels = kernels
        self._has_kernels = False
        self._target = RecoveryTarget(element.policy, self._output_place.url)
        self._target.look(self.output.state.standings)
        self._watch = SideLogWatch(self.output.spec, self._output_place.url)
        self.housekeeping = housekeeping
        self._consumer = consumer_registry.operator_name(self.output.spec.id)
        # Of its own for each start: Spark goes on cancelling jobs of a group that was cancelled.
        self._group = f"{self._consumer} {secrets.token_hex(4)}"
        self._is_cancelled = False
        self._label = name or consumer_registry.folder_name(self._output_place.url)
        self._registered_s = 0.0
        self._recovery: Mapping[str, Any] = {}
        self._steps = RunningSteps(context, self._output_place.url)

    @property
    def running(self) -> Mapping[str, Any]:
        """The steps that run now: tuples they take in, seconds so far, how many are done; empty if none does."""
        return self._steps.report

    @property
    def lags(self) -> dict[str, Any]:
        """How far each of several inputs has come by now, see `OperatorInputs.lags`."""
        return self.inputs.lags(self.output.state.standings)

    def standing(self) -> dict[str, Any]:
        """Where the operator stands, in the words of a report that has done nothing; empty before its first commit."""
        state = self.output.state
        if not state.standings:
            return {}
        return {
            "commit": state.seq,
            "input_commit": self.inputs.input.commits(state.standings),
            "input_tuples": 0,
            "waiting": self.inputs.input.waiting(state.standings),
            "results": 0,
            "set_aside": {},
            "footprints": {"g_open": 0, "g_check": 0},
            **_standing(state.standings),
            "recovered": [],
        }

    def register(self) -> None:
        """Says what of the inputs is still needed, see `OperatorInputs.register`."""
        self.inputs.register(self.output, self._output_place, self._label)
        self._registered_s = stopwatch_s()

    def catch_up(
        self,
        writer: Writer,
        go_on: Callable[[], bool],
        tell: Callable[[Mapping[str, Any]], None],
        *,
        no_more: bool = False,
    ) -> None:
        """Takes in whatever the input has, batch by batch, and tells what each has done.

        With `no_more`, only what it had when it was last looked at.
        """
        if not no_more:
            self.inputs.refresh()
        while go_on():
            began_s = stopwatch_s()
            before = self.output.state.seq
            done = self._take_in(writer)
            if not done:
                break
            tell(self._report(done, stopwatch_s() - began_s))
            self._look_aside(done)
            warn_of_older(done, self._output_place.url)
            warn_of_losses(done, self._output_place.url)
            self._target.look(d.standing for d in done)
            if not no_more:
                self._keep_registered()
            self.housekeeping.after_batch(self.output, before)
        if no_more:
            self._keep_registered()  # a commit in the input, for which it is looked at once more

    def _take_in(self, writer: Writer) -> Sequence[Done]:
        """Takes in some of what is new, and publishes the results; nothing done if nothing is new."""
        element = self._work.element
        end_outage(self.output, element.durability)  # if it had a bound before
        return run_batch(element, self.inputs.logs, self.output, self._run_steps, writer, SYSTEM_CLOCK)

    def _look_aside(self, done: Sequence[Done]) -> None:
        """Lets somebody know of what could not be computed."""
        if any(d.aside for d in done):
            self._watch.saw(self.output.commit(self.output.state.seq).blocks, SYSTEM_CLOCK.now_us())

    def time_has_passed(self) -> bool:
        """Whether there is something to take in of which Spark knows nothing, see `OperatorInputs.time_has_passed`, or
        to be saved by now."""
        return self.must_save or self.inputs.time_has_passed(self.output.state)

    @property
    def must_save(self) -> bool:
        """Whether the state is to be saved although nothing has come."""
        return bool(overdue(self._work.element.policy, self.output.state, SYSTEM_CLOCK.now_us()))

    @property
    def is_at_risk(self) -> bool:
        """Whether there is a time by which the state has to be saved, whatever comes."""
        policy = self._work.element.policy
        return policy.starts_from == "whole state" and not policy.replays

    def cancellable(self) -> AbstractContextManager[None]:
        """Lets `cancel` end what this thread does inside: Spark cancels jobs of its queries' threads, not of ours."""
        return job_group(self._context, self._group, f"operator of {self._output_place.url}")

    def cancel(self) -> None:
        """Ends the steps that run, and refuses those to come; what they would have published is computed again."""
        self._is_cancelled = True
        spark: Any = self._context
        spark._jsc.sc().cancelJobGroupAndFutureJobs(self._group)  # PySpark's own call misses a job about to start

    def close(self) -> None:
        """Ends what is done for the stream beside the batches, and lets go of what tasks took along: none will come."""
        self.housekeeping.stop()
        if self._kernels is not None:
            self._kernels.close()

    def _run_steps(self, steps: Sequence[Step]) -> Sequence[Done]:
        tasks = [OperatorTask(step, self.inputs.blocks(step)) for step in steps]
        tuples = sum(task.tuples for task in tasks)
        work = self._with_kernels() if tasks else self._work
        return self._run_tasks(work, tasks, [s.partition for s in steps], tuples)

    def _with_kernels(self) -> OperatorWork:
        """What tasks have in common, with what was compiled for them: it is there when the first ones run."""
        if self._kernels is not None and not self._has_kernels:
            self._has_kernels = True
            self._work = replace(self._work, kernels=self._kernels.ready())
        if self._work.element.replicas:  # others may be read than before
            specs = tuple(log.spec.to_json() for log in self.inputs.logs)
            self._work = replace(self._work, inputs=self.inputs.places, input_specs=specs)
        return self._work

    def _run_tasks(
        self, work: Callable[[Task], Outcome], tasks: Sequence[Task], partitions: Sequence[int], tuples: int
    ) -> list[Outcome]:
        """What Spark makes of the tasks, one a partition, each where its state is."""
        if self._is_cancelled:
            raise JobsCancelledError(f"the operator of {self._output_place.url} was stopped")
        # Over all partitions, also those that have nothing to do: which of them work changes from batch to batch.
        hosts = balanced([s.host for s in self.output.state.standings], self._hosts.now())
        with self._steps.shown(len(tasks), tuples):
            return on_hosts(self._context, tasks, [hosts[p] if hosts else "" for p in partitions], work)

    def _keep_registered(self) -> None:
        """Now and then: says what of the input is still needed. An old word about it does no harm."""
        if self.output.state.finished or stopwatch_s() - self._registered_s > _REGISTER_EVERY_S:
            with contextlib.suppress(ConflictError, StorageError):
                self.register()

    def _report(self, done: Sequence[Done], seconds: float) -> dict[str, Any]:
        standings = [d.standing for d in done]
        recovered = {
            d.standing.attempt: {"partition": p, **d.recovery.to_json()}
            for p, d in enumerate(done)
            if d.recovery is not None
        }
        if recovered:
            self._recovery = {"last_recovery": list(recovered.values())}
        return {
            "commit": self.output.state.seq,
            "input_commit": self.inputs.input.commits(standings),
            "input_tuples": sum(d.taken for d in done),
            "waiting": self.inputs.input.waiting(standings),
            "results": sum(d.results for d in done),
            "set_aside": _counts(done),
            "footprints": {"g_open": sum(d.opened for d in done), "g_check": sum(d.checked for d in done)},
            **_standing(standings),
            "recovered": list(recovered.values()),
            "state_bytes": sum(d.state_bytes for d in done),
            "step_s": round(max(d.seconds for d in done), 4),
            "checkpoint_s": round(sum(d.checkpoint_s for d in done), 4),
            "operator_s": round(seconds, 4),
            **self._recovery,
            **self.housekeeping.report,
        }
