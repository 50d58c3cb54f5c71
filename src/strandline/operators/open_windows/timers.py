"""When windows end: a heap of (end, record), smallest end first. Timers of windows that have gone stay until then."""

# mypy: disable-error-code="call-overload,no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

from strandline.operators.kernels.kernel_arrays import Int64s
from strandline.operators.kernels.kernel_cache import njit
from strandline.operators.open_windows.arrays import State, Trace, touch_timer
from strandline.operators.open_windows.record import TIMERS as TIMER_COUNT


@njit(_nrt=False)
def push_timer(state: State, trace: Trace, end: int, slot: int) -> None:
    """Sets a timer for a record. There is room: the caller has looked."""
    timers = state.timers
    place = state.header[TIMER_COUNT]
    state.header[TIMER_COUNT] += 1
    while place > 0:
        parent = (place - 1) >> 1
        if timers[parent, 0] <= end:
            break
        timers[place, 0], timers[place, 1] = timers[parent, 0], timers[parent, 1]
        touch_timer(trace, place)
        place = parent
    timers[place, 0], timers[place, 1] = end, slot
    touch_timer(trace, place)


@njit(_nrt=False)
def pop_timer(state: State, trace: Trace) -> None:
    """Removes the timer with the smallest end. There is one: the caller has looked."""
    timers = state.timers
    state.header[TIMER_COUNT] -= 1
    length = state.header[TIMER_COUNT]
    if length == 0:
        return
    end, slot = timers[length, 0], timers[length, 1]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= length:
            break
        if child + 1 < length and timers[child + 1, 0] < timers[child, 0]:
            child += 1
        if timers[child, 0] >= end:
            break
        timers[place, 0], timers[place, 1] = timers[child, 0], timers[child, 1]
        touch_timer(trace, place)
        place = child
    timers[place, 0], timers[place, 1] = end, slot
    touch_timer(trace, place)


@njit(cache=True, nogil=True, _nrt=False)
def count_due(state: State, boundary: int, stack: Int64s) -> int:
    """Returns how many timers are due at the boundary, in time that follows their number; `stack` is scratch."""
    timers, length = state.timers, state.header[TIMER_COUNT]
    depth, due = 0, 0
    if length > 0:
        stack[0], depth = 0, 1
    while depth > 0:
        depth -= 1
        place = stack[depth]
        if timers[place, 0] <= boundary:
            due += 1
            for child in (2 * place + 1, 2 * place + 2):
                if child < length:
                    stack[depth] = child
                    depth += 1
    return due
