"""A batch that takes in nothing: under `partial` what no checkpoint holds is at risk for as long as nothing comes.

Steps save, and there is no step without tuples. A stream that falls silent right before a save would have its last
tuples lost by a failure a day later, though the policy says seconds.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from strandline.checkpoint.policy import Policy
from strandline.inputs.input_marks import Seen, in_logs, moved
from strandline.log.operator_state.standing import Standing
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState
from strandline.running.element import Element
from strandline.running.step import Done, Step

_NOTHING_SEEN = Seen(-1, "")


def overdue(policy: Policy, output: LogState, now_us: int) -> frozenset[int]:
    """The partitions whose state is to be saved although nothing has come."""
    if output.finished:
        return frozenset()
    return frozenset(p for p, standing in enumerate(output.standings) if policy.is_overdue(standing, now_us))


@dataclass(frozen=True, slots=True)
class OverdueSave:
    """Steps that take in nothing, and save."""

    inputs: tuple[Log, ...]

    def steps(self, element: Element, output: Log, elapsed_us: int) -> list[Step]:
        """One step a partition."""
        state, name = output.state, uuid.uuid4().hex
        return [
            Step(
                partition=p,
                before=standing,
                output_end=state.ends[p],
                output_boundary=state.boundaries[p],
                input_start=standing.input,
                input_end=standing.input,
                tuples_max=element.tuples_max,
                boundary=None,
                attempt=f"{name}-{p}",
                elapsed_us=elapsed_us,
                marks=standing.marks,
            )
            for p, standing in enumerate(state.standings)
        ]

    def noted(self, done: Sequence[Done], steps: Sequence[Step]) -> list[Done]:
        """The same, as far into the inputs as before; of each, less has to be kept for what is saved now."""
        return [replace(d, standing=self._noted(d, step)) for d, step in zip(done, steps, strict=True)]

    def _noted(self, done: Done, step: Step) -> Standing:
        before, now = step.before, done.standing
        assert before is not None
        if before.marks is None or now.marks is None:
            return replace(now, commit=before.commit, seen=before.seen, seen_checksum=before.seen_checksum)
        nothing = [_NOTHING_SEEN] * len(self.inputs)
        own = in_logs(before.marks, self.inputs, step.partition)
        marks = moved(own, self.inputs, step.partition, now.marks.stands, now.marks.oldest, nothing)
        return replace(now, marks=marks)

    def is_last(self, done: Sequence[Done]) -> bool:
        """No: something may follow."""
        return False
