"""Which tuples do not wait any more, as the output tells it: results say of which tuples they were made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.control_columns import OFFSET
from strandline.operators.barrier.definition import BarrierDefinition
from strandline.operators.kernels.kernel_arrays import Int64s
from strandline.operators.open_windows.record import NONE
from strandline.operators.operator import TAKEN_IN

_NONE: Int64s = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Consumed:
    """Of each input the places of tuples that results were made of, or that were set aside."""

    places: tuple[Int64s, ...]
    """In order."""
    events: tuple[tuple[Int64s, Int64s], ...] = ()
    """Of the results, and of what was set aside: the place at which it happened and the output offset, in order."""

    @classmethod
    def nothing(cls, inputs: int) -> Consumed:
        """Returns an object that knows of no tuple."""
        return cls((_NONE,) * inputs)

    @classmethod
    def of(cls, definition: BarrierDefinition, closed: Sequence[pa.Table]) -> Consumed:
        """Returns what results, and tuples that were set aside, say in these stretches of the output."""
        if not closed:
            return cls.nothing(len(definition.inputs))
        table = pa.concat_tables(closed).select([*definition.at_columns, TAKEN_IN, OFFSET])
        table = table.take(pc.sort_indices(table, [(OFFSET, "ascending")]))
        ats = [pc.fill_null(table.column(name), NONE).to_numpy() for name in definition.at_columns]
        offsets = table.column(OFFSET).to_numpy()
        aside = pc.fill_null(table.column(TAKEN_IN), NONE).to_numpy()
        is_result = aside < 0
        last = np.max(ats, axis=0)
        events = ((last[is_result], offsets[is_result]), (aside[~is_result], offsets[~is_result]))
        return cls(tuple(np.sort(at[at >= 0]) for at in ats), events)

    def holds(self, number: int, places: Int64s) -> npt.NDArray[np.bool_]:
        """Returns for each place of an input, whether its tuple does not wait any more."""
        known = self.places[number]
        if not len(known):
            return np.zeros(len(places), bool)
        at = np.minimum(np.searchsorted(known, places), len(known) - 1)
        found: npt.NDArray[np.bool_] = known[at] == places
        return found

    def others(self, number: int, table: pa.Table) -> pa.Table:
        """Returns the tuples of an input that wait."""
        gone = self.holds(number, table.column(OFFSET).to_numpy())
        return table.filter(pa.array(~gone)) if gone.any() else table

    def since(self, places: Int64s) -> Int64s:
        """Returns for each place the output offset of the first that happened behind it; -1 if nothing did."""
        never = np.iinfo(np.int64).max
        first = np.full(len(places), never, np.int64)
        for at, offsets in self.events:
            first = np.minimum(first, np.append(offsets, never)[np.searchsorted(at, places, side="right")])
        return np.where(first == never, NONE, first)
