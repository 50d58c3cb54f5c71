"""Limits of slow windows as tests draw them: how far back, from wherever the operator stands."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from strandline.operators.operator import Limits, SlowLimits


def some_slow(rng: Random) -> SlowLimits | None:
    """How many input and output tuples back, and how many G-checks; None as often."""
    return rng.choice([None, SlowLimits(rng.randrange(60), rng.randrange(60), rng.choice([1, 4, 1 << 40]))])


def slow_from(limits: Limits, input_end: int, position: int) -> Limits:
    """The same limits, those of slow windows being places in input and output."""
    if limits.slow is None:
        return limits
    back = limits.slow
    return replace(
        limits, slow=SlowLimits(input_end - back.opened_before, position - back.written_before, back.at_most)
    )
