"""The saving at the end of a step, and its entry in the standing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from strandline.checkpoint.balance import growth_in
from strandline.checkpoint.footprint_cost import NO_FOOTPRINTS, FootprintCost
from strandline.checkpoint.missed_target import MissedTarget
from strandline.checkpoint.policy import NEVER_WORKED, Policy
from strandline.checkpoint.slow_policy import StepEnd
from strandline.log.operator_state.standing import Standing, nearer, towards
from strandline.operators.operator import Footprints, Operator

_SAMPLE_MIN = 1_000
"""Fewer tuples say little of what one costs."""


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
    tuples: int = 0
    """The number of input tuples that the step has taken in."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The saved part of a state, decided once: the standing says what was written."""

    footprints: Footprints
    whole_us: int | None = None
    """When the whole state was saved, if it was saved now."""
    missed: tuple[MissedTarget, ...] = ()
    """The targets of the policy that cannot be met."""


def save(operator: Operator, policy: Policy, occasion: Occasion, position: int) -> Checkpoint:
    """Saves of the operator's state what the policy asks for; the first footprint goes to output offset `position`."""
    before = occasion.before
    # Nothing older than the standing may be needed: neither dropped windows, nor a state without a checkpoint.
    needs_all = occasion.is_older or operator.must_save_all or (before is not None and before.lets_go)
    if policy.starts_from == "footprints":
        if before is not None and (needs_all or before.mode != policy.mode):
            operator.mark_unsaved(every=needs_all)
        # A window that comes back with the replay is saved once, however few tuples may be replayed.
        tuples = 0 if operator.definition.replays_windows else occasion.tuples
        many = operator.open_windows
        least = operator.in_footprints if policy.may_ask_too_much(many, before) else many
        when = occasion.elapsed_us, before, occasion.time
        asked = policy.asked(many, *when, tuples=tuples, footprints=least)
        return Checkpoint(operator.save(position, asked.limits), missed=asked.missed)
    if policy.starts_from == "whole state" and (needs_all or policy.whole_is_due(before, occasion.now_us)):
        return Checkpoint(operator.save_all(position), occasion.now_us)
    return Checkpoint(operator.save_nothing())


Sample = tuple[int, float]
"""So many tuples, and the seconds that they took."""


def standing_after(
    operator: Operator,
    policy: Policy,
    occasion: Occasion,
    ends: tuple[int, int],
    saved: Checkpoint,
    cost: FootprintCost,
    samples: tuple[Sample, Sample],
) -> Standing:
    """Returns where the operator stands after this save; its output ended at the first of `ends`, now at the second.

    `cost` is that of its footprints; `samples` are tuples of extent, then of replay.
    """
    before, (began, end) = occasion.before, ends
    known, extent = before or NEVER_WORKED, operator.extent(end)
    standing = replace(
        known,
        input=operator.input_end,
        open=extent.open_windows,
        oldest=extent.oldest_input,
        extent=end - extent.oldest_output,
        replay=operator.input_end - extent.oldest_input,
        mode=policy.mode,
        saved=0,
        saved_us=0,
        due=operator.due,
        times=(),
        extent_ns=_unit_cost(known.extent_ns, known.unit_costs[0], samples[0]),
        replay_ns=_unit_cost(known.replay_ns, known.unit_costs[1], samples[1]),
    )
    if policy.slow is not None:
        ended = None if occasion.time is None else StepEnd(occasion.time, operator.input_end, end)
        standing = replace(standing, times=policy.slow.times_after(before, ended))
    if policy.starts_from == "nothing":
        standing = replace(standing, oldest=standing.input, extent=0, replay=0)
    elif policy.starts_from == "whole state":
        standing = _since_the_last_whole(standing, before, end - began, saved)
    return with_costs(standing, policy, occasion, cost)


def _unit_cost(known_ns: float, assumed_ns: float, sample: Sample) -> float:
    """Returns what a tuple costs after this sample; few tuples say little of that."""
    tuples, seconds = sample
    return known_ns if tuples < _SAMPLE_MIN else round(towards(assumed_ns, seconds * 1e9 / tuples), 1)


def with_costs(standing: Standing, policy: Policy, occasion: Occasion, cost: FootprintCost) -> Standing:
    """Returns the standing with what footprints cost in this step, as far as the policy needs it the next time."""
    known, credit_us, growth = occasion.before or standing, None, 0.0
    if policy.budget is not None:
        earned_us = policy.budget.earned_us(known.credit_us, occasion.elapsed_us)
        credit_us = policy.budget.left_us(earned_us, cost.checked_s * 1e6, cost.checked * known.footprint_cost / 1e3)
    if policy.balance is not None:
        extent_ns, replay_ns = standing.unit_costs
        seconds, growth = (cost.rows * extent_ns + occasion.tuples * replay_ns) / 1e9, known.growth
        if (sample := growth_in(seconds, occasion.elapsed_us)) is not None and occasion.before is not None:
            growth = round(nearer(growth or sample, sample), 9)
    return replace(standing, footprint_ns=cost.footprint_ns(known.footprint_ns), credit_us=credit_us, growth=growth)


def after_a_pause(standing: Standing, policy: Policy, elapsed_us: int) -> Standing:
    """Returns the standing of a partition that had nothing to do for so long: it has earned time, and has not grown."""
    if policy.budget is None and policy.balance is None:
        return standing
    return with_costs(standing, policy, Occasion(standing, 0, elapsed_us), NO_FOOTPRINTS)


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
