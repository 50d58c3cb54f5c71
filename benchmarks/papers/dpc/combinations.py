"""Figure 10: six combinations of what happens to new tuples during a failure and while it is corrected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.input_failures import BEFORE_S, COMBINATIONS, Contender
from benchmarks.papers.dpc.failing import AVAILABLE, MARGIN_S, SETTING, Row, brief, failures, line, rows, steps_table
from benchmarks.papers.figure import Claim, Data, Experiment, Figure, Panel, Size

_TUPLES_PER_S = 4_500
_AHEAD = 3
"""A correction that is held back takes in so many times what arrives: the paper's takes 3 s after 9 s."""
_BOUND_S = 3.0
_AT_ONCE = 6
_NAMES = {"process": "Process", "delay": "Delay", "suspend": "Suspend"}
_DURATIONS: dict[Size, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "tiny": ((0.6,), ()),
    "small": ((2.0, 4.0, 6.0, 8.0, 10.0, 12.0), (4.0, 8.0, 12.0)),
    "full": ((2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 15.0, 30.0, 60.0), (2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 15.0, 30.0, 60.0)),
}
"""Seconds of failures: as fast as it is, and with corrections that are held back."""


def measure(size: Size, folder: Path) -> Data:
    """Measures all combinations with every failure; with corrections as fast as they are, and held back."""
    bound_s, before_s = (0.3, 0.4) if size == "tiny" else (_BOUND_S, BEFORE_S)
    runs = [
        (seconds, [Contender(bound_s, *modes, pace=pace) for modes in COMBINATIONS])
        for durations, pace in zip(_DURATIONS[size], (None, _AHEAD * _TUPLES_PER_S), strict=True)
        for seconds in durations
    ]
    todo = failures(folder, _TUPLES_PER_S, runs, sensors=50, at_once=_AT_ONCE, before_s=before_s)
    found = [brief(row, name=_name(row)) for row in rows(todo, beside=size != "tiny")]
    fast = len(COMBINATIONS) * len(_DURATIONS[size][0])
    return {
        "fast": found[:fast],
        "held_back": found[fast:],
        "bound_s": bound_s,
        "available_per_s": _TUPLES_PER_S * AVAILABLE,
    }


def _name(row: Row) -> str:
    failing, stabilizing = str(row["combination"]).split("/")
    return f"{_NAMES[failing]} & {_NAMES[stabilizing]}"


_ALL = [_name({"combination": "/".join(modes)}) for modes in COMBINATIONS]
_BOTH_PROCESS, _BOTH_DELAY = "Process & Process", "Delay & Delay"
_PROCESS_SUSPEND, _DELAY_SUSPEND = "Process & Suspend", "Delay & Suspend"


def _panels(data: Data) -> list[Panel]:
    found = []
    for part, title in (("fast", ""), ("held_back", ", corrections held back")):
        if data[part]:
            limit = ("X", data["bound_s"])
            x = "duration of the failure (s)"
            delays = {name: line(data[part], "failure_s", "delay_new_max_s", name=name) for name in _ALL}
            found.append(Panel(f"how long new tuples wait at most{title}", x, "seconds", ours=delays, limit=limit))
            guesses = {name: line(data[part], "failure_s", "tentative", name=name) for name in _ALL}
            found.append(Panel(f"tentative tuples{title}", x, "tuples", ours=guesses))
    return found


# ---------------------------------------------------------------------- claims


def _values(data: Data, part: str, name: str, field: str) -> dict[float, float]:
    return dict(line(data[part], "failure_s", field, name=name))


def _keeps_bound(data: Data, part: str, name: str, longer_than: float = 0.0) -> bool:
    """Returns whether no new tuple waited longer than X and two looks, after failures longer than this."""
    found = _values(data, part, name, "delay_new_max_s")
    return all(delay <= data["bound_s"] + MARGIN_S for s, delay in found.items() if s > longer_than)


def _breaks_bound(data: Data, part: str, name: str, longer_than: float) -> bool:
    found = _values(data, part, name, "delay_new_max_s")
    late = [delay for s, delay in found.items() if s > longer_than]
    return bool(late) and min(late) > data["bound_s"] + MARGIN_S


