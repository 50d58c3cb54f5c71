"""Operators over inputs that have the same columns: their definition, and the tuples of a piece in one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa

from strandline.control_columns import OFFSET
from strandline.operators.expressions.shape import InputShapes
from strandline.operators.operator import Definition


@dataclass(frozen=True)
class GivenInput:
    """The input of an operator that a user has written: types of all columns by name, key columns, time column."""

    columns: Mapping[str, Any]
    key: tuple[str, ...]
    time: str
    lateness: int | None
    """Of one stream; of several, whose tuples come in the order of their times, it is 0."""

    def type_of(self, column: str) -> str:
        """Returns Spark's name of a column's type; of a nested type only which kind of type it is."""
        kind = self.columns[column]
        return kind if isinstance(kind, str) else str(kind["type"])


INPUT_NAME = "_input"


class OneTableDefinition(Definition, Protocol):
    """A definition over inputs that have the same columns, but for the names of their time columns."""

    time: tuple[str, str]
    """Name and type of the time column of the first input."""
    more_times: tuple[str, ...]
    """The time columns of the other inputs, which are like the first in all other columns that are read."""
    before: InputShapes
    """The work on the tuples of each input before they are one sequence."""

    @property
    def taken(self) -> Sequence[str]:
        """The columns that the operator takes of the first input."""

    @property
    def shapes(self) -> InputShapes:
        return self.before

    @property
    def times(self) -> tuple[str, ...]:
        return (self.time[0], *self.more_times)

    @property
    def takes(self) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(time if name == self.time[0] else name for name in self.taken) for time in self.times)

    def continuing(self, stored: Mapping[str, Any] | None) -> Self:
        """Returns the definition with the stream's texts for the shapes of its inputs."""
        return replace(self, before=self.before.known_as(stored))  # type: ignore[type-var]


def one_table(tables: Sequence[pa.Table], reads: Sequence[Sequence[str]], *, numbered: bool = False) -> pa.Table:
    """Returns the tuples of all inputs in the order of `_offset`, in the columns of the first.

    `reads` are the columns of each. With `numbered`, a column `_input` has the number of each tuple's input, from 0 on.
    """
    if len(tables) == 1 and not numbered:
        return tables[0]
    names, made = [*reads[0], OFFSET], []
    for number, (table, own) in enumerate(zip(tables, reads, strict=True)):
        one = pa.table([*map(table.column, own), table.column(OFFSET)], names=names)
        if numbered:
            one = one.append_column(INPUT_NAME, pa.array(np.full(len(one), number, np.int32)))
        made.append(one)
    filled = [table for table in made if len(table)]
    if len(filled) < 2:
        return filled[0] if filled else made[0]
    table = pa.concat_tables(filled)
    places = table.column(OFFSET).to_numpy()
    first, last = int(places.min()), int(places.max())
    if last - first < len(places):  # no gaps: a tuple's place says where it goes
        order = np.empty(len(places), np.int64)
        order[places - first] = np.arange(len(places))
    else:  # some were left out before; what is left of each input is in order
        order = np.argsort(places, kind="stable")
    return table.combine_chunks().take(pa.array(order))
