"""Bars for the terminal, an eighth of a character high where need be."""

from __future__ import annotations

from collections.abc import Sequence

_EIGHTHS = " ▁▂▃▄▅▆▇█"


def bars(values: Sequence[int], height: int) -> list[str]:
    """Draws a bar chart: lines, highest first, one character a value.

    A value that is not zero is always seen, however small it is beside the others.

    >>> bars([0, 1, 4, 8], height=2)
    ['   █', ' ▂██']
    """
    highest = max(values, default=0)
    levels = [0 if v <= 0 else max(1, round(v * height * 8 / highest)) for v in values]
    return ["".join(_EIGHTHS[min(8, max(0, level - 8 * row))] for level in levels) for row in range(height - 1, -1, -1)]
