"""`stream.where(…)`, `stream.select(…)`: a stream whose tuples are worked on before an operator takes them in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

from strandline.errors import OptionError
from strandline.log.reading.bounds import Bound
from strandline.log.stream.column_types import fields_of
from strandline.log.stream.log import Log
from strandline.log.stream.spec import StreamSpec
from strandline.operator_texts import shape_text
from strandline.operators.aggregate.windows import Window
from strandline.operators.expressions.shape import AS_IS, Shape
from strandline.spark.describe.aggregation import Windowed
from strandline.spark.describe.operator_input import OperatorInput
from strandline.spark.describe.rekey import Rekeyed, rekey_operator, rekeyed
from strandline.spark.describe.reprs import COLUMNS_SHOWN
from strandline.spark.describe.stateless import Stateless, StatelessWork, stateless
from strandline.spark.operator.processing_element import Upstream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from strandline.spark.entry.entry import Entry


class Shaped(StatelessWork, OperatorInput):
    """A stream, or a DataFrame on its way into one, with stateless work behind it. `start` stores what is left."""

    def __init__(self, input_: Upstream, shape: Shape) -> None:
        self._input = input_
        self._input_place = input_._input_place
        self._input_shape = shape
        self._schema = shape.schema_over(input_._input_spec.arrow)

    def __repr__(self) -> str:
        return f"{self._input!r}, {shape_text(self._input_shape.to_json(), columns_max=COLUMNS_SHOWN)}"

    # ------------------------------------------------------------------ as an input of operators

    @property
    def _input_spec(self) -> StreamSpec:
        """The spec of the stream, with the columns that are left."""
        spec = self._input._input_spec
        types = self._input_shape.columns_over({f["name"]: f["type"] for f in fields_of(spec.schema)}, spec.arrow)
        fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
        return replace(spec, schema={"type": "struct", "fields": fields}, added=0)

    @property
    def _input_members(self) -> tuple[Upstream, ...]:
        """Itself; of a union, its streams."""
        return (self,) if len(self._input._input_members) == 1 else self._input._input_members

    @property
    def _bare_input(self) -> Upstream:
        """The stream as it is."""
        return self._input

    def _opened_input(self, limit_s: float | None = None) -> Log:
        """Opens the stream, see `OperatorInput._opened_input`."""
        return self._input._opened_input(limit_s)

    # ------------------------------------------------------------------ building on it

    def _operator(self) -> Stateless:
        """Returns the operator that writes what is left."""
        return stateless(self._input, self._input_shape)

    def where(self, condition: Any) -> Shaped:
        """Keeps the tuples for which a pyarrow expression is true."""
        return Shaped(self._input, self._input_shape.where(condition, self._schema))

    def select(self, *columns: str, **named: Any) -> Shaped:
        """Selects some columns by their names and computes others by pyarrow expressions."""
        spec = self._input._input_spec
        keep = tuple(dict.fromkeys([*spec.key, spec.time]))
        return Shaped(self._input, self._input_shape.select(columns, named, self._schema, keep))

    def window(self, window: Window) -> Windowed:
        """Cuts what is left into windows, per key."""
        return Windowed(self._input, window, self._input_shape)

    @property
    def schema(self) -> pa.Schema:
        """The columns of what is left, as Arrow has them."""
        return self._schema

    # ------------------------------------------------------------------ reading, without Spark and with it

    def to_arrow(self, *, since: Bound | None = None, until: Bound | None = None) -> pa.Table:
        """Reads as `Stream.to_arrow` does, then does this work."""
        columns = self._input_shape.reads(self._schema.names)
        return self._input_shape.read(self._stream("to_arrow").to_arrow(since=since, until=until, columns=columns))

    def read(self, spark: SparkSession, **options: Any) -> DataFrame:
        """Reads as `Stream.read` does, then does this work in Python tasks of Spark."""
        return self._work(self._stream("read").read(spark, **options))

    def read_stream(self, spark: SparkSession, **options: Any) -> DataFrame:
        """Reads as `Stream.read_stream` does, then does this work in Python tasks of Spark."""
        return self._work(self._stream("read_stream").read_stream(spark, **options))

    @overload
    def rekey(self, key: str | Sequence[str], path: None = None, *, partitions: int | None = None) -> Rekeyed: ...

    @overload
    def rekey(
        self, key: str | Sequence[str], path: str, *, spark: SparkSession | None = None, **options: Any
    ) -> Entry: ...

    def rekey(
        self,
        key: str | Sequence[str],
        path: str | None = None,
        *,
        spark: SparkSession | None = None,
        **options: Any,
    ) -> Rekeyed | Entry:
        """Gives these tuples another key: with a path by a query, else as an operator; see `Stream.rekey`."""
        if path is None:
            return rekey_operator(self, self._input_shape, key, options, spark)
        return rekeyed(self._input, self.read_stream, key, path, spark, options, self._input_shape)

    def _stream(self, method: str) -> Any:
        if len(self._input._input_members) > 1:
            raise OptionError(
                f"{method}() does not work for a union",
                todo="read the streams of the union one by one, or the results of an operator over the union",
            )
        if not hasattr(self._input, "read"):
            raise OptionError(
                f"{method}() of a source whose DataFrame is not persisted yet",
                where=self._input_place.url,
                todo=f"start the source, then sl.stream(…).where(…).{method}(spark)",
            )
        return self._input

    def _work(self, df: DataFrame) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        shape, stored, given = self._input_shape, self._input._input_spec.arrow, self._schema
        if set(df.columns) != set(stored.names):
            raise OptionError(
                "read(…) after where(…) or select(…) has no positions and no late tuples",
                todo="read the stream itself, without where(…) and select(…)",
            )

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                table = pa.Table.from_batches([batch]).select(stored.names).cast(stored)
                yield from shape.read(table).cast(given).to_batches()

        return df.mapInArrow(work, from_arrow_schema(given))


def shaped(input_: Upstream) -> Shaped:
    """Returns the input as it is, ready for `where` and `select`."""
    return Shaped(input_, AS_IS)
