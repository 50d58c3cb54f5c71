"""A plot of lines over numbers, as SVG."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

Line = Sequence[tuple[float, float]]
_WIDTH, _HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 170, 40, 50
_COLOURS = ("#1f6f8b", "#c8553d", "#588157", "#8d6a9f", "#b8860b", "#555555")
_GREY = "#bbbbbb"


def line_plot(title: str, x: str, y: str, lines: Mapping[str, Line], limit: float | None = None) -> str:
    """The lines by their names, over axes called `x` and `y` that begin at 0; `limit` is drawn across.

    >>> line_plot("delays", "s", "s", {"process": [(1, 2), (2, 3)]}).count("<circle")
    2
    """
    points = [point for line in lines.values() for point in line]
    right = _round_up(max((at for at, _ in points), default=1.0))
    top = _round_up(max([value for _, value in points] + ([limit] if limit else []), default=1.0))

    def place(at: float, value: float) -> tuple[float, float]:
        width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
        return _LEFT + at / right * width, _HEIGHT - _BOTTOM - value / top * height

    parts = [_axes(title, x, y, right, top)]
    if limit is not None:
        _, height = place(0, limit)
        parts.append(_line([(_LEFT, height), (_WIDTH - _RIGHT, height)], _GREY, dashes="6 4"))
        parts.append(_text(_LEFT + 6, height - 5, "the bound"))  # the names of the lines are on the right
    for number, (name, line) in enumerate(lines.items()):
        colour, dashes = _COLOURS[number % len(_COLOURS)], "" if number % 2 == 0 else "3 3"
        placed = [place(*point) for point in sorted(line)]
        parts.append(_line(placed, colour, dashes))
        parts += [f'<circle cx="{at:.1f}" cy="{up:.1f}" r="3" fill="{colour}"/>' for at, up in placed]
        row = _TOP + 20 * number
        parts.append(_line([(_WIDTH - _RIGHT + 12, row), (_WIDTH - _RIGHT + 36, row)], colour, dashes))
        parts.append(_text(_WIDTH - _RIGHT + 42, row + 4, name))
    style = 'font-family="sans-serif" font-size="12" role="img"'
    size = f'width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    background = f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{background}{"".join(parts)}</svg>\n'


def _axes(title: str, x: str, y: str, right: float, top: float) -> str:
    bottom, end = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = [_text(_LEFT, 22, title, size=14)]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        at, up = _LEFT + share * (end - _LEFT), bottom - share * (bottom - _TOP)
        parts.append(_line([(_LEFT, up), (end, up)], "#eeeeee"))
        parts.append(_text(_LEFT - 8, up + 4, _number(share * top), anchor="end"))
        parts.append(_text(at, bottom + 18, _number(share * right), anchor="middle"))
    parts.append(_line([(_LEFT, _TOP), (_LEFT, bottom), (end, bottom)], "#333333"))
    parts.append(_text((_LEFT + end) / 2, _HEIGHT - 12, x, anchor="middle"))
    turned = f'transform="rotate(-90 16 {(_TOP + bottom) / 2})"'
    parts.append(_text(16, (_TOP + bottom) / 2, y, anchor="middle", more=turned))
    return "".join(parts)


def _line(points: Line, colour: str, dashes: str = "") -> str:
    placed = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<polyline points="{placed}" fill="none" stroke="{colour}" stroke-width="1.6"{dashed}/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, more: str = "") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f"<text {place} {more}>{html.escape(text)}</text>"


def _number(value: float) -> str:
    """A number for an axis, never with an exponent.

    >>> _number(30000.0), _number(0.04)
    ('30,000', '0.04')
    """
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.4g}"


def _round_up(value: float) -> float:
    """A number that is as large and can be divided by four in few digits; 1 if it is 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10) if step * power >= value * 0.9999)
