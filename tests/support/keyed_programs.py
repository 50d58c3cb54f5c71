"""Keyed functions for tests: together they use every kind of column, null, text, expiry and return."""

from __future__ import annotations

import math
from typing import Any

from strandline.operators.keyed.definition import KeyedDefinition
from strandline.operators.keyed.keyed_function import keyed
from strandline.operators.keyed.record_layout import CLOSE, EMIT
from strandline.operators.one_table import GivenInput

COLUMNS = {
    "k": "long",
    "s": "string",
    "v": "long",
    "x": "double",
    "t": "long",
    "at": "timestamp",
    "yes": "boolean",
    "day": "date",
    "price": "decimal(10,2)",
    "raw": "binary",
    "small": "short",
    "f": "float",
}
LIMIT = 3


def summary(state: Any, out: Any) -> int:
    """A last word about a key."""
    out.z = state.mean
    out.n = state.n
    return EMIT if state.n % 2 else 0


@keyed(state="n long, mean double, m2 double", output="z double, n long", expire=10, on_expire=summary)
def scores(state: Any, row: Any, out: Any) -> int:
    if row.is_null("x"):
        return 0
    state.n += 1
    delta = row.x - state.mean
    state.mean += delta / state.n
    state.m2 += delta * (row.x - state.mean)
    out.n = state.n
    if state.n < LIMIT:
        out.set_null("z")
    else:
        out.z = delta / math.sqrt(state.m2 + 1.0)
    return EMIT + CLOSE if state.n == 9 else EMIT


@keyed(state="last string, changes int, before string", output="was string, now string, n int", expire=7, emit=2)
def changes(state: Any, row: Any, out: Any) -> int:
    if row.is_null("s"):
        state.set_null("last")
        return 0
    if state.is_new or state.is_null("last") or row.s == state.last:
        state.last = row.s
        return 0
    state.changes += 1
    out[0].was = state.last
    out[0].now = row.s if row.s != "é" else "accent"
    out[0].n = len(row.s)
    out[1].was = "changes"
    out[1].set_null("now")
    out[1].n = state.changes
    state.before = state.last
    state.last = row.s
    many = 2 if state.changes % 2 == 0 else 1
    return many * EMIT + (CLOSE if row.s == "b" else 0)


@keyed(
    state="total decimal(18,2), seen boolean, first date, since timestamp, raw binary, ratio float",
    output="total decimal(18,2), seen boolean, next date, since timestamp, raw binary, part short, ratio float",
)
def everything(state: Any, row: Any, out: Any) -> int:
    if state.is_new:
        state.first = row.day
        state.since = row.at
        state.set_null("raw")
    state.total += row.price
    state.seen = state.seen or row.yes
    state.ratio = row.f + 0.5
    out.part = 100 // row.small
    if not row.is_null("raw") and len(row.raw) > 1:
        state.raw = row.raw
    out.total, out.seen = state.total, state.seen
    out.next = state.first + 1
    out.since = max(state.since, row.at)
    if state.is_null("raw"):
        out.set_null("raw")
    else:
        out.raw = state.raw
    out.ratio = state.ratio * 2
    return EMIT


def definition(function: Any, key: tuple[str, ...], time: str = "t", lateness: int = 4) -> KeyedDefinition:
    """The function over an input with the columns above."""
    return KeyedDefinition.of(function, GivenInput(COLUMNS, key, time, lateness))


def programs() -> dict[str, KeyedDefinition]:
    """Every function over an input."""
    return {
        "scores": definition(scores, ("k",)),
        "changes": definition(changes, ("s", "k")),
        "everything": definition(everything, ("day",), "at"),
    }
