"""The rule for saving in plain Python: which windows get a footprint at the end of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from strandline.operators.operator import Limits
from tests.specification.plain_slow_windows import PlainSlowWindows

Row = dict[str, Any]


class _Window(Protocol):
    opened: int
    output: int
    input_end: int | None


W = TypeVar("W", bound=_Window)


def saved_as_asked(
    still_open: Sequence[W],
    every: Sequence[W],
    slow: PlainSlowWindows,
    oldest_window: Callable[[], W | None],
    footprint: Callable[[W, int], Row],
    position: int,
    input_end: int,
    limits: Limits,
) -> tuple[list[Row], list[Row]]:
    """Returns footprints of the windows that opened and stay open, then of the oldest ones, as the limits ask.

    `every` are all open windows in the order of their opening, `footprint` saves one at an output offset.
    """
    begin = position
    new = [window for window in still_open if window.output < 0]
    opened = [footprint(window, position + i) for i, window in enumerate(still_open)]
    position += len(opened)
    checked: list[Row] = []

    def leave(window: W) -> None:
        checked.append(footprint(window, position + len(checked)))

    def save_oldest() -> None:
        while len(checked) < limits.budget:
            oldest, end = oldest_window(), position + len(checked)
            if oldest is None or oldest.input_end is None or oldest.output >= begin:
                break
            extent, replay = end - oldest.output, input_end - oldest.input_end
            cost = extent * limits.extent_cost + replay * limits.replay_cost
            if extent <= limits.extent and replay <= limits.replay and cost <= limits.cost:
                break
            leave(oldest)

    save_oldest()
    slow.save(every, new, limits, len(checked), leave)
    save_oldest()  # of a longer output
    return opened, checked
