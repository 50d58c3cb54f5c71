"""CEC Figures 8 and 9: response time, extent and load time with 10 ms (CI) of every 25 to 250 ms (CP) for G-checks.

Time is what the operator really takes: each operator has a clock that moves by the seconds of its own steps, so that
several of them can take in the same batches in turns, each as fast as it can.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import strandline as sl
from benchmarks.averages import Ids, Items
from benchmarks.batch_cost import NEVER
from benchmarks.harness import say
from benchmarks.papers.cec.contender import ITEMS, Contender, Recovered, require_same_results
from benchmarks.papers.figure import Claim, Data, Experiment, Figure, Panel, Size
from strandline.log.storage.local_storage import LocalStorage

INTERVAL_MS = 10
PERIODS_MS = (25, 50, 100, 250)
NATIVE, OPENINGS = "none", "G-opens only"
NAMES = (*map(str, PERIODS_MS), OPENINGS, NATIVE)


@dataclass(frozen=True)
class _Size:
    items: int
    batch: int
    batches: int
    moments: int
    """The number of recoveries, in the last third of the run."""
    rounds: int


SIZES: dict[Size, _Size] = {
    "tiny": _Size(1_000, 500, 12, 1, 1),
    "small": _Size(ITEMS, 25_000, 140, 3, 2),
    "full": _Size(ITEMS, 25_000, 500, 10, 4),
}


def policies() -> dict[str, sl.Policy]:
    """Returns the policies by the period; those of the paper ask for more than any budget allows."""
    found = {str(p): sl.cec(extent="1x", interval=f"{INTERVAL_MS} ms", period=f"{p} ms") for p in PERIODS_MS}
    return {**found, OPENINGS: NEVER, NATIVE: sl.none()}


def measure(size: Size, folder: Path) -> Data:
    """Returns for each period how long windows were open, and what a recovery would have had to read."""
    sizes = SIZES[size]
    rounds = [_round(sizes, folder / str(turn), turn) for turn in range(sizes.rounds)]
    # A noisy moment of the machine counts in one round, for the operator that it hit.
    found = {name: min((one[name] for one in rounds), key=lambda row: row["response_s"]) for name in NAMES}
    for name in NAMES:
        found[name]["response_s_rounds"] = [one[name]["response_s"] for one in rounds]
    return found


@dataclass
class _Run:
    """What one operator did, batch by batch."""

    contender: Contender
    ends_s: list[float] = field(default_factory=list)
    """The time on its clock at which each batch was published."""
    responses_s: list[float] = field(default_factory=list)
    """The mean time from opening to closing of the windows that each batch closed."""
    extents: list[int] = field(default_factory=list)
    checks: list[int] = field(default_factory=list)
    checks_s: list[float] = field(default_factory=list)
    recoveries: list[Recovered] = field(default_factory=list)

    def step(self, tuples: int) -> None:
        """Takes in a batch, and moves the clock by what that took."""
        offset = self.contender.operator.log.state.ends[0]
        began = time.perf_counter()
        done = self.contender.step(tuples)
        seconds = time.perf_counter() - began
        self.contender.clock.advance(seconds)
        self.ends_s.append((self.ends_s[-1] if self.ends_s else 0) + seconds)
        self.extents.append(done.standing.extent)
        self.checks.append(done.checked)
        self.checks_s.append(done.footprint_s)
        opened: Ids = self.contender.results_since(offset).column("window_start").to_numpy() // tuples
        waited = self.ends_s[-1] - np.asarray(self.ends_s)[opened]
        self.responses_s.append(float(waited.mean()) if len(waited) else 0.0)


def _round(size: _Size, folder: Path, turn: int) -> dict[str, dict[str, Any]]:
    rng, items = np.random.default_rng(1), Items(LocalStorage(folder / "items", durability="os"))
    runs = [_Run(Contender(name.replace(" ", "-"), items, folder, policy)) for name, policy in policies().items()]
    settled = size.batches // 2
    crashes = set(np.linspace(2 * size.batches // 3, size.batches - 1, size.moments).astype(int).tolist())
    for number in range(size.batches):
        items.append(rng.integers(0, size.items, size.batch), rng.random(size.batch))
        for i in range(len(runs)):
            one = runs[(i + number + turn) % len(runs)]
            one.step(size.batch)
            if number in crashes and one is not runs[-1]:
                one.recoveries.append(one.contender.recovered(2))
        if number % 20 == 0:
            say(f"checkpoint period: round {turn + 1}, batch {number} of {size.batches}")
    require_same_results([one.contender for one in runs])
    return {name: _row(one, settled) for name, one in zip(NAMES, runs, strict=True)}


def _row(run: _Run, settled: int) -> dict[str, Any]:
    """Returns what counts of a run: means of its second half, and how values went over time."""
    took_s = run.ends_s[-1] - run.ends_s[settled - 1]
    apart = max(1, len(run.ends_s) // 70)
    return {
        "response_s": statistics.mean(run.responses_s[settled:]),
        "extent": statistics.mean(run.extents[settled:]),
        "checks_part": sum(run.checks_s[settled:]) / took_s,
        "g_checks_per_s": sum(run.checks[settled:]) / took_s,
        "load_s": statistics.mean([r.load_s for r in run.recoveries] or [0.0]),
        "replayed": statistics.mean([r.replayed for r in run.recoveries] or [0]),
        "responses": [[t, r] for t, r in list(zip(run.ends_s, run.responses_s, strict=True))[::apart]],
        "extents": [[t, e] for t, e in list(zip(run.ends_s, run.extents, strict=True))[::apart]],
    }


# ---------------------------------------------------------------------- figures

PAPER_RESPONSE = {"25": 32.5, "50": 21.5, "100": 18.5, "250": 16.5, NATIVE: 16.5}
PAPER_LOAD = {"25": 2.0, "250": 5.0}


def _label(name: str) -> str:
    return f"CP = {name} ms" if name.isdigit() else name


def _values(data: Data, names: Sequence[str], value: str) -> dict[str, float]:
    return {_label(name): float(data[name][value]) for name in names}


def _response_panels(data: Data) -> list[Panel]:
    drawn = (*map(str, PERIODS_MS), NATIVE)
    in_paper = {_label(name): PAPER_RESPONSE[name] / PAPER_RESPONSE[NATIVE] for name in drawn}
    ours = {_label(name): data[name]["response_s"] / data[NATIVE]["response_s"] for name in drawn}
    return [
        Panel(
            "Response time, from the opening of a window to its closing",
            "time of the operator, s",
            "s",
            ours={_label(name): [(t, r) for t, r in data[name]["responses"]] for name in drawn},
        ),
        Panel(
            "Mean response time",
            "",
            "s",
            bars={"Strandline": _values(data, drawn, "response_s")},
            paper_bars={"": {_label(name): PAPER_RESPONSE[name] for name in drawn}},
            own_axis=True,
        ),
        Panel("The same, of no checkpoints", "", "times", bars={"Strandline": ours}, paper_bars={"": in_paper}),
        Panel(
            "Time that goes into G-checks",
            "CP, ms",
            "% of all time",
            ours={
                "as the operator counts it": [(p, 100 * data[str(p)]["checks_part"]) for p in PERIODS_MS],
                "by the response time": [(p, 100 * (1 - 1 / _of_none(data, str(p)))) for p in PERIODS_MS],
                "CI / CP": [(p, 100 * INTERVAL_MS / p) for p in PERIODS_MS],
            },
        ),
    ]


def _extent_panels(data: Data) -> list[Panel]:
    drawn = (*map(str, PERIODS_MS), OPENINGS)
    return [
        Panel(
            "Extent",
            "time of the operator, s",
            "tuples",
            ours={_label(name): [(t, e) for t, e in data[name]["extents"]] for name in drawn},
        ),
        Panel(
            "Mean extent",
            "CP, ms",
            "tuples",
            ours={"Strandline": [(p, data[str(p)]["extent"]) for p in PERIODS_MS]},
            limit=(OPENINGS, data[OPENINGS]["extent"]),
        ),
        Panel(
            "Time to load the eventual checkpoint",
            "CP, ms",
            "s",
            ours={"Strandline": [(p, data[str(p)]["load_s"]) for p in PERIODS_MS]},
            paper={"": [(int(p), s) for p, s in PAPER_LOAD.items()]},
            own_axis=True,
        ),
        Panel(
            "Replayed input",
            "CP, ms",
            "tuples",
            ours={"Strandline": [(p, data[str(p)]["replayed"]) for p in PERIODS_MS]},
        ),
    ]


def _table(data: Data) -> list[list[str]]:
    rows = [["CP", "response", "of no checkpoints", "time in G-checks", "G-checks/s", "extent", "load", "replayed"]]
    for name in NAMES:
        row, saves = data[name], name != NATIVE
        rows.append(
            [
                _label(name),
                f"{row['response_s']:.3f} s",
                f"{row['response_s'] / data[NATIVE]['response_s']:.2f}",
                f"{100 * row['checks_part']:.1f} %",
                f"{row['g_checks_per_s']:,.0f}",
                f"{row['extent']:,.0f}" if saves else "",
                f"{1000 * row['load_s']:.0f} ms" if saves else "",
                f"{row['replayed']:,.0f}" if saves else "",
            ]
        )
    return rows


def _example(**changed: Sequence[float]) -> Data:
    """Returns the paper's values, completed where its text has none, with some of them changed."""
    rows: dict[str, Sequence[float]] = {
        "response_s": (32.5, 21.5, 18.5, 16.6, 16.5, 16.5),
        "extent": (110_000, 130_000, 150_000, 190_000, 500_000, 0),
        "load_s": (2.0, 3.0, 4.0, 5.0, 27, 0),
        "checks_part": (0.4, 0.2, 0.1, 0.04, 0, 0),
        **changed,
    }
    return {name: {value: values[i] for value, values in rows.items()} for i, name in enumerate(NAMES)}


