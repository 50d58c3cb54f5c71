"""The driver's side of an operator: decides what a batch takes in, lets Spark run the steps, publishes the results."""

from __future__ import annotations

import contextlib
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from strandline.clock import SYSTEM_CLOCK, stopwatch_s
from strandline.errors import ConflictError, StorageError
from strandline.inputs.replicas.replica_set import MISSING
from strandline.log.operator_state.loss import total_losses
from strandline.log.operator_state.outage import Outage, outage_report
from strandline.log.operator_state.standing import Standing
from strandline.log.stream.block import Block
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.upkeep import consumer_registry
from strandline.running.batch import end_outage
from strandline.running.element import Element
from strandline.running.fork import Forked
from strandline.running.promise import Promise
from strandline.running.step import Done
from strandline.running.tick import Operation, Tick, Work, Worked
from strandline.running.watch import Watch
from strandline.spark.entry.side_log_watch import SideLogWatch
from strandline.spark.operator.affinity import LiveHosts, SentOnce, balanced, on_hosts
from strandline.spark.operator.housekeeping import Housekeeping
from strandline.spark.operator.kernel_shipping import KernelShipping
from strandline.spark.operator.operator_inputs import OperatorInputs
from strandline.spark.operator.operator_task import OperatorTask, OperatorWork, Unread
from strandline.spark.operator.recovery_warnings import RecoveryWarnings
from strandline.spark.query.job_group import JobsCancelledError, RunningSteps, job_group
from strandline.spark.session.place import Place

if TYPE_CHECKING:
    from pyspark import SparkContext

_REGISTER_EVERY_S = 5.0


