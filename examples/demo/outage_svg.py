"""An outage as an image: when tuples came, in which state the operator was, and which results it had by when."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from examples.demo.outage_story import OutageStory, Told

_LEFT, _WIDTH, _LANE, _HEIGHT = 96, 640, 26, 300
_STABLE, _TENTATIVE, _UNDO, _GREY = "#1b7f4b", "#c77700", "#a3278f", "#667"
_BANDS = {"STABLE": "#ffffff", "UP_FAILURE": "#fff0d6", "STABILIZATION": "#e6ecff"}
_STYLE = 'font-family="sans-serif" font-size="12"'


class _Frame(NamedTuple):
    """Where seconds lie in the image."""

    story: OutageStory
    top: float
    """Of the results; the inputs stand above."""

    def x(self, seconds: float) -> float:
        return _LEFT + _WIDTH * min(1.0, max(0.0, seconds / max(self.story.seconds, 1e-9)))

    def y(self, time_s: float) -> float:
        return self.top + _HEIGHT * (1 - min(1.0, max(0.0, time_s / max(self.story.seconds, 1e-9))))


def svg(story: OutageStory, results: list[Told], title: str) -> str:
    """Draws a lane for each input; below it results, by their publication and the end of their window."""
    frame = _Frame(story, 44 + _LANE * len(story.inputs) + 34)
    parts = [*_lanes(frame), *_bands(frame), *_axes(frame), *_results(frame, results), *_undos(frame)]
    height = frame.top + _HEIGHT + 70
    legend = _legend(frame.top + _HEIGHT + 56)
    heading = f'<text x="{_LEFT}" y="24" font-size="15">{escape(title)}</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 24}" height="{height:.0f}" {_STYLE}>'
        f'<rect width="100%" height="100%" fill="#fff"/>{heading}{"".join(parts)}{legend}</svg>\n'
    )


def _lanes(frame: _Frame) -> list[str]:
    """Draws a stroke for each commit of an input."""
    parts = []
    for lane, (name, arrivals) in enumerate(frame.story.inputs.items()):
        y = 44 + _LANE * lane
        parts.append(f'<text x="12" y="{y + 15}">{escape(name)}</text>')
        parts.append(_line_of(_LEFT, y + 20, _LEFT + _WIDTH, y + 20, "#ccd5e0"))
        parts += [_line_of(frame.x(a.seconds), y + 4, frame.x(a.seconds), y + 20, "#4c78a8", 2) for a in arrivals]
    return parts


def _bands(frame: _Frame) -> list[str]:
    """Draws the states behind the results, with their names where there is room."""
    parts = []
    for first, end, state in frame.story.states:
        x, width = frame.x(first), frame.x(end) - frame.x(first)
        size = f'width="{max(width, 1.5):.1f}" height="{_HEIGHT}"'
        parts.append(f'<rect x="{x:.1f}" y="{frame.top}" {size} fill="{_BANDS[state]}"/>')
        if width > 8 * len(state):
            parts.append(f'<text x="{x + 4:.1f}" y="{frame.top - 6}" fill="{_GREY}" font-size="11">{state}</text>')
    return parts


def _axes(frame: _Frame) -> list[str]:
    bottom, story = frame.top + _HEIGHT, frame.story
    parts = [f'<rect x="{_LEFT}" y="{frame.top}" width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="#888"/>']
    parts.append(_line_of(_LEFT, bottom, _LEFT + _WIDTH, frame.top, "#ccd5e0", 1, "4 4"))  # where results are at once
    step = next((s for s in (1, 2, 5, 10, 30, 60, 300) if story.seconds / s <= 10), 3600)
    for at in range(0, int(story.seconds) + 1, step):
        parts.append(f'<text x="{frame.x(at):.1f}" y="{bottom + 16}" text-anchor="middle">{at}</text>')
        parts.append(f'<text x="{_LEFT - 8}" y="{frame.y(at) + 4:.1f}" text-anchor="end">{at}</text>')
    middle = _LEFT + _WIDTH / 2
    parts.append(f'<text x="{middle}" y="{bottom + 34}" text-anchor="middle">seconds: when a result came</text>')
    turned = f'transform="rotate(-90 24 {frame.top + _HEIGHT / 2})"'
    parts.append(
        f'<text x="24" y="{frame.top + _HEIGHT / 2}" text-anchor="middle" {turned}>seconds: end of its window</text>'
    )
    return parts


def _results(frame: _Frame, results: list[Told]) -> list[str]:
    """Draws stable results filled, tentative ones hollow."""
    look = {False: f'fill="{_STABLE}"', True: f'fill="none" stroke="{_TENTATIVE}" stroke-width="1.5"'}
    return [
        f'<circle cx="{frame.x(one.seconds):.1f}" cy="{frame.y(one.time_s):.1f}" r="3.5" {look[one.is_tentative]}/>'
        for one in sorted(results, key=lambda one: one.is_tentative, reverse=True)
    ]


def _undos(frame: _Frame) -> list[str]:
    """Draws a line where tentative results became void."""
    parts = []
    for moment in frame.story.moments:
        if moment.undo:
            x = frame.x(moment.seconds)
            parts.append(_line_of(x, frame.top, x, frame.top + _HEIGHT, _UNDO, 1.5, "6 3"))
    return parts


def _legend(y: float) -> str:
    texts = (
        (_LEFT, f'<circle cx="{_LEFT - 8}" cy="{y - 4}" r="3.5" fill="{_STABLE}"/>', "stable"),
        (
            _LEFT + 90,
            f'<circle cx="{_LEFT + 82}" cy="{y - 4}" r="3.5" fill="none" stroke="{_TENTATIVE}" stroke-width="1.5"/>',
            "tentative",
        ),
        (_LEFT + 200, _line_of(_LEFT + 192, y - 10, _LEFT + 192, y + 2, _UNDO, 1.5, "6 3"), "undo"),
        (_LEFT + 280, _line_of(_LEFT + 256, y - 4, _LEFT + 274, y - 4, "#9ab", 1, "4 4"), "a result at once"),
    )
    return "".join(f'{mark}<text x="{x}" y="{y}">{text}</text>' for x, mark, text in texts)


def _line_of(x: float, y: float, x2: float, y2: float, colour: str, width: float = 1, dashes: str = "") -> str:
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    ends = f'x1="{x:.1f}" y1="{y:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width}"{dash}/>'
