"""The value that a user's method has returned, checked and brought into the columns of results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import InputError, NullTimeError, SchemaError
from strandline.operators.kernels.arrow_words import arrow_type
from strandline.wording import plural

if TYPE_CHECKING:
    from strandline.operators.partition_wide.definition import PartitionWideDefinition


@dataclass(frozen=True)
class ReturnedTable:
    """A table that a method of this operator has returned, if it is one."""

    definition: PartitionWideDefinition
    method: str
    value: Any
    where: str

    def columns(self, promised: int | None) -> list[pa.Array] | None:
        """Returns the columns of results, None if there are none; raises InputError about what they must not be.

        No result may be older than `promised`: consumers may rely on that already.
        """
        if self.value is None:
            return None
        if not isinstance(self.value, pa.Table | pa.RecordBatch):
            raise self._wrong(f"returned {type(self.value).__name__}", "return a pyarrow.Table, or None")
        wanted = [name for name, _ in self.definition.result_columns]
        found = list(self.value.schema.names)
        if sorted(found) != sorted(wanted):
            raise self._wrong(
                f"returned the columns {', '.join(found) or 'none'}; output has {', '.join(wanted)}",
                "return each column of output once",
                SchemaError,
            )
        if not self.value.num_rows:
            return None
        columns = [self._cast(name, arrow_type(kind)) for name, kind in self.definition.result_columns]
        self._check_times(columns[wanted.index(self.definition.result_time)], promised)
        return columns

    def _cast(self, name: str, wanted: pa.DataType) -> pa.Array:
        column = self.value.column(name)
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
        if array.type == wanted:
            return array
        if not _is_alike(array.type, wanted):
            raise self._wrong(
                f"returned {name!r} of type {array.type}; output says {wanted}",
                "cast it, or change output",
                SchemaError,
            )
        try:
            return array.cast(wanted)
        except pa.ArrowInvalid as problem:
            raise self._wrong(
                f"returned values of {name!r} that do not fit {wanted}: {problem}", "widen output"
            ) from None

    def _check_times(self, times: pa.Array, promised: int | None) -> None:
        name = self.definition.result_time
        if times.null_count:
            raise self._wrong(
                f"returned {plural(times.null_count, 'result')} without a time ({name} is null)",
                "give every result a time",
                NullTimeError,
            )
        numbers = times.cast(pa.int64())
        if promised is not None and (least := pc.min(numbers).as_py()) < promised:
            raise self._wrong(
                f"returned a result of {name} {least}, before the boundary {promised}: Strandline has published that "
                "no "
                "more results of that time come",
                "give results a time that is not before those of the tuples still to come, for example that of the "
                "tuple; put an older time into another column",
            )

    def _wrong(self, what: str, todo: str, kind: type[InputError] = InputError) -> InputError:
        return kind(f"{self.definition.of.name}.{self.method} {what}", where=self.where, todo=todo)


def _is_alike(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Returns whether a cast may only change how values are stored, or fail."""
    kinds = pa.types
    if kinds.is_null(found):
        return True
    if kinds.is_dictionary(found):
        return _is_alike(found.value_type, wanted)
    if kinds.is_integer(wanted):
        return bool(kinds.is_integer(found))
    if kinds.is_floating(wanted):
        return bool(kinds.is_floating(found) and found.bit_width <= wanted.bit_width)
    if kinds.is_timestamp(wanted):
        return bool(kinds.is_timestamp(found) and (found.tz is None) == (wanted.tz is None))
    if kinds.is_decimal(wanted):
        return bool(kinds.is_decimal(found))
    if kinds.is_string(wanted):
        return bool(kinds.is_large_string(found) or kinds.is_string(found))
    return bool(kinds.is_binary(wanted) and (kinds.is_large_binary(found) or kinds.is_binary(found)))