class OperatorJob:
    """One operator between its inputs and its output. One tick is one look, one decision, one Spark job, one commit.

    With a bound, the operator goes on while inputs are missing. Its own clock decides which inputs are missing.
    """

    def __init__(
        self,
        context: SparkContext,
        element: Element,
        inputs: OperatorInputs,
        output: tuple[Place, Log],
        housekeeping: Housekeeping,
        name: str | None = None,
        kernels: KernelShipping | None = None,
        promise: Promise | None = None,
    ) -> None:
        """Takes the `promise`, which says how long tuples wait for missing inputs. None: for ever."""
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
            has_bound=promise is not None,
        )
        self._sent: SentOnce | None = None
        """The work as tasks get it, from the first job on."""
        self._promise = promise
        self._operation = Operation(element, promise, inputs.input, self.output, SYSTEM_CLOCK)
        self._seen = Watch.fresh(len(inputs.logs))
        if promise is not None:  # the operator goes on with the outage of the driver before
            states = [log.state for log in inputs.logs]
            known, now_us = [state.boundary for state in states], SYSTEM_CLOCK.steady_us()
            self._seen = Watch.resumed(known, self.output.state.outage, now_us, promise.bound_us, states)
        self._idle: object = None
        """The commits of which the last look has found that there is nothing to do; None if there was."""
        self._kernels = kernels
        self._warnings = RecoveryWarnings(element.policy, self._output_place.url)
        self._warnings.compare(self.output.state.standings)
        self._watch = SideLogWatch(self.output.spec, self._output_place.url)
        self.housekeeping = housekeeping
        self._consumer = consumer_registry.operator_name(self.output.spec.id)
        # Each start has its own group: Spark goes on cancelling jobs of a group that was cancelled.
        self._group = f"{self._consumer} {secrets.token_hex(4)}"
        self._is_cancelled = False
        self._label = name or consumer_registry.folder_name(self._output_place.url)
        self._registered_s = 0.0
        self._recovery: Mapping[str, Any] = {}
        self._steps = RunningSteps(context, self._output_place.url)

    @property
    def running(self) -> Mapping[str, Any]:
        """The steps that run now: tuples they take in, seconds so far, how many are done; empty if no step runs."""
        return self._steps.report

    @property
    def lags(self) -> dict[str, Any]:
        """How far each of several inputs has come by now, see `OperatorInputs.lags`.

        Also what an operator whose policy loses tuples does about tentative ones, if an input may have some.
        """
        found, policy = self.inputs.lags(self.output.state.standings), self._work.element.policy
        if not policy.replays and (names := self.inputs.tentative):
            found["stable_only"] = (
                f"waits for the stable tuples of {' and '.join(names)}: under sl.{policy!r} a failure loses tuples, so "
                "nothing would correct results of tentative ones"
            )
        return found

    def standing(self) -> dict[str, Any]:
        """Returns the standing of the operator as the report of a batch that has taken in nothing.

        Before the first commit the report is empty; with a bound, it states the outage of the inputs.
        """
        state = self.output.state
        if not state.standings:
            return {"input_tuples": 0, **self._outage()} if self._promise else {}
        return {**self._figures(state.standings, ()), **self._outage()}

    def register(self) -> None:
        """Registers with the inputs which of their tuples are still needed, see `OperatorInputs.register`."""
        self.inputs.register(self.output, self._output_place, self._label)
        self._registered_s = stopwatch_s()

    def catch_up(
        self,
        writer: Writer,
        go_on: Callable[[], bool],
        tell: Callable[[Mapping[str, Any]], None],
        tick: Tick | None = None,
        *,
        no_more: bool = False,
    ) -> None:
        """Takes in the tuples of the inputs, tick by tick, and passes the report of each tick to `tell`.

        It begins with the `tick` that a look has found, or else with a look. With `no_more`, it takes in only the
        tuples of earlier looks. With a bound every tick looks, and this ends when all tuples of one look are taken in:
        inputs that grow all the time would keep it here for ever.
        """
        if self._promise is None and self.output.state.outage is not None:
            end_outage(self.output, self._work.element.durability)  # it had a bound before
        began_s = stopwatch_s()
        tick = tick or self.look(refreshes=not no_more)
        no_more = no_more or self._promise is not None
        while tick is not None and go_on():
            before = self.output.state.seq
            try:
                tick.run(self._run_all)
                done, forked = tick.publish(writer)
            except MISSING as problem:
                tick = self.look() if self.inputs.bear(problem) else None
                continue
            self._seen = tick.watch
            if not done:
                break
            tell(self._report(done, forked, stopwatch_s() - began_s))
            self._warn(done)
            self.housekeeping.after_batch(self.output, before)
            if not no_more:
                self._keep_registered()
            if self._promise is not None and (
                self._seen.unreachable or not self.inputs.input.is_behind(self.output.state)
            ):
                break
            began_s = stopwatch_s()
            tick = self.look(refreshes=False)
        if no_more:
            self._keep_registered()  # this commits to the input, so the driver looks at the input once more

    def look(self, *, refreshes: bool = True) -> Tick | None:
        """Returns the tick to run now; None if there is nothing to do.

        Refreshes the inputs before: without a bound only if it `refreshes`. If a replica cannot be read, this looks at
        another one; with a bound, an input that cannot be read is missing, and the next look tries it again.
        """
        operation, output = self._operation, self.output
        while True:
            try:
                if self._promise is not None:
                    operation = replace(operation, unreadable=self.inputs.unreadable())
                else:
                    if refreshes:
                        self.inputs.refresh()
                    known = [*((log.spec.id, log.state.seq) for log in self.inputs.logs), output.state.seq]
                    is_idle = known == self._idle or not self.inputs.input.has_news(output.state)
                    if self.inputs.absent or (is_idle and not self.must_save):
                        return None
                seen, tick = operation.next(self._seen)
            except MISSING as problem:
                if not self.inputs.bear(problem):
                    return None
                refreshes = True  # the driver leaves that replica alone for a while, so the loop ends
                continue
            if tick is None:  # else the watch of the tick is kept when the tick is published
                self._seen = seen
            self._idle = known if tick is None and self._promise is None else None
            return tick

    def _warn(self, done: Sequence[Done]) -> None:
        """Warns of tuples that could not be computed, of recoveries, and of targets that cannot be met."""
        if any(d.aside for d in done):
            self._watch.saw(self.output.commit(self.output.state.seq).blocks, SYSTEM_CLOCK.now_us())
        self._warnings.of(done)

    @property
    def must_save(self) -> bool:
        """True if the state has to be saved although no tuple has come."""
        return bool(self._operation.due)

    @property
    def is_at_risk(self) -> bool:
        """True if there is a time by which the state has to be saved, whether or not tuples come."""
        policy = self._work.element.policy
        return policy.starts_from == "whole state" and not policy.replays

    def cancellable(self) -> AbstractContextManager[None]:
        """Lets `cancel` end the jobs of this thread: Spark cancels only jobs of its own queries' threads."""
        return job_group(self._context, self._group, f"operator of {self._output_place.url}")

    def cancel(self) -> None:
        """Ends the steps that run, and refuses later ones; their results are computed again after the next start."""
        self._is_cancelled = True
        spark: Any = self._context
        spark._jsc.sc().cancelJobGroupAndFutureJobs(self._group)  # PySpark's own call misses a job about to start

    def close(self) -> None:
        """Stops the housekeeping of the stream, and deletes the kernels shipped with tasks: no more tasks will come."""
        self.housekeeping.stop()
        if self._kernels is not None:
            self._kernels.close()

    def _run_all(self, works: Sequence[Work]) -> list[Worked]:
        """Does the work of all partitions as tasks of one Spark job, each where its state is.

        Raises the problem of a task that could not read.
        """
        blocks, nothing = self.inputs.input.blocks, [list[Block]() for _ in self.inputs.logs]
        tasks = [OperatorTask(w, blocks(w.stable.slice, w.partition) if w.stable else nothing) for w in works]
        if self._sent is None or self._work.element.replicas:  # the operator may read other replicas than before
            kernels = None if self._kernels is None else self._kernels.ready()
            specs = tuple(log.spec.to_json() for log in self.inputs.logs)
            work = replace(self._work, kernels=kernels, inputs=self.inputs.places, input_specs=specs)
            if self._sent is None or work != self._work:
                self._work, self._sent = work, SentOnce(work)
        if self._is_cancelled:
            raise JobsCancelledError(f"the operator of {self._output_place.url} was stopped")
        # Balance over all partitions, also those without work: which of them work changes from batch to batch.
        hosts = balanced([s.host for s in self.output.state.standings], self._hosts.now())
        wanted = [hosts[w.partition] if hosts else "" for w in works]
        with self._steps.shown(len(tasks), sum(task.tuples for task in tasks)):
            found = on_hosts(self._context, tasks, wanted, self._sent)
        worked = [one for one in found if isinstance(one, Worked)]
        for one in found:
            if isinstance(one, Unread):
                raise one.problem
        return worked

    def _keep_registered(self) -> None:
        """Registers now and then which tuples of the inputs are still needed. An old registration does no harm."""
        if self.output.state.finished or stopwatch_s() - self._registered_s > _REGISTER_EVERY_S:
            with contextlib.suppress(ConflictError, StorageError):
                self.register()

    def _report(self, done: Sequence[Done], forked: Sequence[Forked | None], seconds: float) -> dict[str, Any]:
        figures = self._figures([d.standing for d in done], done)
        if figures["recovered"]:
            self._recovery = {"last_recovery": figures["recovered"]}
        tentative = [one.results for one in forked if one is not None]
        return {
            **figures,
            "state_bytes": sum(d.state_bytes for d in done),
            "step_s": round(max(d.seconds for d in done), 4),
            "checkpoint_s": round(sum(d.checkpoint_s for d in done), 4),
            "footprint_s": round(sum(d.footprint_s for d in done), 4),
            "operator_s": round(seconds, 4),
            **self._recovery,
            **self.housekeeping.report,
            **self._outage(),
            **({"tentative_results": sum(tentative)} if tentative else {}),
        }

    def _figures(self, standings: Sequence[Standing], done: Sequence[Done]) -> dict[str, Any]:
        """Returns where the operator stands, and what the steps of a batch did, if there was one."""
        set_aside: Counter[str] = Counter()
        for d in done:
            set_aside.update({reason: sum(table.num_rows for table in tables) for reason, tables in d.aside.items()})
        losses = total_losses(s.losses for s in standings)
        return {
            "commit": self.output.state.seq,
            "input_commit": self.inputs.input.commits(standings),
            "input_tuples": sum(d.taken for d in done) // self.inputs.logs[0].readers,
            "waiting": self.inputs.input.waiting(standings),
            "results": sum(d.results for d in done),
            "set_aside": dict(set_aside),
            "footprints": {"g_open": sum(d.opened for d in done), "g_check": sum(d.checked for d in done)},
            "open_windows": sum(s.open for s in standings),
            "extent": {p: s.extent for p, s in enumerate(standings)},
            "replay": {p: s.replay for p, s in enumerate(standings)},
            "predicted_recovery_s": round(max(s.predicted_s for s in standings), 3),
            "predicted_cold_recovery_s": round(max(s.predicted_cold_s for s in standings), 3),
            "footprint_us": round(max(s.footprint_cost for s in standings) / 1e3, 3),
            **({"losses": asdict(losses)} if losses else {}),
            "recovered": [{"partition": p, **d.recovery.to_json()} for p, d in enumerate(done) if d.recovery],
        }

    def _outage(self) -> dict[str, Any]:
        """Returns the outage of an operator with a bound, for its report; an empty dict without a bound."""
        if self._promise is None:
            return {}
        outage = self.output.state.outage or Outage(since_us=SYSTEM_CLOCK.now_us())  # there is no commit yet
        return outage_report(outage, self.inputs.names, self._work.element.definition.blocked_without_input)
