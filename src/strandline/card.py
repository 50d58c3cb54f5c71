"""A card for notebooks: what a thing is, a few facts, a small picture. Every text in it is escaped."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

_WIDTH = 240
_ROW = 14
_BAR = "#4c78a8"
_LANE = "#e8edf3"
_STYLE = "border:1px solid #ccd5e0;border-radius:4px;padding:6px 10px;display:inline-block;font-family:sans-serif"


def card(title: str, facts: Mapping[str, object], picture: str = "") -> str:
    """Returns HTML with the title, a row for each fact that is not None, and a picture of `bars` or `spans`."""
    rows = "".join(
        f'<tr><td style="color:#667;text-align:left;padding:0 12px 0 0">{html.escape(str(name))}</td>'
        f'<td style="text-align:left;padding:0">{html.escape(str(value))}</td></tr>'
        for name, value in facts.items()
        if value is not None
    )
    return f'<div style="{_STYLE}"><b>{html.escape(title)}</b><table style="border:0">{rows}</table>{picture}</div>'


def bars(values: Mapping[str, float], limit: int = 16) -> str:
    """Returns a picture with a bar for each of the first `limit` values, the largest as long as there is room."""
    shown = list(values.items())[:limit]
    most = max((value for _, value in shown), default=0) or 1
    rows = []
    for row, (name, value) in enumerate(shown):
        y = row * _ROW
        width = max(0.0, min(1.0, value / most)) * _WIDTH
        rows.append(
            f'<rect x="0" y="{y + 2}" width="{_WIDTH}" height="{_ROW - 4}" fill="{_LANE}"/>'
            f'<rect x="0" y="{y + 2}" width="{width:.1f}" height="{_ROW - 4}" fill="{_BAR}"/>'
            f'<text x="{_WIDTH + 6}" y="{y + 11}" font-size="11">{html.escape(f"{name}: {value:,g}")}</text>'
        )
    return _svg("".join(rows), len(shown)) if shown else ""


def spans(lanes: Sequence[tuple[float, float]]) -> str:
    """Returns a picture with a lane for each pair: a bar from the first to the second number, between 0 and 1."""
    rows = [
        f'<rect x="0" y="{row * _ROW + 2}" width="{_WIDTH}" height="{_ROW - 4}" fill="{_LANE}"/>'
        f'<rect x="{begin * _WIDTH:.1f}" y="{row * _ROW + 2}" width="{max(1.0, (end - begin) * _WIDTH):.1f}" '
        f'height="{_ROW - 4}" fill="{_BAR}"/>'
        for row, (begin, end) in enumerate(lanes)
    ]
    return _svg("".join(rows), len(lanes)) if lanes else ""


def _svg(content: str, rows: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH + 160}" height="{rows * _ROW}" role="img">'
        f"{content}</svg>"
    )
