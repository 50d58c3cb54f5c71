"""Draws figures as SVG with matplotlib: ours in colour, the paper's values in grey."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.papers.figure import Line, Panel
from strandline.errors import OptionError

_COLOURS = ("#1f6f8b", "#c8553d", "#588157", "#8d6a9f", "#b8860b", "#555555", "#2f4b7c", "#a05195")
_MARKERS = "osD^vPX*"
_GREY = "#9a9a9a"
_WIDTH, _HEIGHT, _COLUMNS = 5.2, 4.2, 2


def as_svg(panels: Sequence[Panel]) -> str:
    """Returns the panels side by side, two in a row."""
    pyplot = pyplot_or_error()
    rows = -(-len(panels) // _COLUMNS)
    columns = min(len(panels), _COLUMNS)
    drawing, axes = pyplot.subplots(rows, columns, figsize=(_WIDTH * columns, _HEIGHT * rows), squeeze=False)
    for number, ax in enumerate(axes.flat):
        if number < len(panels):
            _draw(ax, panels[number])
        else:
            ax.set_visible(False)
    drawing.tight_layout()
    found = io.StringIO()
    drawing.savefig(found, format="svg", metadata={"Date": None, "Creator": None})
    pyplot.close(drawing)
    # Without the XML head it can stand in a page; spaces at the ends of lines are none of ours.
    return re.sub(r"[ \t]+$", "", re.sub(r"^.*?(?=<svg)", "", found.getvalue(), flags=re.S), flags=re.M)


def pyplot_or_error() -> Any:
    """Returns matplotlib's pyplot; raises `OptionError` if it is not installed."""
    try:
        import matplotlib
    except ImportError:
        raise OptionError(
            "figures need the package matplotlib, which is not installed", todo="pip install 'strandline[pictures]'"
        ) from None
    matplotlib.use("Agg")
    # The same bytes each time, text as text.
    matplotlib.rcParams.update({"svg.hashsalt": "strandline", "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot

    return pyplot


def _draw(ax: Any, panel: Panel) -> None:
    ax.set_title(panel.title, fontsize=10)
    ax.set_xlabel(panel.x)
    ax.set_ylabel(panel.y)
    ax.grid(visible=True, color="#eeeeee")
    ax.set_axisbelow(True)
    theirs = ax.twinx() if panel.own_axis and (panel.paper or panel.paper_bars) else ax
    if panel.bars:
        _draw_bars(ax, theirs, panel.bars, panel.paper_bars)
    else:
        _draw_lines(theirs, panel.paper, is_paper=True)
        _draw_lines(ax, panel.ours, is_paper=False)
    if theirs is not ax:
        theirs.set_ylabel(f"{panel.y}, paper", color=_GREY)
        theirs.tick_params(axis="y", colors=_GREY)
        theirs.set_ylim(bottom=0)
    if panel.limit is not None:
        name, at = panel.limit
        ax.axhline(at, color="#333333", linestyle="--", linewidth=1, label=name)
    if panel.log_x:
        ax.set_xscale("log")
    if panel.log_y:
        ax.set_yscale("log")
    else:
        ax.set_ylim(bottom=min(0, ax.get_ylim()[0]))
    handles, labels = ax.get_legend_handles_labels()
    if theirs is not ax:
        more, names = theirs.get_legend_handles_labels()
        handles, labels = handles + more, labels + names
    if handles:
        # Below the axes: it never lies on what it explains.
        ax.legend(handles, labels, fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2)


def _draw_lines(ax: Any, lines: Mapping[str, Line], *, is_paper: bool) -> None:
    for number, (name, line) in enumerate(lines.items()):
        xs, ys = [x for x, _ in sorted(line)], [y for _, y in sorted(line)]
        marker = _MARKERS[number % len(_MARKERS)] if len(line) <= 40 else ""
        look = (
            {"color": _GREY, "linestyle": "--", "label": f"{name}, paper" if name else "paper"}
            if is_paper
            else {"color": _COLOURS[number % len(_COLOURS)], "label": name}
        )
        ax.plot(xs, ys, marker=marker, markersize=4, linewidth=1.4, **look)


def _draw_bars(
    ax: Any, theirs: Any, bars: Mapping[str, Mapping[str, float]], paper: Mapping[str, Mapping[str, float]]
) -> None:
    names = list(dict.fromkeys(name for group in bars.values() for name in group))
    many = len(bars) + len(paper)
    width = 0.8 / max(1, many)
    for number, (group, values) in enumerate([*bars.items(), *paper.items()]):
        is_paper = number >= len(bars)
        at = [i - 0.4 + (number + 0.5) * width for i, name in enumerate(names) if name in values]
        heights = [values[name] for name in names if name in values]
        label = f"{group}, paper" if is_paper and group else ("paper" if is_paper else group)
        shade = number - len(bars)
        colour = ("#c4c4c4", "#a8a8a8", "#8c8c8c", "#707070")[shade % 4] if is_paper else _COLOURS[number % 8]
        (theirs if is_paper else ax).bar(at, heights, width * 0.95, label=label, color=colour)
    ax.set_xticks(range(len(names)), names, fontsize=8)
