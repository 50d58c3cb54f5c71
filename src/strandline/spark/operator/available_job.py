"""The driver's side of an operator with a bound: it asks by its own clock who is missing, and goes on without them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from strandline.clock import SYSTEM_CLOCK
from strandline.errors import StorageError, StrandlineError, StreamMismatchError
from strandline.inputs.input_marks import require_same_input
from strandline.inputs.next_bounds import reachable
from strandline.inputs.replicas.replica_set import MISSING
from strandline.log.operator_state.outage import Outage
from strandline.log.operator_state.outage_words import outage_report
from strandline.log.operator_state.standing import marks_in
from strandline.log.stream.block import Block
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.running.fork import Forked
from strandline.running.promise import Promise
from strandline.running.step import Done
from strandline.running.tick import Operation, Work, Worked
from strandline.running.watch import Watch
from strandline.spark.operator.available_task import AvailableTask, AvailableWork, Unread
from strandline.spark.operator.lost_inputs import LostInputs
from strandline.spark.operator.operator_job import OperatorJob
from strandline.spark.operator.operator_task import OperatorTask


class AvailableJob(OperatorJob):
    """An operator that goes on while inputs are missing. One tick is one look, one decision, one job, one commit."""

    def promises(self, promise: Promise, unopened: frozenset[int] = frozenset()) -> AvailableJob:
        """Says how long tuples wait, before anything is taken in; what a driver before had begun goes on.

        `unopened` are the numbers of inputs of which nothing could be read yet.
        """
        logs, output = self.inputs.logs, self.output
        self._operation = Operation(self._work.element, promise, logs, output, SYSTEM_CLOCK)
        states, now_us = [log.state for log in logs], SYSTEM_CLOCK.steady_us()
        known = [state.boundary for state in states]
        self._seen = Watch.resumed(known, output.state.outage, now_us, promise.bound_us, states)
        self._lost = LostInputs(self.inputs, unopened, self._require_same)
        self._has_more = False
        self._forked: Sequence[Forked | None] = ()
        return self

    def standing(self) -> dict[str, Any]:
        """Where the operator stands, and how it is: that is known before its first commit, too."""
        return {**(super().standing() or {"input_tuples": 0}), **self._outage()}

    def catch_up(
        self,
        writer: Writer,
        go_on: Callable[[], bool],
        tell: Callable[[Mapping[str, Any]], None],
        *,
        no_more: bool = False,
    ) -> None:
        """One tick, and further ones while the stable lineage has more to take in of what the last look has found.

        No more than that: inputs that grow all the time would keep it here for ever.
        """
        self._has_more = True
        super().catch_up(writer, lambda: self._has_more and go_on(), tell, no_more=True)  # a tick looks by itself

    def time_has_passed(self) -> bool:
        """Whether there is anything to do, by one look: tuples that can be taken in, or a bound that has run out."""
        try:
            seen, tick = self._looking().next(self._seen)
        except MISSING as problem:
            self._bear(problem)
            return False
        if tick is None:  # else whoever does it looks again: what is not done was not seen
            self._seen = seen
        return tick is not None

    def _take_in(self, writer: Writer) -> Sequence[Done]:
        """One tick; nothing done if nothing is to be done, or an input could not be read: then it is tried again. What
        failed with one replica is done with another at once."""
        try:
            ticked = self._looking().tick(self._seen, self._run_all, writer)
        except MISSING as problem:
            if self._bear(problem):
                return self._take_in(writer)  # without that one, for a while: so this ends
            self._has_more = False
            return ()
        self._seen, self._forked = ticked.watch, ticked.forked
        self._has_more = bool(ticked.done) and not ticked.watch.unreachable and self._is_behind
        return ticked.done

    @property
    def _is_behind(self) -> bool:
        """Whether tuples that can be taken in were not, as of the last look."""
        stands = (s.stands.bound for s in self.output.state.standings)
        reach = (reachable(self.inputs.logs, p) for p in range(self.output.spec.partitions))
        return any(r is not None and (s is None or s < r) for s, r in zip(stands, reach, strict=True))

    def _looking(self) -> Operation:
        self.inputs.choose()
        return replace(self._operation, inputs=self.inputs.logs, unreadable=self._lost.now() | self.inputs.absent)

    def _bear(self, problem: StrandlineError) -> bool:
        """Notes what cannot be read: True of a replica, for which there may be another, False of an input, which is
        missing. Raises the problem if it lies in neither, or if it is none of storage."""
        if self.inputs.bears(problem):
            return True
        if not isinstance(problem, StorageError):
            raise problem
        self._lost.bear(problem)
        return False

    def _require_same(self, number: int, log: Log) -> None:
        """Raises if an input that was not there at the start is not what the operator has taken in."""
        if log.spec.id != self.inputs.logs[number].spec.id:
            raise StreamMismatchError(
                "another stream has taken the place of the operator's input",
                stream=log.storage.url,
                todo="put the input back where it was; for another one, start the operator with a new output stream",
            )
        require_same_input(log, number, marks_in(self.output.state.standings))

    def _run_all(self, works: Sequence[Work]) -> list[Worked]:
        """The work of all partitions as tasks of one job; raises what a task could not read."""
        stable = {w.partition: OperatorTask(w.stable, self.inputs.blocks(w.stable)) for w in works if w.stable}
        none: list[list[Block]] = [[] for _ in self.inputs.logs]
        blocks = [stable[w.partition].input_blocks if w.stable else none for w in works]
        tasks = [AvailableTask(work, own) for work, own in zip(works, blocks, strict=True)]
        tuples = sum(task.tuples for task in stable.values())
        found = self._run_tasks(AvailableWork(self._with_kernels()), tasks, [w.partition for w in works], tuples)
        for one in found:
            if isinstance(one, Unread):
                raise one.problem
        return [one for one in found if isinstance(one, Worked)]

    def _report(self, done: Sequence[Done], seconds: float) -> dict[str, Any]:
        forked = [one for one in self._forked if one is not None]
        tentative = {"tentative_results": sum(one.results for one in forked)} if forked else {}
        return {**super()._report(done, seconds), **self._outage(), **tentative}

    def _outage(self) -> dict[str, Any]:
        outage = self.output.state.outage or Outage(since_us=SYSTEM_CLOCK.now_us())  # nothing is published yet
        return outage_report(outage, self.inputs.names, self._work.element.definition.blocked_without_input)
