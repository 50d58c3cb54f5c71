"""Figure 12 and Table 2: correcting results with redo and with undo, over states and failures."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import rounds, say
from benchmarks.papers.dpc.failing import Row, fit, line
from benchmarks.papers.figure import Claim, Data, Experiment, Figure, Panel, Size
from benchmarks.reconciliation import WAYS, Guesses
from strandline.running.promise import Reconcile

_PAPER = {"redo": "Checkpoint", "undo": "Undo"}
_OPERATORS = (1, 2)
_SMALL_STATE, _FEW = 100, 3_000
_SIZES: dict[Size, tuple[tuple[int, ...], tuple[int, ...], int]] = {
    "tiny": ((100,), (300,), 1),
    "small": ((100, 50_000, 100_000, 200_000), (5_000, 45_000, 100_000, 200_000), 5),
    "full": (
        (100, 50_000, 100_000, 200_000, 500_000, 1_000_000),
        (5_000, 15_000, 25_000, 45_000, 100_000, 200_000, 500_000),
        7,
    ),
}
"""Sizes of the state, tentative tuples of a failure, and rounds."""


def measure(size: Size, folder: Path) -> Data:
    """Measures both ways over sizes of the state, and over lengths of the failure; the best round counts."""
    states, failures, repeat = _SIZES[size]
    Guesses(folder / "warm", 100, 300, "redo", operators=2).corrected_s()  # compiles
    points = [(state, _FEW if size != "tiny" else 300, "state") for state in states]
    points += [(_SMALL_STATE, tentative, "failure") for tentative in failures]
    found: list[Row] = []
    for state, tentative, part in points:
        for operators in _OPERATORS:
            found += [{"part": part, **row} for row in _measured(state, tentative, operators, repeat, folder)]
        say(f"dpc: {tentative:,} tentative tuples corrected with a state of {state:,}")
    return {"rows": found}


def _measured(state: int, tentative: int, operators: int, repeat: int, folder: Path) -> list[dict[str, Any]]:
    """Returns a row for each way; raises if stable results are not those of a run without a failure."""
    taken: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}

    def corrected(way: Reconcile) -> float:
        guesses = Guesses(folder / "guesses", state, tentative, way, operators=operators, steps=2)
        megabytes = guesses.state_bytes / 1e6
        seconds = guesses.corrected_s()
        if not taken[way] and not guesses.is_right():
            raise RuntimeError(f"{way}: stable results differ from those of a run without a failure")
        cpu = {"guessing_ms": guesses.guessing_cpu_s * 1e3, "correcting_ms": guesses.correcting_cpu_s * 1e3}
        taken[way].append({"ms": seconds * 1e3, "state_mb": megabytes, **cpu})
        shutil.rmtree(folder / "guesses")
        return seconds

    rounds({way: partial(corrected, way) for way in WAYS}, repeat)
    return [
        {"way": way, "operators": operators, "state": state, "tentative": tentative, **_best(one)}
        for way, one in taken.items()
    ]


def _best(taken: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: round(min(one[name] for one in taken), 3) for name in taken[0]}


# ---------------------------------------------------------------------- figure 12


def _name(way: str, operators: int) -> str:
    return f"{way}, 2 operators" if operators == 2 else way


def _panels(data: Data) -> list[Panel]:
    def lines(part: str, x: str, y: str) -> dict[str, list[tuple[float, float]]]:
        found = {
            _name(way, many): line(data["rows"], x, y, part=part, way=way, operators=many)
            for many in _OPERATORS
            for way in WAYS
        }
        return {name: [(value / 1e3, ms) for value, ms in one] for name, one in found.items()}

    state, failure, ms = "state (thousand tuples)", "failure (thousand tentative tuples)", "milliseconds"
    return [
        Panel("real time of the correction", state, ms, ours=lines("state", "state", "ms")),
        Panel("real time of the correction", failure, ms, ours=lines("failure", "tentative", "ms")),
        Panel("CPU of the correction", state, ms, ours=lines("state", "state", "correcting_ms")),
        Panel("CPU of the correction", failure, ms, ours=lines("failure", "tentative", "correcting_ms")),
        Panel("CPU before the correction, guesses included", state, ms, ours=lines("state", "state", "guessing_ms")),
    ]


def _points(data: Data, part: str, way: str, y: str = "correcting_ms", operators: int = 1) -> list[tuple[float, float]]:
    x = "state" if part == "state" else "tentative"
    return line(data["rows"], x, y, part=part, way=way, operators=operators)


def _grows_with_state(data: Data, way: str) -> bool:
    """Returns whether the largest state takes at least half as long again as the smallest one, on a straight line."""
    points = _points(data, "state", way)
    return points[-1][1] >= 1.5 * points[0][1] and fit(points)[2] >= 0.9


def _redo_hardly_grows(data: Data) -> bool:
    """Returns whether a larger state adds less than a fifth to redo of what it adds to undo."""
    redo, undo = (points[-1][1] - points[0][1] for points in (_points(data, "state", way) for way in ("redo", "undo")))
    return redo < 0.2 * undo


def _grows_with_failure(data: Data) -> bool:
    found = [_points(data, "failure", way) for way in WAYS]
    return all(points[-1][1] >= 1.5 * points[0][1] and fit(points)[2] >= 0.9 for points in found)


def _undo_is_slower(data: Data, part: str, least: float) -> bool:
    """Returns whether undo takes so many times as long as redo, over the larger half of the points."""
    redo, undo = (sum(ms for _, ms in _points(data, part, way)[1:]) for way in ("redo", "undo"))
    return bool(undo >= least * redo > 0)


def _series_doubles(data: Data) -> bool:
    """Returns whether two operators in series need 1.4 to 2.6 times the time a tuple of the failure."""
    found = [[fit(_points(data, "failure", way, operators=many))[0] for many in _OPERATORS] for way in WAYS]
    return all(1.4 <= two / one <= 2.6 for one, two in found if one) and all(one for one, _ in found)


def _redo_costs_cpu(data: Data) -> bool:
    """Returns whether redo needs more CPU before the correction than undo, and more of it the larger the state."""
    redo, undo = (_points(data, "state", way, "guessing_ms") for way in ("redo", "undo"))
    return redo[-1][1] >= 1.2 * undo[-1][1] and redo[-1][1] - redo[0][1] > undo[-1][1] - undo[0][1]


def _told(**other: Callable[[str, int, int, int], float]) -> dict[str, Any]:
    """Returns rows as the text and Table 2 describe them: redo copies the state, undo makes it anew from its tuples.

    Microseconds a tuple, so that the values have the size of ours; `other` replaces some.
    """

    def ms(way: str, operators: int, state: int, tentative: int) -> float:
        copy, rebuild, again = 0.1, 0.6, 0.3
        per_state = copy if way == "redo" else rebuild
        return 10 + (per_state * state + again * tentative * operators * (1.1 if way == "undo" else 1.0)) / 1e3

    def guessing_ms(way: str, _: int, state: int, __: int) -> float:
        return 5 + (0.2 if way == "redo" else 0.05) * state / 1e3

    def state_mb(way: str, _: int, state: int, __: int) -> float:
        return (1 if way == "redo" else 2) * state / 1e4

    values = {"ms": ms, "guessing_ms": guessing_ms, "correcting_ms": ms, "state_mb": state_mb, **other}
    states, failures, _ = _SIZES["small"]
    points = [("state", s, _FEW) for s in states] + [("failure", _SMALL_STATE, t) for t in failures]
    return {
        "rows": [
            {
                "part": part,
                "way": way,
                "operators": many,
                "state": state,
                "tentative": tentative,
                **{name: value(way, many, state, tentative) for name, value in values.items()},
            }
            for part, state, tentative in points
            for way in WAYS
            for many in _OPERATORS
        ]
    }


_SETTING = (
    "a function with a state a key over the union of three streams, one of which is missing; each tuple of the others "
    "has a tentative result. No Spark: the tick of its driver, logs and states on disk with fsync. A clock that is "
    "moved by hand lets the bound run out. Measured are real time and CPU from when the missing tuples are there "
    "until all results are stable, the best round of several. Claims are checked with the CPU time, as the paper's "
    "formulas count processing; the real time has the waits for the disk in it, too. With redo the fork works on a "
    "private view of the state, so the stable state is still there. With undo the fork takes the state over, and the "
    "stable state is recovered from the log: the library has no stream markers. Two operators in series share the "
    "keys, so together they have the same state. The paper's states are up to 4,000 tuples; ours are up to 200,000, "
    "because differences between smaller ones are lost in the noise."
)

FIGURE_12 = Figure(
    "dpc-fig12",
    "Figure 12: correcting with redo and with undo",
    "checkpoint/redo and undo/redo over states of up to 4,000 tuples (left), failures of 5,000 to 45,000 tuples "
    "(middle), and the CPU of a checkpoint, of the copy of its state and of stream markers (right). Also two operators "
    "in series.",
    "the time grows linearly with the state and with the failure. Undo takes longer: it makes the state anew from "
    "tuples, where checkpoint/redo copies it. Two operators in series double the tuples and increase the slopes. "
    "Checkpoints need more CPU than stream markers, but both can wait until a failure begins.",
    _SETTING + " The failure has 3,000 tentative tuples where the state varies, and the state 100 tuples where the "
    "failure varies.",
    _panels,
    (
        Claim(
            "The time to correct with checkpoint/redo grows linearly with the state",
            lambda data: _grows_with_state(data, "redo"),
            refuted_by=_told(correcting_ms=lambda *_: 20.0),
            shown_by=_told(),
            surpassed=_redo_hardly_grows,
            why_not="Redo copies no state back: the fork worked on a private view, so the stable state is still there.",
        ),
        Claim(
            "The time to correct with undo/redo grows linearly with the state",
            lambda data: _grows_with_state(data, "undo"),
            refuted_by=_told(correcting_ms=lambda *_: 20.0),
            shown_by=_told(),
        ),
        Claim(
            "Undo takes longer than redo, because it has to make the state anew",
            lambda data: _undo_is_slower(data, "state", 1.5),
            refuted_by=_told(correcting_ms=lambda _, __, state, ___: 10 + state / 1e3),
            shown_by=_told(),
        ),
        Claim(
            "The time to correct grows linearly with the failure, with both",
            _grows_with_failure,
            refuted_by=_told(correcting_ms=lambda *_: 20.0),
            shown_by=_told(),
        ),
        Claim(
            "Undo takes longer than redo with a small state, too, whatever the failure",
            lambda data: _undo_is_slower(data, "failure", 1.02),
            refuted_by=_told(correcting_ms=lambda _, __, ___, tentative: 10 + tentative / 1e3),
            shown_by=_told(),
        ),
        Claim(
            "Two operators in series double the tuples to correct: the slope over the failure doubles",
            _series_doubles,
            refuted_by=_told(correcting_ms=lambda _, many, __, tentative: 10 * many + tentative / 1e3),
            shown_by=_told(),
        ),
        Claim(
            "Checkpoint/redo needs more CPU than undo while the failure lasts, and more of it the larger the state",
            _redo_costs_cpu,
            refuted_by=_told(guessing_ms=lambda *_: 20.0),
            shown_by=_told(),
        ),
    ),
)


# ---------------------------------------------------------------------- table 2


def _model(data: Data, way: str) -> dict[str, float]:
    """Returns Table 2's formula fitted to all points of one way: P in ms, the others in µs a tuple, and R².

    Tuples of the failure count once an operator, as λ counts all input and intermediate streams; the missing ones are
    taken in, too, so they are one and a half times the tentative ones.
    """
    own = [row for row in data["rows"] if row["way"] == way]
    again = np.array([1.5 * row["tentative"] * row["operators"] for row in own])
    columns = np.stack([[row["operators"] for row in own], [row["state"] for row in own], again], axis=1).astype(float)
    ms = np.array([row["correcting_ms"] for row in own])
    found, *_ = np.linalg.lstsq(columns, ms, rcond=None)
    residue = float(((ms - columns @ found) ** 2).sum())
    spread = float(((ms - ms.mean()) ** 2).sum())
    fixed, state, failure = (float(one) for one in found)
    return {"p_ms": fixed, "state_us": state * 1e3, "failure_us": failure * 1e3, "r2": 1 - residue / spread}


def _memory(data: Data, way: str) -> float:
    """Returns the bytes of a tuple of the state on disk while the fork guesses."""
    slope, _, _ = fit(_points(data, "state", way, "state_mb"))
    return slope * 1e6


def _table(data: Data) -> list[list[str]]:
    found = [["", "Delay_new: P + state + failure", "fitted to CPU times", "R²", "CPU before the correction", "memory"]]
    formulas = {"redo": "P + S p_copy + D λ p_proc", "undo": "P + S (p_comp + p_proc) + D λ (p_comp + p_proc)"}
    for way, formula in formulas.items():
        own = _model(data, way)
        cpu_us, _, _ = fit([(x, ms * 1e3) for x, ms in _points(data, "state", way, "guessing_ms")])
        found.append(
            [
                f"{_PAPER[way]} ({way})",
                formula,
                f"{own['p_ms']:.1f} ms an operator + S {own['state_us']:.3f} µs + D λ {own['failure_us']:.3f} µs",
                f"{own['r2']:.2f}",
                f"S {cpu_us:.3f} µs",
                f"S {_memory(data, way):.0f} bytes",
            ]
        )
    return found


def _explains(data: Data) -> bool:
    return all(_model(data, way)["r2"] >= 0.85 for way in WAYS)


def _rebuilding_costs_more(data: Data) -> bool:
    """Returns whether a tuple of the state costs undo at least twice what it costs redo."""
    redo, undo = (_model(data, way)["state_us"] for way in ("redo", "undo"))
    return undo >= 2 * max(redo, 0.0) and undo > 0


def _failure_costs_alike(data: Data) -> bool:
    """Returns whether a tuple of the failure costs undo at least what it costs redo, and less than twice as much."""
    redo, undo = (_model(data, way)["failure_us"] for way in ("redo", "undo"))
    return 0.9 * redo <= undo <= 2 * redo


def _undo_needs_more_memory(data: Data) -> bool:
    return _memory(data, "undo") > _memory(data, "redo")


TABLE_2 = Figure(
    "dpc-table2",
    "Table 2: what correcting costs, as formulas",
    "an analysis: the delay of checkpoint/redo is P + S p_copy + (D + 0.5 l) λ p_proc, that of undo/redo "
    "P + S (p_comp + p_proc) + (D + 0.5 l) λ (p_comp + p_proc). S is the state, D λ the tuples of the failure on all "
    "streams, l the time between checkpoints, P the normal delay. The paper checks it with Figure 12.",
    "checkpoint/redo performs better, the more the larger the state. Its memory is S + (l + D) λ_in, that of undo "
    "S + (l + D) λ_stateful, which is more.",
    "the CPU times of Figure 12, with the formulas fitted to them by least squares. l is 0: the fork begins with "
    "the state that the last step has left, so there is no checkpoint to be late.",
    lambda _: (),
    (
        Claim(
            "Delays are a sum of parts in proportion to the state and to the tuples of the failure (R² of 0.85)",
            _explains,
            refuted_by=_told(
                correcting_ms=lambda _, __, state, tentative: 10 + 50 * (state > 60_000) + (tentative % 7_000) / 100
            ),
            shown_by=_told(),
        ),
        Claim(
            "A tuple of the state costs undo more: it is processed again where redo copies it",
            _rebuilding_costs_more,
            refuted_by=_told(
                correcting_ms=lambda _, many, state, tentative: 10 * many + (state + tentative * many) / 1e3
            ),
            shown_by=_told(),
        ),
        Claim(
            "A tuple of the failure costs undo as much as redo, and p_comp",
            _failure_costs_alike,
            refuted_by=_told(
                correcting_ms=lambda way, many, state, tentative: (
                    10 * many + state / 1e3 + tentative * many * (3 if way == "undo" else 1) / 1e3
                )
            ),
            shown_by=_told(),
        ),
        Claim(
            "Undo needs more memory than checkpoint/redo",
            _undo_needs_more_memory,
            refuted_by=_told(state_mb=lambda way, _, state, __: (2 if way == "redo" else 1) * state / 1e4),
            shown_by=_told(),
            surpassed=lambda data: _memory(data, "undo") < _memory(data, "redo"),
            why_not="The tuples to process again are in the input's log in any case, so neither way keeps any. Redo "
            "keeps the stable state beside the fork's, undo has one state alone.",
        ),
    ),
    table=_table,
)

EXPERIMENT = Experiment("dpc-reconciling", "dpc", measure, (FIGURE_12, TABLE_2))
