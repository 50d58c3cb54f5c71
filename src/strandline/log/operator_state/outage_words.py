"""How an operator with a bound is, for people: its state, since when, whom it waits for, what is only tentative."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from strandline.log.operator_state.outage import Outage


def outage_report(outage: Outage, inputs: Sequence[str], operator: Mapping[str, Any]) -> dict[str, Any]:
    """The state in plain values; `inputs` are the names of the inputs, `operator` is the JSON of stream.json.

    >>> outage_report(Outage("UP_FAILURE", 5, missing=(1,)), ["a", "b"], {"kind": "barrier"})["blocked"]
    'without b a barrier has nothing to say: it is blocked until b is back'
    """
    missing = [inputs[number] for number in outage.missing]
    blocked = blocked_text(operator, missing)
    return {
        "state": outage.state,
        "since_us": outage.since_us,
        "missing": missing,
        "tentative": outage.tentative,
        **({"blocked": blocked} if blocked else {}),
        **({"problems": problems} if (problems := _problems(outage)) else {}),
    }


def _problems(outage: Outage) -> dict[int, str]:
    """By partition, why nothing is guessed in it until an input is back."""
    return {p: fork.problem for p, fork in enumerate(outage.forks) if fork.problem}


def blocked_text(operator: Mapping[str, Any], missing: Sequence[str]) -> str | None:
    """Why there are no tentative results, or hardly any, while these are missing; None if there may be."""
    if not missing:
        return None
    is_one, whom = len(missing) == 1, " and ".join(missing)
    until = f"until {whom} {'is' if is_one else 'are'} back"
    if operator.get("kind") == "barrier":
        return f"without {whom} a barrier has nothing to say: it is blocked {until}"
    if operator.get("kind") == "join" and operator["windows"].get("how", "inner") == "inner":
        return f"without {whom} an inner join has only what it kept to match: it is blocked {until}"
    return None
