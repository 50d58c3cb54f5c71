"""A graph of streams as an image: a column for each level, from left to right, and arrows that go around boxes."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise

from strandline.cli.terminal import folded

_WIDTH, _BETWEEN, _GAP, _MARGIN, _LINE = 232, 76, 20, 24, 17
_NAME_CHARS, _CHARS = 25, 31
_SWEEPS = 4
_INK, _GREY, _LIVE, _WARN, _BAD = "#223", "#667", "#1b7f4b", "#c77700", "#b3261e"
_LOOKS = {
    "source": ("#eef4fb", "#4c78a8", "", 18),
    "operator": ("#ffffff", "#445", "", 4),
    "elsewhere": ("#f4f4f6", "#9aa", "", 4),
    "missing": ("#ffffff", _WARN, "6 4", 4),
    "damaged": ("#fdf0ef", _BAD, "", 4),
}
"""Of each kind of box: its colour, that of its border, dashes, how round it is."""
_DASHES = ' stroke-dasharray="5 4"'
_STYLE = 'font-family="sans-serif" font-size="12"'
_HEAD = (
    '<defs><marker id="to" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    f'<path d="M0 0 L8 4 L0 8 z" fill="{_GREY}"/></marker></defs>'
)


@dataclass(frozen=True, slots=True)
class Box:
    """A stream, as it is drawn."""

    level: int
    name: str
    what: str
    figures: tuple[str, ...] = ()
    look: str = "operator"
    state: str | None = None
    problem: str | None = None
    is_live: bool = False

    @property
    def lines(self) -> list[tuple[str, str]]:
        """The lines in it, with their attributes."""
        figures = ", ".join(figure.replace(" ", "\u00a0") for figure in self.figures)  # no line ends within one
        paint = _LIVE if self.state == "STABLE" else _WARN
        alarm = _BAD if self.look == "damaged" else _WARN
        return [
            *((line, f'font-size="13" font-weight="bold" fill="{_INK}"') for line in _names(self.name)),
            *((line, f'fill="{_INK}"') for line in _wrapped(self.what, 2)),
            *((line, f'fill="{_GREY}"') for line in _wrapped(figures, 3)),
            *((line, f'fill="{paint}" font-weight="bold"') for line in _wrapped(self.state or "", 1)),
            *((line, f'fill="{alarm}"') for line in _wrapped(self.problem or "", 3)),
        ]


@dataclass(frozen=True, slots=True)
class Arrow:
    """From a stream to one that is made of it."""

    begin: str
    end: str
    is_dashed: bool = False
    is_circle: bool = False


@dataclass(slots=True)
class _Spot:
    """A box in its column, or the place in a column where an arrow passes by."""

    level: int
    height: float
    before: list[_Spot] = field(default_factory=list)
    behind: list[_Spot] = field(default_factory=list)
    y: float = 0.0

    @property
    def x(self) -> float:
        return _MARGIN + self.level * (_WIDTH + _BETWEEN)

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


def drawing(boxes: Mapping[str, Box], arrows: Sequence[Arrow]) -> str:
    """Returns the boxes, by the addresses of their streams, and the arrows between them as SVG."""
    spots = {url: _Spot(box.level, _LINE * len(box.lines) + 16) for url, box in boxes.items()}
    ways = {a: _way(spots[a.begin], spots[a.end]) for a in dict.fromkeys(arrows) if not a.is_circle}
    columns: dict[int, list[_Spot]] = {}
    for spot in [*spots.values(), *(spot for way in ways.values() for spot in way[1:-1])]:
        columns.setdefault(spot.level, []).append(spot)
    _arrange([columns[level] for level in sorted(columns)])
    bottom = max((spot.y + spot.height for spot in spots.values()), default=60)
    right = max((spot.x + _WIDTH for spot in spots.values()), default=320)
    parts = [_curve(arrow, way) for arrow, way in ways.items()]
    parts += [_back(spots[a.begin], spots[a.end]) for a in arrows if a.is_circle]
    parts += [_drawn(spots[url], box) for url, box in boxes.items()]
    if not boxes:
        parts.append(f'<text x="{_MARGIN}" y="40" fill="{_GREY}">there are no streams below this folder</text>')
    size = f'width="{right + _MARGIN:.0f}" height="{bottom + _MARGIN:.0f}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {_STYLE}><rect width="100%" height="100%" fill="#fff"/>'
        f"{_HEAD}{''.join(parts)}</svg>\n"
    )


# ---------------------------------------------------------------------- where things stand


def _way(begin: _Spot, end: _Spot) -> list[_Spot]:
    """Returns the spots that an arrow goes through: one in each column between its ends."""
    way = [begin, *(_Spot(level, 4) for level in range(begin.level + 1, end.level)), end]
    for one, other in pairwise(way):
        one.behind.append(other)
        other.before.append(one)
    return way


def _arrange(columns: Sequence[list[_Spot]]) -> None:
    """Puts spots near those that they are joined to, left and right in turns, without an overlap."""
    for column in columns:
        _stack(column)
    for sweep in range(_SWEEPS):
        is_forward = sweep % 2 == 0
        for column in columns if is_forward else reversed(columns):
            joined = {id(spot): (spot.before if is_forward else spot.behind) or [spot] for spot in column}
            wanted = {key: sum(other.middle for other in others) / len(others) for key, others in joined.items()}
            column.sort(key=lambda spot: wanted[id(spot)])
            _stack(column)
            shift = sum(wanted[id(spot)] - spot.middle for spot in column) / len(column)
            for spot in column:
                spot.y += shift
    top = min((spot.y for column in columns for spot in column), default=0.0)
    for spot in (spot for column in columns for spot in column):
        spot.y += _MARGIN - top


def _stack(column: Sequence[_Spot]) -> None:
    y = 0.0
    for spot in column:
        spot.y = y
        y += spot.height + _GAP


# ---------------------------------------------------------------------- what is drawn


def _curve(arrow: Arrow, way: Sequence[_Spot]) -> str:
    begin, end = way[0], way[-1]
    order = sorted(end.before, key=lambda spot: spot.middle)
    enters = end.y + end.height * (order.index(way[-2]) + 1) / (len(order) + 1)
    at = begin.middle
    steps = [f"M{begin.x + _WIDTH:.1f} {at:.1f}"]
    for spot in way[1:]:
        x, to = spot.x, enters if spot is end else spot.middle
        half = _BETWEEN / 2
        steps.append(f"C{x - half:.1f} {at:.1f} {x - half:.1f} {to:.1f} {x:.1f} {to:.1f}")
        if spot is not end:
            steps.append(f"H{x + _WIDTH:.1f}")
        at = to
    dashes = _DASHES if arrow.is_dashed else ""
    return (
        f'<path d="{" ".join(steps)}" fill="none" stroke="{_GREY}" stroke-width="1.3"{dashes} marker-end="url(#to)"/>'
    )


def _back(begin: _Spot, end: _Spot) -> str:
    """Draws an arrow to a box at its left, which closes a circle: below both."""
    low = max(begin.y + begin.height, end.y + end.height) + _GAP / 2
    x, x2 = begin.x + _WIDTH / 2, end.x + _WIDTH / 2
    path = f"M{x:.1f} {begin.y + begin.height:.1f} V{low:.1f} H{x2:.1f} V{end.y + end.height + 2:.1f}"
    return f'<path d="{path}" fill="none" stroke="{_BAD}"{_DASHES} marker-end="url(#to)"/>'


def _drawn(spot: _Spot, box: Box) -> str:
    fill, border, dashes, radius = _LOOKS[box.look]
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    full = "\n".join(filter(None, [box.name, box.what, ", ".join(box.figures), box.state, box.problem]))
    parts = [
        f"<g><title>{escape(full)}</title>",
        f'<rect x="{spot.x}" y="{spot.y:.1f}" width="{_WIDTH}" height="{spot.height}" rx="{radius}" fill="{fill}" '
        f'stroke="{border}" stroke-width="1.3"{dash}/>',
    ]
    if box.is_live:
        parts.append(f'<circle cx="{spot.x + _WIDTH - 14}" cy="{spot.y + 15:.1f}" r="4.5" fill="{_LIVE}"/>')
    for number, (line, attributes) in enumerate(box.lines):
        y = spot.y + 8 + _LINE * (number + 0.75)
        parts.append(f'<text x="{spot.x + 14}" y="{y:.1f}" {attributes}>{escape(line)}</text>')
    return "".join([*parts, "</g>"])


def _names(name: str) -> list[str]:
    lines = folded(name, _NAME_CHARS).splitlines()
    return _clipped([line[at : at + _NAME_CHARS] for line in lines for at in range(0, len(line), _NAME_CHARS)], 3)


def _wrapped(text: str, lines: int) -> list[str]:
    return _clipped(textwrap.wrap(text, _CHARS), lines)


def _clipped(lines: list[str], most: int) -> list[str]:
    return lines if len(lines) <= most else [*lines[: most - 1], f"{lines[most - 1][:-1]}…"]
