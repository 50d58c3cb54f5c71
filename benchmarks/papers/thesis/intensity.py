"""Figure 4.4: G-checks of slow windows, one every 2 ms to one every 100 ms; and the thesis's example of a recovery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

import strandline as sl
from benchmarks.averages import Averages, Items
from benchmarks.harness import say
from benchmarks.papers.figure import Claim, Data, Experiment, Figure, Panel, Size
from benchmarks.papers.thesis.windows import OPENINGS_ONLY, Contender, measured
from strandline.inputs.one_stream import OneStream
from strandline.recovery.recover import Stand, recover
from strandline.testing.memory_storage import MemoryStorage

SPANS_MS = (2, 10, 20, 100)
_STEP = {"tiny": 200, "small": 5_000, "full": 5_000}
"""Tuples of a step."""
_STEPS_A_MS = 2
_SCALE = {"tiny": 2, "small": 50, "full": 50}
_STEPS = {"tiny": 30, "small": 450, "full": 2_000}
_ROUNDS = {"tiny": 1, "small": 2, "full": 7}
_WITHOUT = "none"
_EXAMPLE_ITEMS, _EXAMPLE_WINDOW, _EXAMPLE_SEEN = 100, 10_000, 0.9
_TUPLE_BYTES = 100


def measure(size: Size, folder: Path) -> Data:
    """Runs mixed windows on disk with G-opens only, then with G-checks as well; and the example of 4.3."""
    step = _STEP[size]
    contenders = {_WITHOUT: Contender(OPENINGS_ONLY, "os")}
    for ms in SPANS_MS:
        span = ms * _STEPS_A_MS * step
        contenders[str(ms)] = Contender(sl.cec(slow=span, every=span), "os")
    found = measured(contenders, "mixed", _SCALE[size], step, _STEPS[size], _ROUNDS[size], folder / "mixed")
    if not found[str(SPANS_MS[0])].g_check:
        raise AssertionError("no G-check was written: nothing was measured")
    say(f"intensity: { ({name: (round(one.goodput), one.g_check) for name, one in found.items()}) }")
    return {"spans": {name: one.to_json() for name, one in found.items()}, "example": _example_recovery(folder)}


def _example_recovery(folder: Path) -> dict[str, int]:
    """Returns what a recovery reads of 100 windows of 10,000 tuples that have seen 90 % of them, with G-opens only."""
    items = Items(MemoryStorage())
    operator = Averages(items, MemoryStorage(), folder / "cache", _EXAMPLE_WINDOW, OPENINGS_ONLY)
    many = round(_EXAMPLE_ITEMS * _EXAMPLE_WINDOW * _EXAMPLE_SEEN)
    ids = np.tile(np.arange(_EXAMPLE_ITEMS), many // _EXAMPLE_ITEMS)
    for part in np.split(ids, 30):
        items.append(part, np.ones(len(part)))
        operator.step(len(part))
    found, done = recover(operator.log, OneStream(operator.plan, items.log), operator.plan, Stand.of(operator.log, 0))
    if found.open_windows != _EXAMPLE_ITEMS:
        raise AssertionError(f"{found.open_windows} of {_EXAMPLE_ITEMS} windows were recovered")
    return {"read": done.extent, "replayed": done.replayed}


# ---------------------------------------------------------------------- the figure


def _panels(data: Data) -> Sequence[Panel]:
    spans = data["spans"]

    def line(value: str) -> list[tuple[float, float]]:
        return [(ms, spans[str(ms)][value]) for ms in SPANS_MS]

    per_window = [(float(ms), spans[str(ms)]["g_check"] / spans[str(ms)]["results"]) for ms in SPANS_MS]
    paper = [(2, 718_874 / 524_288), (20, 35_000 / 524_288), (100, 76 / 524_288)]
    x = "H = T, ms in the time of the tuples"

    def rates(value: str) -> dict[str, list[tuple[float, float]]]:
        without = float(spans[_WITHOUT][value])
        return {"ours": line(value), "G-opens only": [(SPANS_MS[0], without), (SPANS_MS[-1], without)]}

    return [
        Panel("Goodput", x, "results a second", ours=rates("goodput"), log_x=True),
        Panel("Real rate", x, "results and footprints a second", ours=rates("real"), log_x=True),
        Panel(
            "G-checks",
            x,
            "G-checks for each window that closes",
            ours={"ours": [(ms, max(value, 1e-6)) for ms, value in per_window]},
            paper={"": paper},
            log_x=True,
            log_y=True,
        ),
    ]


def _table(data: Data) -> Sequence[Sequence[str]]:
    paper = {"2": "718,874", "20": "35,000", "100": "76"}
    rows: list[tuple[str, ...]] = [
        ("H = T, ms", "results a second", "with footprints", "results", "G-opens", "G-checks", "paper's G-checks")
    ]
    for name, one in data["spans"].items():
        rows.append(
            (
                "no G-checks" if name == _WITHOUT else name,
                *(f"{one[key]:,}" for key in ("goodput", "real", "results", "g_open", "g_check")),
                paper.get(name, ""),
            )
        )
    return rows


def _goodput(data: Data, ms: int | str) -> float:
    return float(data["spans"][str(ms)]["goodput"])


def _checks(data: Data, ms: int) -> float:
    """Returns the number of G-checks for each result."""
    one: Mapping[str, float] = data["spans"][str(ms)]
    return one["g_check"] / one["results"]


def _values(goodput: Sequence[float], checks: Sequence[int], without: float = 100, replayed: int = 900_000) -> Data:
    windows = 524_288
    spans = {
        str(ms): {"goodput": rate, "g_check": many, "results": windows, "g_open": windows}
        for ms, rate, many in zip(SPANS_MS, goodput, checks, strict=True)
    }
    example = {"read": _EXAMPLE_ITEMS, "replayed": replayed}
    return {"spans": {_WITHOUT: {"goodput": without}, **spans}, "example": example}


_PAPER = _values([70, 85, 97, 99], [718_874, 100_000, 35_000, 76])
"""The text has the G-checks of 2, 20 and 100 ms, and of rates how they compare."""

CLAIMS = (
    Claim(
        "the longer the interval, the fewer G-checks",
        holds=lambda data: all(_checks(data, short) > 1.5 * _checks(data, long) for short, long in pairwise(SPANS_MS)),
        shown_by=_PAPER,
        refuted_by=_values([70, 85, 97, 99], [718_874, 35_000, 35_000, 35_000]),
    ),
    Claim(
        "at 2 ms fast windows are saved, too: there are more G-checks than windows",
        holds=lambda data: _checks(data, 2) > 1,
        shown_by=_PAPER,
        refuted_by=_values([70, 85, 97, 99], [300_000, 100_000, 35_000, 76]),
    ),
    Claim(
        "at 20 ms G-checks are a small part beside results and G-opens (35,000 to twice 524,288)",
        holds=lambda data: _checks(data, 20) <= 0.2,
        shown_by=_PAPER,
        refuted_by=_values([70, 85, 97, 99], [718_874, 600_000, 500_000, 76]),
    ),
    Claim(
        "at 100 ms next to no window is saved: only very slow ones are",
        holds=lambda data: 0 < _checks(data, 100) <= 0.002,
        shown_by=_PAPER,
        refuted_by=_values([70, 85, 97, 99], [718_874, 100_000, 35_000, 10_000]),
    ),
    Claim(
        "2 ms has the lowest goodput",
        holds=lambda data: _goodput(data, 2) < 0.99 * min(_goodput(data, ms) for ms in SPANS_MS[1:]),
        shown_by=_PAPER,
        refuted_by=_values([100, 100, 97, 99], [718_874, 100_000, 35_000, 76]),
        why_not="a step writes its footprints in the one block of its results, so that at 2 ms it writes more bytes "
        "but no more often: what a step waits for is the disk.",
    ),
    Claim(
        "20 ms and 100 ms have about the same goodput",
        holds=lambda data: abs(_goodput(data, 20) / _goodput(data, 100) - 1) <= 0.1,
        shown_by=_PAPER,
        refuted_by=_values([70, 75, 80, 99], [718_874, 100_000, 35_000, 76]),
    ),
    Claim(
        "at 100 ms the goodput is that of G-opens only",
        holds=lambda data: _goodput(data, 100) >= 0.9 * _goodput(data, _WITHOUT),
        shown_by=_PAPER,
        refuted_by=_values([50, 60, 70, 71], [718_874, 100_000, 35_000, 76]),
    ),
    Claim(
        "100 windows of 10,000 tuples of which 90 % came are recovered from 100 footprints (10 KB) and 90 MB of input",
        holds=lambda data: (
            data["example"]["read"] * _TUPLE_BYTES <= 10_000
            and 0.9 * 90e6 <= data["example"]["replayed"] * _TUPLE_BYTES <= 90e6
        ),
        shown_by=_PAPER,
        refuted_by=_values([70, 85, 97, 99], [718_874, 100_000, 35_000, 76], replayed=1_000_000),
    ),
)

FIGURE = Figure(
    "thesis-fig4.4",
    "G-checks of slow windows: how often",
    "the mixed windows of Figure 4.3 with persistence. A window that is open for longer than H gets a G-check every T; "
    "H = T = 2, 10, 20 and 100 ms in the time of the tuples.",
    "At 2 ms there are 718,874 G-checks for 524,288 windows, and the lowest rate; at 20 ms 35,000 and at 100 ms 76, "
    "both at about the rate of G-opens alone. A recovery with G-opens only of 100 windows of 10,000 tuples, 90 % of "
    "which came, reads 10 KB and replays 90 MB.",
    "steps without Spark over logs on disk; sl.cec(slow=H, every=T). The thesis's operator does not wait for its "
    'I/Os, so these logs leave them to the operating system (durability="os"): else each step waits for the disk, '
    "and that hides what G-checks cost. A step has 5,000 tuples and is half a millisecond in their time; "
    "there are 50 times as many items, of which a tenth come in a hundredth of the tuples. The paper does not say "
    "how many tuples came in a millisecond: here windows of items that come often last for 5 ms, those of the others "
    "for 50 ms. So G-checks are compared for each window. The best round of each step counts, without the time "
    "in which another program had the core. The example runs as it is.",
    _panels,
    CLAIMS,
    table=_table,
)

EXPERIMENT = Experiment("thesis-intensity", "thesis", measure, (FIGURE,))
