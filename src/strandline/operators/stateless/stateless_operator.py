"""A stateless operator at work on one partition: tuples in, those that are left out; nothing is kept between steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from strandline.operators.aside_tables import VALUE, OneTableAside
from strandline.operators.kernels.arrow_words import whole
from strandline.operators.one_table import as_one_table
from strandline.operators.operator import Extent, Footprints, Limits, OnError, Operator, Saved, StateImage
from strandline.operators.stateless.definition import StatelessDefinition
from strandline.units import END_OF_TIME

_ROWS_MAX = 1 << 18


class StatelessOperator(Operator):
    """A definition at a place in its input. There is no window, and nothing to save."""

    opened = 0
    """No window was opened."""
    open_windows = 0
    """N."""
    rows_at_once = _ROWS_MAX
    due = END_OF_TIME
    """Nothing happens because time passes."""

    def __init__(self, definition: StatelessDefinition, on_error: OnError = "stop") -> None:
        self.definition = definition
        self.on_error = on_error
        self.input_end = 0
        self.aside = self._nothing_aside()
        """The tuples that this step has set aside."""

    def _nothing_aside(self) -> OneTableAside:
        d = self.definition
        return OneTableAside(d, "stateless operator", (d.result_time,), d.time[1])

    def begin(self) -> None:
        """Begins a step."""
        self.aside = self._nothing_aside()

    def feed(self, tuples: Sequence[pa.Table]) -> Iterator[list[pa.Array]]:
        """Yields the columns of the tuples that are left, in the order of the input."""
        definition = self.definition
        table = as_one_table(definition, tuples, self.on_error, self.aside.add_tuples)
        made = definition.own_shaping.computed(table, self.on_error, lambda rows: self.aside.add_tuples(VALUE, rows, 0))
        if made.num_rows:
            schema = definition.output_schema
            yield [whole(column) for column in made.select(schema.names).cast(schema).columns]

    def replay(self, tuples: Sequence[pa.Table]) -> None:
        """Does nothing: no tuple leaves a trace."""

    def repeat(self, tuples: Sequence[pa.Table]) -> None:
        """Does nothing: no tuple leaves a trace."""

    def save(self, position: int, limits: Limits) -> Footprints:
        """Returns no footprints."""
        return self.save_nothing()

    def save_all(self, position: int) -> Footprints:
        """Returns no footprints."""
        return self.save_nothing()

    def save_nothing(self) -> Footprints:
        return Footprints(self.windows(), self.windows())

    def extent(self, position: int) -> Extent:
        """Returns that a recovery reads nothing: it begins where the input and the output end."""
        return Extent(0, self.input_end, position)

    def load(self, newest_first: Iterable[Saved]) -> None:
        """Does nothing: there is no footprint."""

    def windows(self, *, now: bool = False) -> list[pa.Array]:
        """Returns no window, in the columns of footprints."""
        return [pa.nulls(0, field.type) for field in [*self.definition.output_schema, pa.field("", pa.int64())]]

    def image(self) -> StateImage:
        """Returns no arrays."""
        return StateImage({}, None)
