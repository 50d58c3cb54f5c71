"""Figure 9: a failure of 5 s, and bounds of 0.5 to 6 s."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.input_failures import BEFORE_S, COMBINATIONS, Contender
from benchmarks.papers.dpc.failing import AVAILABLE, SETTING, Row, brief, failures, fit, line, rows, steps_table
from benchmarks.papers.figure import Claim, Data, Experiment, Figure, Panel, Size

_TUPLES_PER_S = 3_000
_MODES = {"process": COMBINATIONS[0], "delay": COMBINATIONS[3]}
_AT_ONCE = 5
_BOUNDS = {
    "tiny": (0.3,),
    "small": (0.5, 1.0, 2.0, 3.0, 4.0, 6.0),
    "full": (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0),
}
_CATCHES_UP = 0.8
"""The greatest part of the failure that a bound may be, so that `process` has time to catch up (4 s of 5 s)."""


def measure(size: Size, folder: Path) -> Data:
    """Measures both modes with every bound."""
    failure_s, before_s = (0.6, 0.4) if size == "tiny" else (5.0, BEFORE_S)
    contenders = [Contender(bound_s, *modes) for bound_s in _BOUNDS[size] for modes in _MODES.values()]
    run = [(failure_s, contenders)]
    todo = failures(folder, _TUPLES_PER_S, run, sensors=50, at_once=_AT_ONCE, before_s=before_s)
    names = {"/".join(modes): name for name, modes in _MODES.items()}
    found = [brief(row, mode=names[row["combination"]]) for row in rows(todo, beside=size != "tiny")]
    return {"rows": found, "failure_s": failure_s, "available_per_s": _TUPLES_PER_S * AVAILABLE}


def _panels(data: Data) -> list[Panel]:
    def lines(field: str) -> dict[str, list[tuple[float, float]]]:
        return {mode: line(data["rows"], "bound_s", field, mode=mode) for mode in _MODES}

    return [
        Panel("how long new tuples wait at most", "bound X (s)", "seconds", ours=lines("delay_new_max_s")),
        Panel("tentative tuples", "bound X (s)", "tuples", ours=lines("tentative")),
    ]


def _delays_are_linear(data: Data) -> bool:
    """Returns whether delays are X, give or take a fifth, as long as the bound runs out before the failure ends."""
    found = [fit(_before_end(data, "delay_new_max_s", mode)) for mode in _MODES]
    return all(0.8 <= slope <= 1.2 and explained >= 0.97 for slope, _, explained in found)


def _process_is_a_step(data: Data) -> bool:
    whole = data["available_per_s"] * data["failure_s"]
    found = line(data["rows"], "bound_s", "tentative", mode="process")
    early = [tentative for bound_s, tentative in found if bound_s <= _CATCHES_UP * data["failure_s"]]
    return bool(early) and min(early) >= 0.85 * whole and max(early) <= 1.15 * whole


def _delay_saves_the_bound(data: Data) -> bool:
    """Returns whether each second of the bound saves the tuples of a second, give or take a fifth."""
    slope, _, explained = fit(_before_end(data, "tentative", "delay"))
    return -1.2 <= slope / data["available_per_s"] <= -0.8 and explained >= 0.97


def _none_below_bound(data: Data) -> bool:
    found = [row["tentative"] for row in data["rows"] if row["bound_s"] > data["failure_s"]]
    return bool(found) and not any(found)


def _before_end(data: Data, field: str, mode: str) -> list[tuple[float, float]]:
    found = line(data["rows"], "bound_s", field, mode=mode)
    return [(bound_s, value) for bound_s, value in found if bound_s < data["failure_s"]]


def _as_told(delay_of: Any, process: Any, delay: Any) -> dict[str, Any]:
    """Returns rows as the paper's text describes them, of its 3,000 tuples a second two thirds of which are there."""
    found: list[Row] = []
    for bound_s in (0.5, 1.0, 2.0, 3.0, 4.0, 6.0):
        for mode, tentative in (("process", process(bound_s)), ("delay", delay(bound_s))):
            found.append(
                {"bound_s": bound_s, "mode": mode, "delay_new_max_s": delay_of(bound_s), "tentative": tentative}
            )
    return {"rows": found, "failure_s": 5.0, "available_per_s": 2_000}


def _until_end(bound_s: float) -> float:
    return max(0.0, 5.0 - bound_s) * 2_000


_TOLD = _as_told(lambda x: min(x, 5.0), lambda x: 10_000 * (x < 5), _until_end)

FIGURE = Figure(
    "dpc-fig9",
    "Figure 9: delaying tuples during a failure reduces tentative tuples",
    "one node, three input streams of 3,000 tuples/s in all, a join with a state of 100 tuples. One stream is cut off "
    "for 5 s; the bound X goes from 0.5 s to 6 s. After X the node takes in new tuples as they arrive (Process), or "
    "delays each by X (Delay).",
    "the longest delay grows linearly with X. Process makes tentative tuples for nearly the whole failure at every X "
    "up to 4 s, a step function; Delay makes fewer in proportion to X.",
    SETTING + " 3,000 tuples/s, 50 sensors: a state of 100 tuples.",
    _panels,
    (
        Claim(
            "The longest delay of new tuples grows linearly with X, with Process and with Delay",
            _delays_are_linear,
            refuted_by=_as_told(lambda x: 3.0 + x / 10, lambda _: 0, lambda _: 0),
            shown_by=_TOLD,
        ),
        Claim(
            "Process makes a number of tentative tuples in proportion to the failure at every X up to 4 s",
            _process_is_a_step,
            refuted_by=_as_told(lambda x: x, _until_end, _until_end),
            shown_by=_TOLD,
        ),
        Claim(
            "Delay makes fewer tentative tuples in proportion to X",
            _delay_saves_the_bound,
            refuted_by=_as_told(lambda x: x, lambda _: 10_000, lambda x: 10_000 - 300 * x),
            shown_by=_TOLD,
        ),
        Claim(
            "A failure shorter than X leaves no tentative tuple",
            _none_below_bound,
            refuted_by=_as_told(lambda x: x, lambda _: 10_000, _until_end),
            shown_by=_TOLD,
        ),
    ),
    table=lambda data: steps_table(data["rows"]),
)


EXPERIMENT = Experiment("dpc-bounds", "dpc", measure, (FIGURE,))
