"""Checkpoint policies: what recovery may cost, and what may be spent on it.

Two questions: what a recovery starts from, and whether it replays what came since. Results never depend on policies
that replay; after a failure under the others something is missing, and it is on record what.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from strandline.card import card
from strandline.checkpoint.balance import Balance, checked_balance
from strandline.checkpoint.footprint_cost import FootprintBudget
from strandline.checkpoint.missed_target import MissedTarget, nearest_cost, nearest_extent, nearest_replay
from strandline.checkpoint.slow_policy import SlowWindows, slow_windows
from strandline.errors import OptionError
from strandline.log.operator_state.standing import Mode, Standing
from strandline.operators.operator import Limits
from strandline.units import Duration, positive_clock_us, whole_number
from strandline.wording import exact_duration

_RELATIVE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*x\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Asked:
    """The limits of a save, and the targets that they do not hold because nothing could."""

    limits: Limits
    missed: tuple[MissedTarget, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """The rule for what to save and when. Made by `cec`, `instant`, `partial` and `none`."""

    kind: Literal["cec", "instant", "partial", "none"]
    extent: int | None = None
    extent_ratio: float | None = None
    replay: int | None = None
    interval_us: int | None = None
    period_us: int | None = None
    recover_within_us: int | None = None
    every_us: int | None = None
    slow: SlowWindows | None = None
    balance: Balance | None = None

    def __repr__(self) -> str:
        """Returns the call that makes it."""
        if self.kind != "cec":
            return "none()" if self.every_us is None else f'{self.kind}("{exact_duration(self.every_us)}")'
        given = {
            "extent": f'"{self.extent_ratio:g}x"' if self.extent_ratio is not None else self.extent,
            "replay": None if self.replay is None else f"{self.replay:_}",
            **{
                name: None if us is None else f'"{exact_duration(us)}"'
                for name, us in (
                    ("interval", self.interval_us),
                    ("period", self.period_us),
                    ("recover_within", self.recover_within_us),
                )
            },
        }
        parts = [f"{name}={value}" for name, value in given.items() if value is not None]
        return f"cec({', '.join([*parts, *(str(each) for each in (self.slow, self.balance) if each is not None)])})"

    def _repr_html_(self) -> str:
        return card(repr(self), {"a recovery": _RECOVERIES[self.mode]})

    @property
    def starts_from(self) -> Literal["footprints", "whole state", "nothing"]:
        """The state from which a recovery under this policy starts."""
        return _STARTS[self.kind]

    @property
    def replays(self) -> bool:
        """True if it then takes in again what came since."""
        return self.kind in ("cec", "instant")

    @property
    def mode(self) -> Mode:
        """Both answers, as standings have them."""
        return "eventual" if self.kind == "cec" else self.kind

    @property
    def budget(self) -> FootprintBudget | None:
        """The time that may go into G-checks; None if it is not bounded."""
        if self.interval_us is None or self.period_us is None:
            return None
        return FootprintBudget(self.interval_us, self.period_us)

    def limits(self, open_windows: int, elapsed_us: int, before: Standing | None, time: int | None = None) -> Limits:
        """Returns when G-checks are due at the end of a step, as `asked` does, without what cannot be met."""
        return self.asked(open_windows, elapsed_us, before, time).limits

    def asked(
        self,
        open_windows: int,
        elapsed_us: int,
        before: Standing | None,
        time: int | None = None,
        *,
        tuples: int = 0,
        footprints: int | None = None,
    ) -> Asked:
        """Returns when G-checks are due at the end of a step, `elapsed_us` after the last, at this input time.

        The step has taken in so many `tuples`. A recovery needs so many `footprints` in any case: of all open windows
        unless it is said.
        """
        least, known = open_windows if footprints is None else footprints, before or NEVER_WORKED
        missed: list[MissedTarget | None] = []
        extent, replay, cost = math.inf, math.inf, math.inf
        unit_costs, footprint_ns = known.unit_costs, known.footprint_cost
        if self.extent is not None:
            extent, problem = nearest_extent(self.extent, least)
            missed.append(problem)
        if self.extent_ratio is not None:
            extent = self.extent_ratio * open_windows
        if self.replay is not None:
            replay, problem = nearest_replay(self.replay, tuples)
            missed.append(problem)
        if self.recover_within_us is not None:
            allowed_ns = self.allowed_s(before) * 1e9
            cost, problem = nearest_cost(self.recover_within_us, allowed_ns, least, unit_costs, tuples)
            missed.append(problem if known.extent_ns else None)
        if self.balance is not None:
            cost = least * unit_costs[0] + 1e9 * self.balance.allowed_s(open_windows, footprint_ns, known.growth)
        many = 1 << 62
        if self.budget is not None:
            many = self.budget.footprints(self.budget.earned_us(known.credit_us, elapsed_us), footprint_ns)
        slow = None if self.slow is None else self.slow.limits(known, time)
        weighed = (0.0, 0.0) if math.isinf(cost) else unit_costs
        # A new window has its footprint anyway: what was open before has to be saved again and again.
        is_told = known.open > 0 and self != _DEFAULT
        return Asked(
            Limits(extent, replay, cost, *weighed, many, slow),
            tuple(each for each in missed if each is not None) if is_told else (),
        )

    def may_ask_too_much(self, footprints: int, before: Standing | None) -> bool:
        """Returns whether a target cannot be met if a recovery needs so many footprints in any case."""
        if self.recover_within_us is not None:
            return self.allowed_s(before) * 1e9 < footprints * (before or NEVER_WORKED).unit_costs[0]
        return self.extent is not None and self.extent < footprints

    def allowed_s(self, costs: Standing | None) -> float:
        """Returns how long the reading and replaying of a recovery may take under recover_within.

        What is left of the target after a new process has started; if that is next to nothing, whatever is done with
        footprints, what is left of it in a process that is there.
        """
        target_s = (self.recover_within_us or 0) / 1e6
        open_s, start_s = (costs or NEVER_WORKED).fixed_costs
        left_s = target_s - open_s - start_s
        if left_s < _LEAST * target_s:
            left_s = target_s - open_s
        return max(0.0, left_s) * _MARGIN

    def missed_target(self, costs: Standing) -> str | None:
        """Returns a warning if a recovery in a new process, as measured, cannot meet the target; else None."""
        open_s, start_s = costs.fixed_costs
        if self.recover_within_us is None or not costs.start_s:
            return None
        target_s = self.recover_within_us / 1e6
        if target_s - open_s - start_s >= _LEAST * target_s:
            return None
        needed_s = (open_s + start_s) / (1 - _LEAST)
        return (
            f"recover_within={target_s:g} s cannot be met by a new process, which takes {open_s + start_s:.2f} s (as "
            "measured) before it has read a tuple: what comes after that is kept within the target, so that a recovery "
            f"takes up to {max(target_s, open_s) + start_s:.1f} s there, and {target_s:g} s in a process that is there "
            f"already. A target of {math.ceil(needed_s * 10) / 10:g} s or more can be met"
        )

    def whole_is_due(self, standing: Standing | None, now_us: int) -> bool:
        """Returns whether instant and partial save the whole state now."""
        if standing is None or standing.mode != self.mode or self.every_us is None:
            return True
        # Also if it was saved in the future, by a clock that was set back since.
        return abs(now_us - standing.saved_us) >= self.every_us

    def is_overdue(self, standing: Standing, now_us: int) -> bool:
        """Returns whether tuples that no checkpoint holds have been at risk for longer than partial allows.

        Then a step has to save although no tuple has come: a stream may fall silent right before a save. A failure a
        day later would otherwise lose its last tuples, though the policy says seconds.
        """
        is_at_risk = self.starts_from == "whole state" and not self.replays and standing.input > standing.oldest
        return is_at_risk and self.whole_is_due(standing, now_us)


_DEFAULT = Policy("cec", None, 2.0, 1_000_000)
"""A user who has set no target gets no warning about one."""
NEVER_WORKED = Standing(input=0, commit=-1, open=0, oldest=0, extent=0, replay=0)
"""The standing of an operator that has never worked: nothing is measured."""
_STARTS: Mapping[str, Literal["footprints", "whole state", "nothing"]] = {
    "cec": "footprints",
    "instant": "whole state",
    "partial": "whole state",
    "none": "nothing",
}
_RECOVERIES = {
    "eventual": "reads the newest footprints of open windows, and replays what came since the oldest of them",
    "instant": "reads the last whole checkpoint, and replays what came since",
    "partial": "reads the last whole checkpoint; what came since is lost, and stream.losses() says what",
    "none": "begins anew: windows that were open are lost, and stream.losses() says how many",
}
_MARGIN = 0.7
"""Measured costs are averages; a recovery must stay within the target nine times of ten."""
_LEAST = 0.2
"""Of the target, for reading and replaying. With less, all windows would be saved all the time, and to no avail."""


def cec(
    extent: int | str | None = None,
    replay: int | None = None,
    *,
    interval: Duration | None = None,
    period: Duration | None = None,
    recover_within: Duration | None = None,
    slow: Duration | None = None,
    every: Duration | None = None,
    at_most: int | None = None,
    failures_per_day: float | None = None,
    balance: float | None = None,
) -> Policy:
    """Returns continuous eventual checkpointing: footprints between the results, oldest window first, as targets ask.

    `extent` (Q) bounds the output tuples and `replay` (U) the input tuples that a recovery reads; "2x" is twice the
    number of open windows. `interval` of every `period` (CI, CP) bounds the time, as measured, that goes into
    G-checks. `recover_within="2 s"` sets both targets by itself, from measured costs.
    `slow` (H) gives G-checks to windows that have been open for longer, in the time of the input: each within `every`
    (T; by default H again), at most `at_most` (M; 100,000) a step. Beside the targets it only adds; alone, other
    windows get none, and a recovery replays them from their opening.
    `failures_per_day` writes a G-check only while the recovery that it saves, times how likely a failure is, is worth
    more than what it costs; with `balance`, a second of recovery weighs as much as so many seconds of footprints (1).
    Without any, extent="2x" and replay=1,000,000.

    >>> cec(extent="2x", replay=500_000).extent_ratio
    2.0
    """
    if (interval is None) != (period is None):
        raise OptionError("cec: interval= and period= belong together", todo='write interval="5 ms", period="100 ms"')
    if recover_within is not None and (extent is not None or replay is not None):
        raise OptionError(
            "cec: recover_within= sets extent and replay by itself", todo="pass either it or the two, not both"
        )
    interval_us = None if interval is None else positive_clock_us(interval, "cec: interval")
    period_us = None if period is None else positive_clock_us(period, "cec: period")
    if interval_us is not None and period_us is not None and interval_us > period_us:
        raise OptionError("cec: interval= is longer than period=", todo='write interval="5 ms", period="100 ms"')
    checked, weighed = slow_windows(slow, every, at_most), checked_balance(failures_per_day, balance)
    if recover_within is not None:
        if weighed is not None:
            raise OptionError(
                "cec: recover_within= and failures_per_day= both set the length of a recovery",
                todo="pass one of them",
            )
        target = positive_clock_us(recover_within, "cec: recover_within")
        return Policy("cec", interval_us=interval_us, period_us=period_us, recover_within_us=target, slow=checked)
    if extent is None and replay is None and slow is None and weighed is None:
        extent, replay = "2x", 1_000_000
    absolute, ratio = _extent(extent)
    tuples = whole_number(replay)
    if replay is not None and (tuples is None or tuples < 0):
        raise OptionError(f"cec: replay={replay!r} is not a number of tuples", todo="use for example replay=500_000")
    return Policy("cec", absolute, ratio, tuples, interval_us, period_us, slow=checked, balance=weighed)


def instant(every: Duration) -> Policy:
    """Returns checkpoint roll-backward: the whole state at once, every so often; the baseline for comparing CEC."""
    return Policy("instant", every_us=positive_clock_us(every, "instant: every"))


def partial(every: Duration = "10 s") -> Policy:
    """Returns partial fault tolerance: the whole state every so often, and a recovery that replays nothing.

    What was taken in since then is missing in the windows that were open: never more than that, and every gap is on
    record, see `Stream.losses`. For state that forgets its past by itself, such as a model that is learnt on line.
    """
    return Policy("partial", every_us=positive_clock_us(every, "partial: every"))


def none() -> Policy:
    """Returns the policy that saves nothing: a failure loses the open windows. For measuring the cost of the others."""
    return Policy("none")


def _extent(extent: int | str | None) -> tuple[int | None, float | None]:
    if extent is None:
        return None, None
    if isinstance(extent, str) and (match := _RELATIVE.fullmatch(extent)) and float(match[1]) >= 1:
        return None, float(match[1])
    tuples = whole_number(extent)
    if tuples is not None and tuples >= 0:
        return tuples, None
    raise OptionError(
        f"cec: extent={extent!r} is not understood",
        todo='use a number of tuples, or a multiple of the open windows such as "2x" (at least "1x")',
    )