def _none_below_bound(data: Data) -> bool:
    short = [row["tentative"] for row in data["fast"] if row["failure_s"] < data["bound_s"]]
    return bool(short) and not any(short)


def _has_most(data: Data) -> bool:
    """Returns whether no combination makes over 5 % more tentative tuples than Process & Process."""
    most = _values(data, "fast", _BOTH_PROCESS, "tentative")
    return any(most.values()) and all(
        other <= 1.05 * most[s] for name in _ALL for s, other in _values(data, "fast", name, "tentative").items()
    )


def _delaying_saves(data: Data) -> bool:
    """Returns whether Delay & Delay saves at least half of the tuples of a bound, where failures outlast the bound."""
    least = 0.5 * data["bound_s"] * data["available_per_s"]
    most = _values(data, "fast", _BOTH_PROCESS, "tentative")
    fewer = _values(data, "fast", _BOTH_DELAY, "tentative")
    long = [s for s in most if s >= 2 * data["bound_s"]]
    return bool(long) and all(most[s] - fewer[s] >= least for s in long)


def _suspending_saves(data: Data) -> bool:
    """Returns whether Process & Suspend makes fewer than Delay & Delay after a failure between 6 and 9 s."""
    suspended = _values(data, "held_back", _PROCESS_SUSPEND, "tentative")
    delayed = _values(data, "held_back", _BOTH_DELAY, "tentative")
    between = [s for s in suspended if 6 < s < 9]
    return bool(between) and all(suspended[s] < delayed[s] for s in between)


# ---------------------------------------------------------------------- what the text says


def _told(
    delay_of: Callable[[str, float], float] | None = None, tentative_of: Callable[[str, float], float] | None = None
) -> dict[str, Any]:
    """Returns rows as the paper's text describes them, or other delays and numbers in their place."""
    found = {
        part: [
            {
                "name": name,
                "failure_s": s,
                "delay_new_max_s": (delay_of or _told_delay)(name, s),
                "tentative": (tentative_of or _told_tentative)(name, s),
            }
            for name in _ALL
            for s in (2.0, 4.0, 6.0, 8.0, 10.0, 12.0)
        ]
        for part in ("fast", "held_back")
    }
    return {**found, "bound_s": 3.0, "available_per_s": 3_000}


def _told_delay(name: str, s: float) -> float:
    """Returns X; with Suspend what a correction at three times the rate takes, with Delay behind that of the bound."""
    if s < 3:
        return s
    correction_s = s / 3
    if name == _DELAY_SUSPEND:
        return 2.7 + correction_s
    return max(2.7, correction_s * 1.1) if name == _PROCESS_SUSPEND else 2.7


def _told_tentative(name: str, s: float) -> float:
    if s < 3:
        return 0.0
    during = s if name.startswith("Process") else s - 2.7
    corrected = {"Process": s / 3, "Delay": max(0.0, s / 3 - 1.5), "Suspend": 0.0}[name.split(" & ")[1]]
    late = s * 1.02 if name == _PROCESS_SUSPEND else during + corrected + (3 if name == _BOTH_DELAY else 0)
    return 3_000 * (during if name == _DELAY_SUSPEND else late)


_QUICK = (
    "Corrections take milliseconds for each second of the failure, so new tuples that wait for them hardly wait. Held "
    "back to the paper's speed it is as the paper says (the last claims)."
)


def _broken(name: str, longer_than: float, held_back: bool) -> Claim:
    part, where = ("held_back", " (corrections held back to the paper's speed)") if held_back else ("fast", "")
    return Claim(
        f"{name} breaks the bound X after failures longer than {longer_than:g} s{where}",
        lambda data: _breaks_bound(data, part, name, longer_than),
        refuted_by=_told(lambda _, s: min(s, 2.9)),
        shown_by=_told(lambda n, s: _told_delay(n, s) + (0.6 if n == name and s > longer_than else 0)),
        surpassed=None if held_back else lambda data: _keeps_bound(data, part, name, longer_than),
        why_not="" if held_back else _QUICK,
    )


