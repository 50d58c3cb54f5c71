"""The columns that Spark gets to see of a stream: those of its tuples, and what is said of them."""

from __future__ import annotations

from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructField, StructType

from strandline.control_columns import KIND, OFFSET, PARTITION, REASON
from strandline.inputs.replicas.replica_story import RESULT
from strandline.log.reading.tentative_results import TENTATIVE
from strandline.log.stream.spec import StreamSpec


def spark_schema(spec: StreamSpec, *, late: bool = False, positions: bool, tentative: bool = False) -> StructType:
    """Returns the schema of the tuples in Spark's types; with `tentative` it has the column `_tentative`."""
    schema = StructType.fromJson(dict(spec.schema))
    if positions:
        # Beside a column of that name that the tuples have, it is left out.
        reason = [StructField(REASON, StringType())] if late and REASON not in map(str.lower, schema.names) else []
        places = [StructField(PARTITION, IntegerType()), StructField(OFFSET, LongType())]
        schema = StructType([*schema.fields, *places, *reason])
    return schema.add(TENTATIVE, BooleanType()) if tentative else schema


def changes_schema(spec: StreamSpec) -> StructType:
    """Returns the schema of changes of results: an undo has no values but a time, so all may be null."""
    fields = [StructField(f.name, f.dataType) for f in spark_schema(spec, positions=False).fields]
    places = [StructField(PARTITION, IntegerType()), StructField(OFFSET, LongType())]
    return StructType([*fields, StructField(KIND, StringType()), *places])


def replicas_schema(spec: StreamSpec, *, positions: bool, tentative: bool) -> StructType:
    """Returns the schema of the results of replicas, or with `tentative` of their changes.

    Where one has an offset in a stream, it has its number among the results here, the same in all replicas.
    """
    schema = changes_schema(spec) if tentative else spark_schema(spec, positions=positions)
    return StructType([StructField(RESULT, LongType()) if f.name == OFFSET else f for f in schema.fields])
