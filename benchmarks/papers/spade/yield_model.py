"""SPADE, figure 7: how far the predictions of a yield model are off after a kill, under three policies.

Model and wafers are those of `examples/09_yield_prediction.py`. The real policies, footprints and recoveries run
without Spark, in `sl.testing`.
"""

from __future__ import annotations

import random
import runpy
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import strandline as sl
from benchmarks.harness import rounds, say, stopwatch
from benchmarks.papers.figure import Claim, Data, Experiment, Figure, Line, Panel, Size

_EXAMPLE: Final = Path(__file__).parents[3] / "examples" / "09_yield_prediction.py"
_SCHEMA: Final = "tool long, wafer long, at timestamp, {}, actual double"
_POLICIES: Final = {"none": sl.none(), "partial": sl.partial("1 s"), "whole": sl.instant("1 s")}
"""No checkpoint, the last checkpoint without a replay, and the last checkpoint with one."""
_NAMES: Final = {"none": "no checkpoint", "partial": "checkpoint", "whole": "checkpoint and replay"}
_A_SECOND: Final = 5
"""Wafers: the paper's 9,000 in its half an hour."""
_KILLS: Final = {"tiny": 2, "small": 40, "full": 40}
_WAFERS: Final = {"tiny": 600, "small": 9_000, "full": 9_000}
_SECONDS: Final = {"tiny": 10, "small": 120, "full": 600}
_ROUNDS: Final = {"tiny": 1, "small": 3, "full": 5}
_LEAST: Final = 1e-3
"""The left edge of the distributions: an error of 0 has no place on a logarithmic axis."""
_PAPER_RMSE: Final = {"partial": 4.80, "none": 7.79}
_PAPER_WORST: Final = {"partial": 6.0, "none": 52.0}

Floats = npt.NDArray[np.float64]