def _kept(name: str, part: str, why_not: str) -> Claim:
    where = " (corrections held back)" if part == "held_back" else ""
    return Claim(
        f"{name} keeps the bound X, however long the failure is{where}",
        lambda data: _keeps_bound(data, part, name),
        refuted_by=_told(lambda _, s: s),
        shown_by=_told(),
        why_not=why_not,
    )


_BUSY = "A tick in which all operators of the process correct at the same moment holds up the new tuples."
_UNDONE = (
    "When the union begins to correct, its undo voids the guesses that the join has not taken in yet, because its "
    "bound is the longer one. Until the union guesses them again, one or two looks later, the join goes on without "
    "them. Tuples of these looks wait for another bound, or for the correction. With bounds of 0.5 X each, and in "
    "an operator without another one before it (strandline bench availability, `slow`), this does not happen."
)


_CLAIMS: Sequence[Claim] = (
    Claim(
        "A failure shorter than the bound leaves no tentative tuple, with any combination",
        _none_below_bound,
        refuted_by=_told(tentative_of=lambda _, s: 1_000 * s),
        shown_by=_told(),
    ),
    _kept(_BOTH_PROCESS, "fast", _BUSY),
    _kept(_BOTH_DELAY, "fast", _BUSY),
    Claim(
        "Process & Process makes the most tentative tuples",
        _has_most,
        refuted_by=_told(tentative_of=lambda name, s: s * (1 if name == _BOTH_PROCESS else 2)),
        shown_by=_told(tentative_of=lambda name, s: _told_tentative(name, s) * (name == _BOTH_PROCESS)),
    ),
    Claim(
        "Delay & Delay makes fewer tentative tuples without breaking the bound",
        lambda data: _delaying_saves(data) and _keeps_bound(data, "fast", _BOTH_DELAY),
        refuted_by=_told(tentative_of=lambda _, s: 3_000 * s),
        shown_by=_told(
            tentative_of=lambda name, s: 3_000 * (s - 2.7 * (name == _BOTH_DELAY)) if s > 3 else 0.0,
        ),
    ),
    _broken(_DELAY_SUSPEND, 3, held_back=False),
    _broken(_PROCESS_SUSPEND, 9, held_back=False),
    _broken(_DELAY_SUSPEND, 3, held_back=True),
    _broken(_PROCESS_SUSPEND, 9, held_back=True),
    _kept(_BOTH_PROCESS, "held_back", _BUSY),
    _kept(_BOTH_DELAY, "held_back", _UNDONE),
    Claim(
        "Process & Suspend makes fewer tentative tuples than Delay & Delay after failures between 6 and 9 s "
        "(corrections held back)",
        _suspending_saves,
        refuted_by=_told(tentative_of=lambda name, s: s * (2 if name == _PROCESS_SUSPEND else 1)),
        shown_by=_told(),
    ),
)

FIGURE = Figure(
    "dpc-fig10",
    "Figure 10: six ways to treat new tuples during a failure and its correction",
    "the node of Figure 9 with 4,500 tuples/s, X = 3 s, and failures up to 60 s. During the failure new tuples are "
    "processed or delayed, while results are corrected they are processed, delayed or suspended.",
    "no tentative tuples below the bound. Delay & Suspend breaks X after failures longer than 3 s, Process & Suspend "
    "after 9 s; Process & Process keeps it whatever the failure and makes the most tentative tuples. Delaying in both "
    "states makes fewer and keeps X. Process & Suspend makes the fewest between 6 and 9 s only.",
    SETTING + " 4,500 tuples/s, 50 sensors, X = 3 s. Corrections are measured as fast as they are, and once more with "
    f"the stable lineage held back to {_AHEAD} times what arrives, which was about the speed of the paper's machine. "
    f"The bound counts as kept up to {MARGIN_S:g} s beyond it, two looks of an operator.",
    _panels,
    _CLAIMS,
    table=lambda data: steps_table([*data["fast"], *data["held_back"]]),
)

EXPERIMENT = Experiment("dpc-combinations", "dpc", measure, (FIGURE,))
