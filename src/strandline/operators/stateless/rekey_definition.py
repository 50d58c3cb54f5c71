"""The definition of an operator that gives tuples another key: each of its partitions takes in all of the input's.

A partition keeps the tuples whose key Spark sends to it, in the order of time, input partition and offset. So there is
no shuffle: steps, marks, bounds and recovery are those of a union of the input's partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from strandline.control_columns import OFFSET
from strandline.operators.operator import OnError
from strandline.operators.stateless.definition import StatelessDefinition, StatelessOperator
from strandline.operators.stateless.spark_partitions import spark_partitions


@dataclass(frozen=True)
class RekeyDefinition(StatelessDefinition):
    """Each result is a tuple of any partition of the input, with its time, and with the key that is asked for."""

    kind: ClassVar[str] = "rekey"

    partitions: int = 1
    """How many partitions the results have."""
    own: int | None = None
    """The partition that this is; None: it is not known yet."""

    def __hash__(self) -> int:
        return hash((super().__hash__(), self.partitions, self.own))

    @property
    def is_serialised(self) -> bool:
        """True, also for a single partition: its tuples are taken in by time."""
        return True

    def in_partition(self, partition: int) -> RekeyDefinition:
        """Returns the definition of one partition, which knows which tuples are its own."""
        return replace(self, own=partition)

    def result_key(self, key: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the key that is asked for."""
        return tuple(name for name, _ in self.key)

    def result_lateness(self, lateness: int | None) -> int | None:
        """Returns 0: tuples are taken in by time."""
        return 0

    def text(self, *, is_timestamp: bool) -> str:
        """Returns the key, and the work on tuples before."""
        key = f"rekey by {', '.join(name for name, _ in self.key)}"
        return f"{key}: {self.work_text}" if self.work_text else key

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "key": [name for name, _ in self.key], "partitions": self.partitions}

    @classmethod
    def from_json(
        cls, body: Mapping[str, Any], key: Mapping[str, str], times: Sequence[tuple[str, str]] = ()
    ) -> RekeyDefinition:
        made = super().from_json(body, key, times)
        assert isinstance(made, RekeyDefinition)
        return replace(made, partitions=body["partitions"])

    def fresh(self, on_error: OnError = "stop") -> RekeyOperator:
        """Returns an operator; without a partition of its own it can only be looked at."""
        return RekeyOperator(self, on_error)


class RekeyOperator(StatelessOperator):
    """One partition at work: it looks at all tuples of the input and keeps its own."""

    definition: RekeyDefinition

    def feed(self, tuples: Sequence[pa.Table]) -> Iterator[list[pa.Array]]:
        """Yields the columns of the tuples with a key of this partition, in the order of the input."""
        definition = self.definition
        names = [name for name, _ in definition.output]
        places = [names.index(name) for name, _ in definition.key]
        kinds = [kind for _, kind in definition.key]
        for columns in super().feed(tuples):
            partitions = spark_partitions([columns[at] for at in places], kinds, definition.partitions)
            mine = pa.array(partitions == definition.own)
            if mine.true_count:
                yield [column.filter(mine) for column in columns]

    def _set_aside(self, tuples: pa.Table) -> None:
        """Keeps those of the tuples that cannot be computed which are this partition's to keep, by their places.

        Every partition looks at all of them, and their keys may be what cannot be computed. A key column that the
        input does not have as it is asked for is null.
        """
        mine = tuples.column(OFFSET).to_numpy() % self.definition.partitions == self.definition.own
        found, schema = tuples.filter(pa.array(mine)), self.definition.output_schema
        for name, _ in self.definition.key:
            kind = schema.field(name).type
            if name not in found.column_names:
                found = found.append_column(name, pa.nulls(len(found), kind))
            elif found.schema.field(name).type != kind:
                at = found.column_names.index(name)
                found = found.set_column(at, name, pa.nulls(len(found), kind))
        super()._set_aside(found)
