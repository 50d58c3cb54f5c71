"""The promise of an operator for missing inputs: how long tuples wait for them, and what happens then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from strandline.errors import OptionError
from strandline.units import Duration, positive_us, whole_number
from strandline.wording import exact_duration

Mode = Literal["process", "delay", "suspend"]
"""How a fork treats new tuples: it takes them in at once, as late as the bound allows, or not at all."""

Reconcile = Literal["redo", "undo"]
"""How the stable lineage gets its state: it has kept the state beside the fork's, or rebuilds it from the log."""

_ANSWER_S = (0.5, 5.0)
"""The least and the most: a busy disk takes a while to sync, and a small request should not need longer."""


def answer_s(patience_us: int) -> float:
    """Returns how long to wait for one answer of a store, for a caller who waits `patience_us` for its data.

    >>> answer_s(3_000_000), answer_s(200_000), answer_s(3_600_000_000)
    (1.0, 0.5, 5.0)
    """
    least, most = _ANSWER_S
    return min(max(patience_us / 3e6, least), most)


@dataclass(frozen=True, slots=True)
class Promise:
    """The bound, and the reaction when it has passed."""

    bound_us: int
    failing: Mode = "process"
    """The mode while inputs are missing. `suspend`: there is no fork, and no tentative result ever."""
    stabilizing: Mode = "process"
    """The mode while the stable lineage catches up."""
    reconcile: Reconcile = "redo"
    """`undo`: a fork that begins takes the stable state over, instead of copying the parts that it changes."""

    @classmethod
    def of(
        cls,
        bound: Duration,
        failing: Any = "process",
        stabilizing: Any = None,
        reconcile: Any = "redo",
        *,
        option: str = "bound",
    ) -> Promise:
        """Returns the promise for a user's options; raises OptionError if they are wrong.

        Without `stabilizing`, that mode is the one of `failing`. `option` is the name under which the user gave the
        bound.
        """
        if whole_number(bound) is not None:
            raise OptionError(
                f"availability: {option}={bound!r} has no unit: a bound is a time of the clock, not of the tuples",
                todo=f'write {option}="{bound} s", or whatever unit it is',
            )
        stabilizing = failing if stabilizing is None else stabilizing
        for name, mode in (("failing", failing), ("stabilizing", stabilizing)):
            if mode not in get_args(Mode):
                raise OptionError(
                    f"availability: {name}={mode!r} is unknown", todo='use "process", "delay" or "suspend"'
                )
        if reconcile not in get_args(Reconcile):
            raise OptionError(f"availability: reconcile={reconcile!r} is unknown", todo='use "redo" or "undo"')
        try:
            return cls(positive_us(bound, f"availability: {option}"), failing, stabilizing, reconcile)
        except OptionError as problem:
            raise OptionError(
                problem.what, todo='write it like "500 ms" or "3 s", or pass a timedelta; more than zero'
            ) from None

    def __str__(self) -> str:
        """Returns the promise as a program writes it, without options that have their defaults.

        >>> str(Promise.of("3 s")), str(Promise.of("3 s", "delay", "process", "undo"))
        ('availability("3 s")', 'availability("3 s", failing="delay", stabilizing="process", reconcile="undo")')
        """
        words = {"failing": self.failing, "stabilizing": self.stabilizing, "reconcile": self.reconcile}
        usual = {"failing": "process", "stabilizing": self.failing, "reconcile": "redo"}
        said = [f', {name}="{word}"' for name, word in words.items() if word != usual[name]]
        return f'availability("{exact_duration(self.bound_us)}"{"".join(said)})'

    @property
    def answer_s(self) -> float:
        """The time to wait for an answer of an input: a part of the bound, as all other inputs wait for it once."""
        return answer_s(self.bound_us)

    def require_longer_than(self, interval_s: float, where: str, operators: int = 1) -> None:
        """Raises OptionError if the bound is shorter than two trigger intervals.

        A driver that looks twice must be in time. So many `operators` in a row share a bound of which this is a part.
        """
        if self.bound_us < 2 * interval_s * 1e6:
            interval_us = round(interval_s * 1e6)
            share = "the bound" if operators == 1 else f"{operators} operators in a row share the bound, and a share"
            raise OptionError(
                f"availability: {share} of {exact_duration(self.bound_us)} is shorter than two trigger intervals of "
                f"{exact_duration(interval_us)}",
                where=where,
                todo=f"use a bound of {exact_duration(2 * operators * interval_us)} or more, or a shorter trigger",
            )
