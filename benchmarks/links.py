"""What operators stand in the chain that a failure of an input goes through, and what each of them reads.

`own_inputs`: every operator behind the first has an input of its own, beside the results of the one before.

`borealis_nodes`: the DPC paper's query (section 5). The first node merges two streams with a union, whose results meet
a third stream in a join. Every node behind it reads the results of the node before and nothing else. A node has one
bound; operators within a node share it, as the paper says in 3.5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import strandline as sl
from benchmarks.sensors import COLUMNS, join_of
from strandline.operators.join.definition import JoinDefinition, JoinInput
from strandline.operators.join.join_windows import JoinWindows
from strandline.operators.keyed.definition import KeyedDefinition
from strandline.operators.one_table import GivenInput
from strandline.operators.operator import Definition
from strandline.operators.stateless.definition import StatelessDefinition

_KEY = (("sensor", "long"),)
_ALPHA = 0.9
"""The part of a node's bound that its join has, and the paper's alpha; the union in front of it has the other part."""


@dataclass(frozen=True)
class Link:
    """One operator of a chain."""

    definition: Definition
    streams: tuple[int, ...]
    """The numbers of the streams that it reads, beside the results of the operator before it."""
    share: float = 1.0
    """Its part of the bound of its node."""
    is_end: bool = True
    """True if it is the last operator of its node."""


Links = Callable[[int], Sequence[Link]]
"""Returns the operators of a chain of so many nodes."""


def own_inputs(depth: int) -> list[Link]:
    """Returns operators over the results of the one before and a stream of their own; the first one has three."""
    return [Link(join_of(3), (0, 1, 2)), *(Link(join_of(2), (2 + place,)) for place in range(1, depth))]


def borealis_nodes(depth: int) -> list[Link]:
    """Returns a union that feeds a join, and behind it nodes with a single input."""
    first = [Link(union_of_two(), (0, 1), 1 - _ALPHA, is_end=False), Link(last_of_sensor(), (2,), _ALPHA)]
    return [*first, *(Link(_behind_join() if place == 1 else join_of(1), ()) for place in range(1, depth))]


@cache
def union_of_two() -> StatelessDefinition:
    """Returns `sl.union(a, b)` with a stream of its own."""
    return StatelessDefinition(tuple(COLUMNS.items()), _KEY, ("time", "timestamp"), ("time",))


@cache
def last_of_sensor() -> JoinDefinition:
    """Returns the join in which a tuple meets the last one of its sensor on the other side.

    So every tuple has one result, and the state is two tuples a sensor.
    """
    side = JoinInput(COLUMNS, ("sensor",), "time")
    return JoinDefinition.of(side, side, JoinWindows("key", sizes=(1, 1)))


@sl.keyed(state="number long, value double", output="number long, value double, met long")
def meets_joined(state: Any, row: Any, out: Any) -> int:
    """Does what `sensors.meets` does, over results of the join: the later of both tuples has made the result."""
    number = row.left_number if row.left_time > row.right_time else row.right_number
    value = row.left_value + row.right_value
    out.number = number
    out.met = -1 if state.is_new else state.number
    out.value = value if state.is_new else (value + state.value) / 2
    state.number = number
    state.value = value
    return sl.EMIT


@cache
def _behind_join() -> KeyedDefinition:
    columns = dict(last_of_sensor().result_columns)
    return KeyedDefinition.of(meets_joined, GivenInput(columns, ("sensor",), "time", 0), ())
