"""The operator of the CEC paper: a G-open for every window that opens, also for one that closes in the same step.

Strandline writes no G-open of a window that closes in the step it opened in: results and footprints of a step are
published together, so that no recovery would ever read it. The paper's operator takes in tuple by tuple, and writes it
always. This operator does so, too, and keeps the rest of Strandline's. It can only be measured: a recovery would not
expect the G-opens of closed windows behind their results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.operators.aggregate.aggregate_operator import AggregateOperator
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.kernels.kernel_arrays import Int64s
from strandline.operators.open_windows.arrays import Batch
from strandline.operators.open_windows.record import OPENED, T
from strandline.operators.open_windows.window_state import WindowState
from strandline.operators.operator import Footprints, Limits, OnError


@dataclass
class Tally:
    """A count of G-opens."""

    opened: int = 0


@dataclass(frozen=True)
class EveryOpening(AggregateDefinition):
    """An aggregation whose operator makes a G-open for every window that opens."""

    tally: Tally = field(default_factory=Tally, compare=False)
    """The G-opens that its operators have made."""

    @classmethod
    def like(cls, plan: AggregateDefinition) -> EveryOpening:
        """Returns the definition with the same window and aggregates."""
        return cls(plan.window, plan.key, plan.time, plan.accumulators)

    def fresh(self, on_error: OnError = "stop") -> AggregateOperator:
        return _Operator(self, WindowState.empty(self.width, self.layout, timed=self.has_times), on_error)

    def revived(self, arrays: Mapping[str, npt.NDArray[Any]], on_error: OnError = "stop") -> AggregateOperator:
        return _Operator(self, WindowState.revived(arrays, self.width, timed=self.has_times), on_error)


class _Operator(AggregateOperator):
    definition: EveryOpening

    def begin(self) -> None:
        super().begin()
        self._first = self.input_end
        self._closed: list[Int64s] = []

    def _run(self, batch: Batch) -> tuple[Int64s, Batch]:
        closed, batch = super()._run(batch)
        self._closed.append(closed[closed[:, OPENED] >= self._first])
        return closed, batch

    def save(self, position: int, limits: Limits) -> Footprints:
        saved, records = super().save(position, limits), np.concatenate(self._closed)
        records[:, T] = self.input_end
        opened = [pa.concat_arrays(pair) for pair in zip(saved.opened, self._footprints(records), strict=True)]
        self.definition.tally.opened += len(opened[0])
        return Footprints(opened, saved.checked)
