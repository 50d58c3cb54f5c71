"""Cost against benefit: a G-check is written only while it is worth more than it costs (CEC III.A).

A recovery takes R = N·e + a·t seconds: `e` to read the footprint of each of N open windows, and what came within the
time `t` since the oldest footprint was written; `a` is what a second of running adds. To write the N footprints again
every `t` costs N·c seconds each time. `f` failures a second cost f·R seconds a second, and each of them weighs `w`
times. Together N·c/t + w·f·(N·e + a·t) is least where both terms with `t` are equal: at a·t = √(N·c·a / (w·f)).

A G-check of the oldest window is worth it above that, and wasted below: the recovery that it saves, a·t, times how
likely a failure is until then, w·f·t, is just what the N footprints cost, N·c.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, Final

from strandline.errors import OptionError

_DAY_S: Final = 86_400.0
_LEAST: Final = 1e-12
_MOST: Final = 1e12
"""Options outside of these mean nothing, and their product would leave the range of numbers."""
_GROWTH_MAX: Final = 1.0
"""A second of running adds no more than about a second to a recovery; assumed until it is measured."""


@dataclass(frozen=True, slots=True)
class Balance:
    """How often something fails, and how much more a second of recovery weighs than one of writing footprints."""

    failures_per_day: float
    weight: float

    def allowed_s(self, open_windows: int, footprint_ns: float, growth: float) -> float:
        """Returns the recovery time, beyond reading a footprint of each window, above which a G-check is worth it.

        >>> round(Balance(1, 1).allowed_s(90_000, 1_000, 0.034), 1)
        16.3
        """
        failures_a_second = self.weight * self.failures_per_day / _DAY_S
        return math.sqrt(open_windows * footprint_ns / 1e9 * (growth or _GROWTH_MAX) / failures_a_second)

    def __str__(self) -> str:
        return f"failures_per_day={self.failures_per_day:g}, balance={self.weight:g}"


def growth_in(seconds: float, elapsed_us: int) -> float | None:
    """Returns what a second of running added to a recovery that got so much longer; None if no time has passed."""
    return min(_GROWTH_MAX, seconds * 1e6 / elapsed_us) if elapsed_us > 0 else None


def checked_balance(failures_per_day: float | None, balance: float | None) -> Balance | None:
    """Returns what options of `cec` say of failures; None if nothing. Raises `OptionError`."""
    if failures_per_day is None and balance is None:
        return None
    return Balance(
        _positive(1.0 if failures_per_day is None else failures_per_day, "failures_per_day", "0.1 for one in ten days"),
        _positive(1.0 if balance is None else balance, "balance", "10: a second of recovery weighs as much as 10 s"),
    )


def _positive(value: Any, option: str, example: str) -> float:
    is_number = isinstance(value, Real) and not isinstance(value, bool)  # numbers of NumPy are some, too
    if not is_number or not _LEAST <= value <= _MOST:
        raise OptionError(
            f"cec: {option}={value!r} is not a number from {_LEAST:g} to {_MOST:g}", todo=f"use for example {example}"
        )
    return float(value)
