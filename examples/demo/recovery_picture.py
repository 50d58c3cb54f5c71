"""The history of the demo, from the manifests alone, as text and as a picture."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strandline.cli.terminal import bars
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.log import Log


@dataclass(frozen=True, slots=True)
class CommitPoint:
    """The operator after one commit."""

    seconds: float
    """Since the first one."""
    tuples: int
    """Input tuples taken in so far."""
    open_windows: int
    extent: int
    replay: int
    run: str


def history(log: Log) -> list[CommitPoint]:
    """Returns the kept commits of an operator's stream, in order."""
    found: list[CommitPoint] = []
    for m in log.after(log.kept - 1):
        if not isinstance(m, AppendCommit) or not m.standings:
            continue
        seconds = m.published_us / 1e6
        found.append(
            CommitPoint(
                seconds,
                sum(s.input for s in m.standings),
                sum(s.open for s in m.standings),
                sum(s.extent for s in m.standings),
                sum(s.replay for s in m.standings),
                m.writer.run if m.writer else "",
            )
        )
    return [CommitPoint(x.seconds - found[0].seconds, *_rest(x)) for x in found]


def _rest(x: CommitPoint) -> tuple[int, int, int, int, str]:
    return x.tuples, x.open_windows, x.extent, x.replay, x.run


def crash(moments: Sequence[CommitPoint]) -> int | None:
    """Returns the index of the first commit of the second run."""
    return next((i for i in range(1, len(moments)) if moments[i].run != moments[i - 1].run), None)


def sketch(moments: Sequence[CommitPoint], columns: int = 50) -> list[str]:
    """Draws extent, replay and throughput over the run, for the terminal; a ✕ marks the crash."""
    last = moments[-1].seconds or 1.0
    at = [min(columns - 1, int(m.seconds / last * columns)) for m in moments]
    where = crash(moments)
    lines: list[str] = []
    throughput = [0] * columns
    for i in range(1, len(moments)):
        throughput[at[i]] += moments[i].tuples - moments[i - 1].tuples
    series = {
        "extent q": _held([m.extent for m in moments], at, columns, where),
        "replay u": _held([m.replay for m in moments], at, columns, where),
        "tuples/s": [round(t * columns / last) for t in throughput],
    }
    for name, values in series.items():
        for number, line in enumerate(bars(values, 2)):
            lines.append(f"   {name if number else '':<9}{line}  {f'max {max(values):,}' if number else ''}")
    if where is not None:
        gap = (at[where - 1] + at[where]) // 2
        lines.append(f"   {'':<9}{' ' * gap}✕ SIGKILL")
    return lines


def _held(values: Sequence[int], at: Sequence[int], columns: int, where: int | None) -> list[int]:
    """Returns the last value of each column, nothing while the operator was dead."""
    found = [0] * columns
    for i, value in enumerate(values):
        end = at[i + 1] if i + 1 < len(values) and i + 1 != where else at[i] + 1
        for column in range(at[i], max(end, at[i] + 1)):
            found[column] = value
    return found


def draw(moments: Sequence[CommitPoint], file: Path, recovery_s: float) -> Path | None:
    """Draws the same as a picture, its labels outside of the curves; returns None if there is no matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    seconds = [m.seconds for m in moments]
    where = crash(moments)
    figure, axes = pyplot.subplots(3, 1, sharex=True, figsize=(9, 7), layout="constrained")
    figure.suptitle("An operator around SIGKILL: what recovery reads, what it replays, how fast tuples go through")
    pieces = [slice(0, where), slice(where, None)] if where else [slice(None)]
    rates = [0.0] + [(b.tuples - a.tuples) / max(b.seconds - a.seconds, 1e-3) for a, b in itertools.pairwise(moments)]
    if where:
        rates[where] = float("nan")
    drawn: list[tuple[str, list[float]]] = [
        ("extent q (tuples)", [float(m.extent) for m in moments]),
        ("replay u (tuples)", [float(m.replay) for m in moments]),
        ("tuples/s", rates),
    ]
    targets = [2.0 * m.open_windows for m in moments]
    for piece in pieces:
        (target,) = axes[0].plot(seconds[piece], targets[piece], color="gray", linestyle=":")
    labels: dict[str, Any] = {"Q = 2 x open windows": target}
    for axis, (label, values) in zip(axes, drawn, strict=True):
        for piece in pieces:
            _line(axis, seconds[piece], values[piece])
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        if where:
            gap = f"{seconds[where] - seconds[where - 1]:.0f} s: Python and Spark start, recovery {recovery_s:.2f} s"
            labels["SIGKILL"] = axis.axvline(seconds[where - 1], color="tab:red", linewidth=1.5)
            labels[gap] = axis.axvspan(seconds[where - 1], seconds[where], color="tab:red", alpha=0.12)
    figure.legend(labels.values(), labels.keys(), loc="outside lower center", ncols=len(labels))
    axes[-1].set_xlabel("seconds since the first commit")
    figure.savefig(file, dpi=110)
    pyplot.close(figure)
    return file


def _line(axis: Any, x: Sequence[float], y: Sequence[float]) -> None:
    axis.plot(x, y, drawstyle="steps-post", color="tab:blue", marker=".", markersize=3)