def measure(size: Size, folder: Path) -> Data:
    """Kills the model once in each run, at random moments, and compares what it predicts from then on."""
    example = runpy.run_path(str(_EXAMPLE))
    wafers = example["wafers"]().slice(0, _WAFERS[size])
    expected = _run(example, sl.none(), wafers, [wafers.num_rows])[0]
    chance = random.Random(example["SEED"])
    moments = [chance.randrange(_A_SECOND, wafers.num_rows - 1) for _ in range(_KILLS[size])]
    errors: dict[str, list[Floats]] = {name: [] for name in _POLICIES}
    lost: dict[str, list[int]] = {name: [] for name in _POLICIES}
    for moment in moments:
        saved = moment - chance.randrange(_A_SECOND)  # the last checkpoint is at most a second old
        for name, policy in _POLICIES.items():
            found, missing = _run(example, policy, wafers, [saved, moment, wafers.num_rows])
            errors[name].append(np.abs(found - expected)[moment:])
            lost[name].append(missing)
    if any(np.any(each) for each in errors["whole"]) or any(lost["whole"]):
        raise RuntimeError("a model that replays what it lost has predicted something else")
    shown = int(np.argsort(moments)[len(moments) // 2])
    data = {
        "kills": len(moments),
        "rmse": {name: float(np.sqrt(np.mean(np.concatenate(each) ** 2))) for name, each in errors.items()},
        "worst": {name: float(np.median([e.max() for e in each])) for name, each in errors.items()},
        "lost": {name: float(np.mean(each)) for name, each in lost.items()},
        "shown_after": moments[shown],
        "cdf": {name: _distribution(each[shown]) for name, each in errors.items()},
        "busy": _busy(example, wafers, _SECONDS[size], _ROUNDS[size]),
    }
    say(f"yield model, {len(moments)} kills: RMSE {data['rmse']}, median of the worst errors {data['worst']}")
    return data


def _run(example: Mapping[str, Any], policy: sl.Policy, wafers: pa.Table, ends: Sequence[int]) -> tuple[Floats, int]:
    """Runs the model up to each of these wafers, a step each, and kills it before the last step if there are several.

    The first step leaves a checkpoint. The second comes within the second after it and leaves none.
    Returns what the model predicted for each wafer, and how many wafers it lost.
    """
    feed, model = _model(example, policy)
    first, last = 0, len(ends) - 1
    for number, end in enumerate(ends):
        if number == last > 0:
            model.crash()
            feed.clock.advance("3 s")  # the paper's 2 to 5 s until the operator is back
        if end > first:
            feed.add(wafers.slice(first, end - first))
        model.step()
        first = end
    results, found = model.results, np.zeros(wafers.num_rows)
    found[results.column("wafer").to_numpy()] = results.column("predicted").to_numpy()
    return found, sum(model.losses().column("tuples").to_pylist())


def _model(example: Mapping[str, Any], policy: sl.Policy) -> tuple[Any, Any]:
    """Returns a stream of wafers and a model over it."""
    sensors = ", ".join(f"s{i} double" for i in range(example["SENSORS"]))
    feed = sl.testing.stream(_SCHEMA.format(sensors), key="tool", time="at", partitions=1)
    return feed, sl.testing.run(feed.apply(example["YieldModel"](rate=0.05)).checkpoint(policy))


def _busy(example: Mapping[str, Any], wafers: pa.Table, seconds: int, repeat: int) -> dict[str, float]:
    """Returns the part of a second of the fab in which a model works, at a step and a checkpoint each second."""

    def once(policy: sl.Policy) -> float:
        feed, model = _model(example, policy)
        taken = 0.0
        for second in range(seconds):
            feed.add(wafers.slice(second * _A_SECOND, _A_SECOND))
            feed.clock.advance("1 s")
            taken += stopwatch(model.step)
        return taken / seconds

    found = rounds({name: partial(once, policy) for name, policy in _POLICIES.items()}, repeat)
    return {name: min(each) for name, each in found.items()}


def _distribution(errors: Floats) -> Line:
    """Returns which part of the errors is at most so large, in steps that a picture can show."""
    at = np.geomspace(_LEAST, max(100.0, float(errors.max())), 120)
    parts = np.searchsorted(np.sort(errors), at, side="right") / len(errors)
    return [(float(x), float(y)) for x, y in zip(at, parts, strict=True)]


def _panels(data: Data) -> list[Panel]:
    return [
        Panel(
            f"prediction errors after a kill at wafer {data['shown_after']:,}",
            "error, points (logarithmic)",
            "part of the predictions",
            ours={_NAMES[name]: line for name, line in data["cdf"].items()},
            paper={_NAMES[name]: [(worst, 1.0)] for name, worst in _PAPER_WORST.items()},
            log_x=True,
        ),
        Panel(
            f"root mean square error over {data['kills']} kills",
            "",
            "points",
            bars={"ours": {_NAMES[name]: rmse for name, rmse in data["rmse"].items()}},
            paper_bars={"": {_NAMES[name]: rmse for name, rmse in _PAPER_RMSE.items()}},
        ),
    ]


def _table(data: Data) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("", "RMSE", "paper", "median of the worst errors", "paper, of one run", "wafers lost", "work in a second")
    ]
    for name in _POLICIES:
        paper = f"{_PAPER_RMSE[name]:.2f}" if name in _PAPER_RMSE else ""
        worst = f"{_PAPER_WORST[name]:.0f}" if name in _PAPER_WORST else ""
        ours = f"{data['rmse'][name]:.2f}", f"{data['worst'][name]:.1f}"
        lost, busy = f"{data['lost'][name]:,.1f}", f"{1000 * data['busy'][name]:.1f} ms"
        rows.append((_NAMES[name], ours[0], paper, ours[1], worst, lost, busy))
    return rows


_THEIRS: Final = {"rmse": _PAPER_RMSE, "worst": _PAPER_WORST, "busy": {"none": 0.1, "partial": 0.1}}
"""The paper says that checkpoints do not change the rate, not how busy its operator is."""

_FIGURE = Figure(
    "spade-fig7",
    "Figure 7: errors of the yield model after a kill",
    "a yield model of a chip factory over 9,000 wafers in half an hour, killed once at a random moment, 40 times with "
    "a checkpoint each second and 40 times without. The operator is back after 2 to 5 s, and tuples of that time are "
    "discarded. An error is the difference to the predictions of a run without a kill, from the kill on.",
    "The root mean square error is 4.80 with checkpoints and 7.79 without. In one run the errors reach 6 points with "
    "and 52 points without. Checkpoints of the operator do not change its rate.",
    "A linear model that learns on line (example 09) over 9,000 made wafers, in sl.testing: real policies, checkpoints "
    "and recoveries, no Spark. Partial is the paper's checkpoint: it loses at most the last second of wafers. "
    "Whole is sl.instant, which the paper does not have: it replays them too. Tuples that come while the operator is "
    "down wait in their stream, so none of them is lost here. Other wafers and another model: only the order of "
    "the errors can be compared, not their size.",
    _panels,
    [
        Claim(
            "The error is smaller with checkpoints than without",
            lambda data: data["rmse"]["partial"] < 0.9 * data["rmse"]["none"],
            refuted_by={"rmse": {"partial": 7.5, "none": 7.79}},
            shown_by=_THEIRS,
            why_not="see the table",
        ),
        Claim(
            "Errors have a longer tail without checkpoints: the worst is several times as far off",
            lambda data: data["worst"]["none"] > 3 * data["worst"]["partial"],
            refuted_by={"worst": {"partial": 6.0, "none": 12.0}},
            shown_by=_THEIRS,
            why_not="see the table",
        ),
        Claim(
            "Checkpoints each second do not change the rate: they take less than 1 % of the time",
            lambda data: data["busy"]["partial"] < 1 and data["busy"]["partial"] - data["busy"]["none"] < 0.01,
            refuted_by={"busy": {"none": 0.1, "partial": 0.15}},
            shown_by=_THEIRS,
            why_not="see the table",
        ),
    ],
    _table,
)

EXPERIMENT = Experiment("spade-yield", "spade", measure, [_FIGURE])
