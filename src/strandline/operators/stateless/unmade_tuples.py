"""Tuples that a stateless operator could not compute: what a step has set aside of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from strandline.control_columns import OFFSET
from strandline.operators.aside_tables import AsideTables
from strandline.operators.kernels.arrow_words import whole
from strandline.operators.operator import TAKEN_IN

if TYPE_CHECKING:
    from strandline.operators.stateless.definition import StatelessDefinition

VALUE: Final = "value"
"""The reason of tuples with an expression that cannot be computed."""


class UnmadeTuples(AsideTables):
    """The tuples that one step has set aside, in the columns of results, with their place in the input."""

    def __init__(self, definition: StatelessDefinition) -> None:
        self._definition = definition
        super().__init__()

    def add_tuples(self, reason: str, tuples: pa.Table, number: int = 0) -> None:
        """Adds tuples as an input has them: their key, their time, their place."""
        if self.is_ignoring or not tuples.num_rows:
            return
        d = self._definition
        sources = {name: name for name, _ in d.key} | {d.result_time: d.times[number]}
        columns = [whole(tuples.column(source)) for source in sources.values()]
        place = whole(tuples.column(OFFSET))
        table = pa.table([*columns, place], names=[*sources, TAKEN_IN])
        self._keep(reason, table, f"stateless operator, input offset {place[0].as_py()}")
