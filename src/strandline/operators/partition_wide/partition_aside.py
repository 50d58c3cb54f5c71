"""Tuples over which a user's `process` raised: what a step has set aside of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from strandline.control_columns import OFFSET
from strandline.operators.aside_tables import AsideTables
from strandline.operators.kernels.arrow_words import arrow_type, whole
from strandline.operators.operator import TAKEN_IN

if TYPE_CHECKING:
    from strandline.operators.partition_wide.definition import PartitionWideDefinition

PROCESS: Final = "process"
"""The reason of tuples over which `process` raised."""


class PartitionAside(AsideTables):
    """The tuples that one step has set aside, by reason, in the columns of results and footprints."""

    def __init__(self, definition: PartitionWideDefinition) -> None:
        self._definition = definition
        super().__init__()

    def add_tuples(self, reason: str, tuples: pa.Table, number: int = 0) -> None:
        """Adds tuples as an input has them: their key, their time, their offset in the place of `_input`."""
        if self.is_ignoring or not tuples.num_rows:
            return
        d = self._definition
        offset = whole(tuples.column(OFFSET))
        time = whole(tuples.column(d.times[number])).cast(pa.int64()).cast(arrow_type(d.result_time_type))
        names = [*(name for name, _ in d.key if name != d.result_time), d.result_time, TAKEN_IN]
        columns = [*(whole(tuples.column(c)) for c, _ in d.key if c != d.result_time), time, offset]
        self._keep(reason, pa.table(columns, names=names), f"{d.of.name}, input offset {offset[0].as_py()}")