def _of_none(data: Data, name: str) -> float:
    return float(data[name]["response_s"]) / float(data[NATIVE]["response_s"])


_SETTING = (
    "Averages over windows of 10 tuples of 100,000 items. Q is the number of open windows, which cannot be met, so "
    "that there is always a window to save. CI is 10 ms, CP is 25, 50, 100 and 250 ms. "
)
_OURS = (
    'The same windows and items under cec(extent="1x", interval="10 ms", period=…), steps on real logs without '
    "Spark, in batches of 25,000 tuples, as fast as each operator can. Each operator has a clock that moves by the "
    "seconds its own steps took, so the budget of G-checks is spent and earned in measured seconds. A window opens and "
    "closes at the end of the batch that does it, when that is published. The paper's operator takes in fewer "
    "tuples a second, so its response times are longer, and have an axis of their own. "
)

FIGURE_8 = Figure(
    name="cec-fig8",
    title="Figure 8: response time under checkpoint periods",
    setting=_SETTING + "The response time of a window is the time from its opening to its closing.",
    found="16.5 s without checkpoints; 18.5, 21.5 and 32.5 s with CP = 100, 50 and 25 ms (two of these are printed as "
    "ms), which reflects the part of the time that goes into checkpoints; with 250 ms about as without.",
    ours=_OURS + "“None” is none(), which writes no G-opens either.",
    panels=_response_panels,
    table=_table,
    claims=[
        Claim(
            "The shorter the period, the longer the response time.",
            holds=lambda data: (
                _of_none(data, "25") > 1.05 * _of_none(data, "50")
                and _of_none(data, "50") > 1.02 * _of_none(data, "100")
                and _of_none(data, "100") > 1.02
            ),
            shown_by=_example(),
            refuted_by=_example(response_s=(21.6, 21.5, 18.5, 16.6, 16.5, 16.5)),
        ),
        Claim(
            "It reflects the part of the time that goes into checkpoints: none / (1 - CI / CP), to a quarter.",
            holds=lambda data: (
                all(0.8 < _of_none(data, str(p)) * (1 - INTERVAL_MS / p) < 1.25 for p in PERIODS_MS if p > 25)
                and 0.75 < _of_none(data, "25") * (1 - INTERVAL_MS / 25) < 1.25
            ),
            shown_by=_example(),
            refuted_by=_example(response_s=(32.5, 31.0, 18.5, 16.6, 16.5, 16.5)),
            surpassed=lambda data: all(_of_none(data, str(p)) * (1 - INTERVAL_MS / p) < 1.25 for p in PERIODS_MS),
            why_not="The interval counts the choosing, copying and writing of footprints. Footprints also change the "
            "records of their windows, which the step leaves to the next one: that takes about as long again, and the "
            "interval does not count it. A batch saves each window once, so the shortest period may not use its "
            "interval up.",
        ),
        Claim(
            "With CP = 250 ms the response time is about that without checkpoints.",
            holds=lambda data: _of_none(data, "250") < 1.15,
            shown_by=_example(),
            refuted_by=_example(response_s=(32.5, 21.5, 20.0, 19.5, 16.5, 16.5)),
        ),
    ],
)

