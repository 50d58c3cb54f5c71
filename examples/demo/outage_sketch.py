"""An outage for the terminal: inputs, state, stable and tentative results, undo, over time, in 80 columns."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from examples.demo.outage_story import OutageStory
from strandline.cli.terminal import QUIET, bars

COLUMNS = 56
_LABEL = 14
_STATES = {"STABLE": "·", "UP_FAILURE": "x", "STABILIZATION": "~"}
_STYLES = {"tentative": "yellow", "undo": "magenta", "stable": "green", "state": QUIET}
LEGEND = "· STABLE   x UP_FAILURE   ~ STABILIZATION   U undo   R undo, all corrected"


def sketch(story: OutageStory, columns: int = COLUMNS) -> list[Text]:
    """Draws the story in lines of at most 80 characters, which need no colour to be understood."""
    scale = columns / max(story.seconds, 1e-9)
    lines: list[tuple[str, str]] = []
    for name, arrivals in story.inputs.items():
        lines += _bars(name, ((a.seconds, a.tuples) for a in arrivals), scale, columns, height=1)
    lines.append(("state", _states(story, scale, columns)))
    lines += _bars("stable", ((m.seconds, m.stable) for m in story.moments), scale, columns, height=2)
    lines += _bars("tentative", ((m.seconds, m.tentative) for m in story.moments), scale, columns, height=2)
    lines.append(("undo", _marks(story, scale, columns)))
    lines.append(("", _axis(story.seconds, scale, columns)))
    return [*(_line(*line) for line in lines), Text(f"   {LEGEND}", style=QUIET)]


def _line(label: str, cells: str) -> Text:
    style = _STYLES.get(label, "")
    return Text.assemble(f"   {label:<{_LABEL}}", (cells, style))


def _bars(
    name: str, values: Iterable[tuple[float, int]], scale: float, columns: int, height: int
) -> list[tuple[str, str]]:
    """Draws a chart of the numbers in each column."""
    sums = [0] * columns
    for seconds, number in values:
        sums[_column(seconds, scale, columns)] += number
    chart = bars(sums, height)
    return [(name if row == len(chart) - 1 else "", line) for row, line in enumerate(chart)]


def _states(story: OutageStory, scale: float, columns: int) -> str:
    """Draws one mark a column; a shorter state has a mark, too."""
    cells = [" "] * columns
    for first, end, state in story.states:
        for column in range(_column(first, scale, columns), max(_column(end, scale, columns), 0) + 1):
            cells[column] = _STATES[state]
    for first, _, state in story.states:
        if state == "STABILIZATION":
            cells[_column(first, scale, columns)] = _STATES[state]
    return "".join(cells)


def _marks(story: OutageStory, scale: float, columns: int) -> str:
    cells = [" "] * columns
    for moment in story.moments:
        if moment.undo or moment.rec_done:
            cells[_column(moment.seconds, scale, columns)] = "R" if moment.rec_done else "U"
    return "".join(cells)


def _axis(seconds: float, scale: float, columns: int) -> str:
    """Draws an axis of seconds, every five or ten or …"""
    step = next(step for step in (1, 5, 10, 30, 60, 300, 3600) if step * scale >= 6 or step == 3600)
    cells = [" "] * (columns + 8)
    for at in range(0, int(seconds) + 1, step):
        text = f"{at} s"
        column = int(at * scale)
        if column + len(text) <= columns:
            cells[column : column + len(text)] = text
    return "".join(cells).rstrip()


def _column(seconds: float, scale: float, columns: int) -> int:
    return min(columns - 1, max(0, int(seconds * scale)))
