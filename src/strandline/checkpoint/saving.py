"""The saving at the end of a step, and its entry in the standing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from strandline.checkpoint.input_times import StepEnd
from strandline.checkpoint.policy import Policy
from strandline.log.operator_state.standing import Standing
from strandline.operators.operator import Footprints, Operator


@dataclass(frozen=True, slots=True)
class Occasion:
    """When something is saved: at the end of a step."""

    before: Standing | None
    """Where the operator stood before the step; None if it had never worked."""
    now_us: int
    elapsed_us: int
    """Since the step before."""
    is_older: bool = False
    """True if the step began with a recovery to another state than the standing speaks of: from an older checkpoint, or
    without a replay. What is lost must not be lost twice."""
    time: int | None = None
    """The largest time of the input so far; None if that is not known."""

    @property
    def needs_all(self) -> bool:
        """True if nothing older than the standing may be needed: neither dropped windows, nor a state without a
        checkpoint."""
        return self.is_older or (self.before is not None and self.before.lets_go)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The saved part of a state, decided once: the standing says what was written."""

    footprints: Footprints
    whole_us: int | None = None
    """When the whole state was saved, if it was saved now."""
    time: int | None = None
    """Of the occasion."""


def save(operator: Operator, policy: Policy, occasion: Occasion, position: int) -> Checkpoint:
    """Saves of the operator's state what the policy asks for; the first footprint goes to output offset `position`."""
    before, needs_all = occasion.before, occasion.needs_all or operator.must_save_all
    if policy.starts_from == "footprints":
        if before is not None and (needs_all or before.mode != policy.mode):
            operator.mark_unsaved(every=needs_all)
        limits = policy.limits(operator.open_windows, occasion.elapsed_us, before, occasion.time)
        return Checkpoint(operator.save(position, limits), time=occasion.time)
    if policy.starts_from == "whole state" and (needs_all or policy.whole_is_due(before, occasion.now_us)):
        return Checkpoint(operator.save_all(position), occasion.now_us)
    return Checkpoint(operator.save_nothing())


def standing_after(
    operator: Operator, policy: Policy, before: Standing | None, ends: tuple[int, int], saved: Checkpoint
) -> Standing:
    """Returns where the operator stands after this save; its output ended at the first of `ends`, now at the second."""
    began, end = ends
    extent = operator.extent(end)
    standing = Standing(
        input=operator.input_end,
        commit=before.commit if before else -1,
        open=extent.open_windows,
        oldest=extent.oldest_input,
        extent=end - extent.oldest_output,
        replay=operator.input_end - extent.oldest_input,
        mode=policy.mode,
        due=operator.due,
        losses=before.losses if before else None,
    )
    if policy.starts_from == "footprints":
        if policy.slow is None:
            return standing
        ended = None if saved.time is None else StepEnd(saved.time, operator.input_end, end)
        return replace(standing, times=policy.slow.times_after(before, ended))
    if policy.starts_from == "nothing":
        return replace(standing, oldest=standing.input, extent=0, replay=0)
    return _since_the_last_whole(standing, before, end - began, saved)


def _since_the_last_whole(standing: Standing, before: Standing | None, written: int, saved: Checkpoint) -> Standing:
    """Returns the standing of an operator that recovers from its whole state, `written` tuples after the last one."""
    if saved.whole_us is not None:
        rows = saved.footprints.rows
        return replace(
            standing, oldest=standing.input, extent=rows, replay=0, saved=standing.open, saved_us=saved.whole_us
        )
    assert before is not None  # else the whole state would have been due
    return replace(
        standing,
        oldest=before.oldest,
        extent=before.extent + written,
        replay=standing.input - before.oldest,
        saved=before.saved,
        saved_us=before.saved_us,
    )