FIGURE_9 = Figure(
    name="cec-fig9",
    title="Figure 9: extent under checkpoint periods",
    setting=_SETTING,
    found="Longer periods give longer extents. By the load times of Figures 6 and 7, a recovery loads the "
    "checkpoint in 2 s with CP = 25 ms and in 5 s with 250 ms. As other parts of a recovery take longer, the "
    "paper prefers the most relaxed period.",
    ours=_OURS + "Load times are measured, by recoveries from the files at some moments. “G-opens only” is the longest "
    "extent there can be.",
    panels=_extent_panels,
    table=_table,
    claims=[
        Claim(
            "The longer the period, the longer the extent.",
            holds=lambda data: all(
                data[str(b)]["extent"] > 1.03 * data[str(a)]["extent"] for a, b in pairwise(PERIODS_MS)
            ),
            shown_by=_example(),
            refuted_by=_example(extent=(110_000, 150_000, 130_000, 190_000, 500_000, 0)),
        ),
        Claim(
            "Even the longest period keeps the extent far below that of G-opens alone.",
            holds=lambda data: data["250"]["extent"] < 0.75 * data[OPENINGS]["extent"],
            shown_by=_example(),
            refuted_by=_example(extent=(110_000, 130_000, 150_000, 450_000, 500_000, 0)),
        ),
        Claim(
            "The time to load the checkpoint grows with the period.",
            holds=lambda data: data["250"]["load_s"] > 1.2 * data["25"]["load_s"],
            shown_by=_example(),
            refuted_by=_example(load_s=(2.0, 2.0, 2.1, 2.1, 27, 0)),
        ),
    ],
)

EXPERIMENT = Experiment("cec-period", "cec", measure, (FIGURE_8, FIGURE_9))
