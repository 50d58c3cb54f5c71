"""Aggregates in plain Python: their states are dictionaries, by the names that footprints have for the parts."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Context, Decimal
from typing import Any

from strandline.arrow_types import decimal_of
from strandline.operators.aggregate.aggregates import Accumulator, Op, Read
from strandline.operators.kernels.wide import WORD_DIGITS_MAX
from strandline.operators.open_windows.record import OVERFLOWED
from tests.specification import plain_sketches

Row = dict[str, Any]
_FIRSTS, _LASTS = (Op.FIRST, Op.FIRST_WHERE), (Op.LAST, Op.LAST_WHERE)
_SUMS = (Op.SUM_INT, Op.SUM_WIDE, Op.SUM_FLOAT)
_EXACT = Context(prec=38)


def empty(a: Accumulator) -> Row:
    """The state of an aggregate before the first tuple."""
    if a.op is Op.SKETCH:  # the values themselves: what is saved of them follows from them
        return {"sketch": Counter()}
    return {part: None if part == "value" else 0.0 if kind == "double" else 0 for part, kind in a.parts}


def take(a: Accumulator, state: Row, value: Any, offset: int) -> None:
    """Takes the value of one tuple into the state."""
    if a.op in _LASTS or (a.op in _FIRSTS and state["flag"] == 0):
        state.update(value=value, flag=2 if value is None else 1)
        if "at" in state:
            state["at"] = offset
    elif a.op is Op.COUNT:
        state["n"] += a.column is None or value is not None
    elif a.op is None or a.op in _FIRSTS or value is None:
        pass
    elif a.op is Op.SKETCH:
        number = _read(a, value) if a.read is Read.FLOAT else value
        state["sketch"][plain_sketches.element(a, number)] += 1
    elif a.op in _SUMS:
        _add(a, state, _read(a, value), 1)
    elif a.op is Op.MOMENTS:
        state["n"] += 1
        delta = _read(a, value) - state["mean"]
        step = delta / state["n"]
        state["mean"] += step
        state["m2"] += delta * (delta - step)
    elif state["flag"] == 0 or _replaces(a, value, state["value"]):
        state.update(value=value, flag=1)


def merge(a: Accumulator, state: Row, other: Row) -> None:
    """Joins the state of a later session into that of an earlier one, before the tuple that joins them."""
    if a.op is None or a.op in (Op.FIRST, Op.LAST):
        pass  # the earlier session has the first tuple, and the tuple that joins them is the last
    elif a.op is Op.SKETCH:
        state["sketch"].update(other["sketch"])
    elif a.op in (Op.FIRST_WHERE, Op.LAST_WHERE):  # which need not be so if not every tuple counts
        each = [s for s in (state, other) if s["flag"] != 0]
        if each:
            state.update((min if a.op is Op.FIRST_WHERE else max)(each, key=lambda s: s["at"]))
    elif a.op is Op.COUNT:
        state["n"] += other["n"]
    elif a.op in _SUMS:
        _add(a, state, other["sum"], other["n"])
    elif a.op is Op.MOMENTS:
        if other["n"] > 0:
            delta = other["mean"] - state["mean"]
            step = delta / (state["n"] + other["n"])
            state["mean"] += step * other["n"]
            state["m2"] += other["m2"] + delta * step * state["n"] * other["n"]
            state["n"] += other["n"]
    elif other["flag"] == 1 and (state["flag"] == 0 or _replaces(a, other["value"], state["value"])):
        state.update(other)


def results_of(a: Accumulator, state: Row, rows: int) -> tuple[Any, ...]:
    """The results of a window of so many tuples."""
    return plain_sketches.results(a, state["sketch"]) if a.op is Op.SKETCH else (_result(a, state, rows),)


def _result(a: Accumulator, state: Row, rows: int) -> Any:
    """What the window says when it closes; null where Spark says null."""
    if a.op is None:
        return rows
    if a.op is Op.COUNT:
        return state["n"]
    if a.op is Op.MOMENTS:
        if state["n"] < 2:
            return None
        spread = state["m2"] / (state["n"] - 1)
        return math.sqrt(spread) if a.function == "stddev" else spread
    if a.op not in _SUMS:
        return state["value"]
    total, n, decimal = state["sum"], state["n"], decimal_of(a.result)
    if n == 0:
        return None
    if decimal is None:
        return total / n if a.function == "avg" else total
    return _shown(_mean(a, total, n) if a.function == "avg" else total, a.result)


def _mean(a: Accumulator, total: int, n: int) -> int:
    """Of decimals, without the point: some more digits, the last one rounded half up."""
    return int((2 * abs(total) * 10**a.more_digits + n) // (2 * n) * (-1 if total < 0 else 1))


def is_sum_overflowed(a: Accumulator, state: Row) -> bool:
    """Whether a sum has become too large for what it is kept in."""
    return a.count_place is not None and state["n"] == OVERFLOWED


def is_mean_overflowed(a: Accumulator, state: Row) -> bool:
    """Whether a mean has more digits than a decimal can have."""
    is_mean = a.op is Op.SUM_WIDE and a.function == "avg" and state["n"] > 0
    return is_mean and abs(_mean(a, state["sum"], state["n"])) >= 10**38


def saved(a: Accumulator, part: str, kind: str, state: Row) -> Any:
    """A part of the state as a footprint has it."""
    if part == "sketch":
        return plain_sketches.encoded(a, state["sketch"])
    return _shown(state[part], kind) if part == "sum" else state[part]


def _shown(number: Any, kind: str) -> Any:
    """A decimal with its point; any other number as it is."""
    decimal = decimal_of(kind)
    return number if decimal is None else _EXACT.scaleb(Decimal(number), -decimal[1])


def _read(a: Accumulator, value: Any) -> Any:
    """A number as sums take it: decimals without their point, or as doubles."""
    decimal = decimal_of(a.type)
    if decimal is not None:
        value = int(_EXACT.scaleb(value, decimal[1]))
    if a.read is not Read.FLOAT:
        return value
    if decimal is None or decimal[0] <= WORD_DIGITS_MAX:
        return float(value) / 10.0 ** decimal[1] if decimal is not None else float(value)
    high, low = divmod(abs(value), 1 << 64)
    return (float(high) * 2.0**64 + float(low)) / 10.0 ** decimal[1] * (-1.0 if value < 0 else 1.0)


def _add(a: Accumulator, state: Row, value: Any, n: int) -> None:
    """Adds `n` values that come to `value`. A sum that does not fit 64 bits, or 38 digits, stays overflowed."""
    total = state["sum"] + value
    fits = a.op is Op.SUM_FLOAT or (-(1 << 63) <= total < 1 << 63 if a.op is Op.SUM_INT else abs(total) < 10**38)
    if fits and OVERFLOWED not in (state["n"], n):
        state.update(sum=total, n=state["n"] + n)
    else:
        state.update(sum=0, n=OVERFLOWED)


def _replaces(a: Accumulator, value: Any, held: Any) -> bool:
    """Whether a value is a new minimum or maximum. NaN is the largest number; 0.0 and -0.0 are the same."""
    small, large = (value, held) if a.function == "min" else (held, value)
    if isinstance(large, float) and math.isnan(large):
        return not math.isnan(small)
    return bool(small < large)
