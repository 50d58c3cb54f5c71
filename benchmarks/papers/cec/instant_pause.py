"""CEC II.A: how long an operator stops for a checkpoint of its whole state, and how long for eventual checkpoints."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import strandline as sl
from benchmarks.averages import Items
from benchmarks.harness import say
from benchmarks.papers.cec.contender import Contender
from benchmarks.papers.figure import Claim, Data, Experiment, Figure, Panel, Size
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.append_commit import AppendCommit

INSTANT, CEC, NATIVE = "instant", "CEC", "none"
STEP_S = 0.1
"""The time between two batches, of a clock that the benchmark moves."""
EVERY = 5
"""Steps from one instant checkpoint to the next."""
_WINDOW = 1_000_000
"""Nothing closes."""
_FILL = 250_000


@dataclass(frozen=True)
class _Size:
    windows: tuple[int, ...]
    """Open windows, from the smallest state to the largest."""
    batch: int
    steps: int
    """Steps over each state."""


SIZES: dict[Size, _Size] = {
    "tiny": _Size((1_000, 4_000), 500, 6),
    "small": _Size((125_000, 250_000, 500_000, 1_000_000, 2_000_000), 10_000, 26),
    "full": _Size((125_000, 500_000, 2_000_000, 4_000_000, 8_000_000, 16_000_000), 10_000, 51),
}


def policies(batch: int) -> dict[str, sl.Policy]:
    """Returns the contenders: CEC is asked for more than its budget, 5 ms of every 100 ms, allows."""
    return {
        INSTANT: sl.instant(every=f"{round(1000 * STEP_S * EVERY)} ms"),
        CEC: sl.cec(replay=batch, interval="5 ms", period="100 ms"),
        NATIVE: sl.none(),
    }


def measure(size: Size, folder: Path) -> Data:
    """Returns the pauses of each policy over operators with more and more open windows."""
    sizes = SIZES[size]
    return {"states": [_state(sizes, many, folder / str(many)) for many in sizes.windows]}


@dataclass
class _Run:
    """What one policy did with the batches after its windows were opened."""

    contender: Contender
    seconds: list[float] = field(default_factory=list)
    footprint_s: list[float] = field(default_factory=list)
    footprints: list[int] = field(default_factory=list)


def _state(size: _Size, many: int, folder: Path) -> dict[str, Any]:
    """Opens so many windows, then measures steps over them, in turns."""
    rng, items = np.random.default_rng(1), Items(LocalStorage(folder / "items", durability="os"))
    runs = {
        name: _Run(Contender(name, items, folder, policy, _WINDOW)) for name, policy in policies(size.batch).items()
    }
    order = rng.permutation(many)
    for first in range(0, many, _FILL):
        ids = order[first : first + _FILL]
        items.append(ids, rng.random(len(ids)))
        for one in runs.values():
            one.contender.step(len(ids))  # the clock stands still: no instant checkpoint is due but the first
    names = list(runs)
    for number in range(size.steps):
        items.append(rng.integers(0, many, size.batch), rng.random(size.batch))
        for name in names[number % len(names) :] + names[: number % len(names)]:
            one = runs[name]
            one.contender.clock.advance(STEP_S)
            done = one.contender.step(size.batch)
            one.seconds.append(done.seconds)
            one.footprint_s.append(done.footprint_s)
            one.footprints.append(done.opened + done.checked)
    return _row(runs, many)


def _row(runs: dict[str, _Run], many: int) -> dict[str, Any]:
    instant, cec, native = (runs[name] for name in (INSTANT, CEC, NATIVE))
    due = [i for i, footprints in enumerate(instant.footprints) if footprints and i]  # the first step warms up
    if not due or not sum(cec.footprints) or any(instant.footprints[i] != many for i in due):
        raise RuntimeError(f"{many:,} windows: {instant.footprints} and {cec.footprints} footprints")
    bytes_ = _checkpoint_bytes(instant.contender)
    steps = {INSTANT: due, CEC: range(1, len(cec.seconds))}
    pauses = {name: [_pause(runs[name], native, i) for i in own] for name, own in steps.items()}
    found = {
        "windows": many,
        "state_mb": sum(array.nbytes for array in _arrays(instant.contender).values()) / 1e6,
        "checkpoint_mb": bytes_ / 1e6,
        "pause_s": {name: statistics.median(own) for name, own in pauses.items()},
        "longest_s": {name: max(own) for name, own in pauses.items()},
        "footprints": {name: statistics.mean(runs[name].footprints[1:]) for name in (INSTANT, CEC)},
        "seconds": {name: one.seconds for name, one in runs.items()},
    }
    say(f"instant checkpoints: {many:,} windows: {found['pause_s']}")
    return found


def _pause(run: _Run, native: _Run, step: int) -> float:
    """Returns how much longer a step took than the native one, or what its footprints took if that is more."""
    return max(run.seconds[step] - native.seconds[step], run.footprint_s[step])


def _arrays(contender: Contender) -> dict[str, Any]:
    """Returns the state that the last step has left on this machine."""
    operator = contender.operator
    arrays = operator.cache.open(operator.log.state.standings[0].attempt)
    if arrays is None:
        raise RuntimeError("the operator has left no state")
    found = dict(operator.plan.revived(arrays).image().arrays)
    operator.cache.close()
    return found


def _checkpoint_bytes(contender: Contender) -> int:
    """Returns the bytes of the last whole checkpoint in the log."""
    commits = (m for m in contender.operator.log.after(-1) if isinstance(m, AppendCommit))
    return max(sum(block.size_bytes for block in m.blocks) for m in commits)


# ---------------------------------------------------------------------- the figure


def _panels(data: Data) -> list[Panel]:
    states = data["states"]
    return [
        Panel(
            "Pause of a checkpoint",
            "state of the operator, MB",
            "s",
            ours={name: [(s["state_mb"], s["pause_s"][name]) for s in states] for name in (INSTANT, CEC)},
            paper={"instant, at 1 Gbit/s": [(4_000, 40)]},
            log_x=True,
            log_y=True,
        ),
        Panel(
            f"Steps over {states[-1]['windows']:,} open windows",
            "step",
            "s",
            ours={name: list(enumerate(states[-1]["seconds"][name]))[1:] for name in (INSTANT, CEC, NATIVE)},
        ),
    ]


def _table(data: Data) -> list[list[str]]:
    rows = [["open windows", "state", "checkpoint", "instant", "CEC, a step", "footprints of CEC, a step"]]
    for s in data["states"]:
        rows.append(
            [
                f"{s['windows']:,}",
                f"{s['state_mb']:,.0f} MB",
                f"{s['checkpoint_mb']:,.1f} MB",
                f"{1000 * s['pause_s'][INSTANT]:,.0f} ms",
                f"{1000 * s['pause_s'][CEC]:,.1f} ms",
                f"{s['footprints'][CEC]:,.0f}",
            ]
        )
    return rows


def _example(instant: Sequence[float], cec: Sequence[float]) -> Data:
    """Returns states of 1, 2 and 4 GB with these pauses."""
    return {
        "states": [
            {"state_mb": 1_000 * 2**i, "pause_s": {INSTANT: a, CEC: b}}
            for i, (a, b) in enumerate(zip(instant, cec, strict=True))
        ]
    }


def _ends(data: Data, name: str) -> tuple[float, float]:
    """Returns the pauses with the smallest and the largest state."""
    states = data["states"]
    return states[0]["pause_s"][name], states[-1]["pause_s"][name]


def _growth(data: Data) -> float:
    return float(data["states"][-1]["state_mb"]) / float(data["states"][0]["state_mb"])


FIGURE = Figure(
    name="cec-crb",
    title="Section II.A: the pause of instant checkpoints",
    setting="No measurement: the paper reckons that an instant checkpoint (CRB) of a state of 4 GB takes at least 40 s "
    "over a line of 1 Gbit/s, and that incremental ones do not help if changes are spread over most windows.",
    found="Instant checkpoints of a large state freeze an operator for long, and can be taken at intervals of tens of "
    "seconds at best. The time for eventual checkpoints is shorter, spread over a longer time, and adjustable.",
    ours="Operators with more and more open windows, and batches of 10,000 tuples that touch them at random, on real "
    "files without Spark. instant() saves the whole state at every fifth step. cec(replay=10_000, interval='5 ms', "
    "period='100 ms') is asked to replay no more than one batch, thus for a footprint of nearly every window, and may "
    "take 5 ms of the 100 ms between two steps. A pause is what a step takes longer than the step of none() over the "
    "same batch, or the time of its footprints if that is more; medians. A checkpoint is written to a local file, not "
    "over a network, and blocks are compressed. The state grows to what the time of a run allows; --size full takes "
    "16 million windows.",
    panels=_panels,
    table=_table,
    claims=[
        Claim(
            "The pause of an instant checkpoint grows with the state.",
            holds=lambda data: _ends(data, INSTANT)[1] > 0.4 * _growth(data) * _ends(data, INSTANT)[0],
            shown_by=_example((10, 20, 40), (0.01, 0.01, 0.01)),
            refuted_by=_example((10, 11, 12), (0.01, 0.01, 0.01)),
            why_not="What a checkpoint takes in any case is a good part of the smallest one's time.",
        ),
        Claim(
            "The pause of eventual checkpoints is what the budget says, whatever the size of the state.",
            holds=lambda data: _ends(data, CEC)[1] < max(0.4 * _growth(data) * _ends(data, CEC)[0], 0.02),
            shown_by=_example((10, 20, 40), (0.01, 0.01, 0.012)),
            refuted_by=_example((10, 20, 40), (0.01, 0.02, 0.04)),
        ),
        Claim(
            "With a large state it is a small part of the pause of an instant checkpoint.",
            holds=lambda data: _ends(data, CEC)[1] < 0.1 * _ends(data, INSTANT)[1],
            shown_by=_example((10, 20, 40), (0.01, 0.01, 0.01)),
            refuted_by=_example((10, 20, 40), (10, 10, 10)),
        ),
    ],
)

EXPERIMENT = Experiment("cec-instant", "cec", measure, (FIGURE,))
