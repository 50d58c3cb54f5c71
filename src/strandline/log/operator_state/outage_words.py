"""The report on an operator with a bound: its state, since when, the missing inputs, its tentative results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strandline.log.operator_state.outage import Outage


def outage_report(outage: Outage, inputs: Sequence[str], blocked: str | None) -> dict[str, Any]:
    """Returns the state in plain values.

    `inputs` are the names of the inputs, `blocked` says why the operator has no tentative results without one of
    them; None if it may have some.

    >>> outage_report(Outage("UP_FAILURE", 5, missing=(1,)), ["a", "b"], "a barrier has nothing to say")["blocked"]
    'without b a barrier has nothing to say: it is blocked until b is back'
    """
    missing = [inputs[number] for number in outage.missing]
    return {
        "state": outage.state,
        "since_us": outage.since_us,
        "missing": missing,
        "tentative": outage.tentative,
        **({"blocked": _blocked_text(missing, blocked)} if missing and blocked else {}),
        **({"problems": problems} if (problems := _problems(outage)) else {}),
    }


def _problems(outage: Outage) -> dict[int, str]:
    """Returns, by partition, why there are no tentative results in it until an input is back."""
    return {p: fork.problem for p, fork in enumerate(outage.forks) if fork.problem}


def _blocked_text(missing: Sequence[str], why: str) -> str:
    whom = " and ".join(missing)
    return f"without {whom} {why}: it is blocked until {whom} {'is' if len(missing) == 1 else 'are'} back"
