"""Results with the tentative ones that count: `read(tentative=True)`, through Spark's own Parquet reader."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.log.operator_state.guesses import guesses_of
from strandline.log.reading.bounds import Bounds
from strandline.log.reading.tentative_results import TENTATIVE
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.spark.read.block_reading import read_blocks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_with_tentative(spark: SparkSession, log: Log, bounds: Bounds, *, positions: bool) -> DataFrame:
    """Reads the results, and behind them the tentative ones that are not void, with the column `_tentative`.

    Those that count stand behind the last undo, and not before the stable boundary: the state of the log says both.
    """
    from pyspark.sql import functions as F

    partitions = range(log.spec.partitions)
    stable = [b for p in partitions for b in bounds.blocks(log, p)]
    results = read_blocks(spark, log, stable, bounds, late=False, positions=positions)
    counting = {p: found for p in partitions if (found := guesses_of(log, p)) is not None}
    firsts = {p: max(found.first, bounds.firsts.get(p, 0)) for p, found in counting.items()}
    behind = replace(bounds, firsts={**bounds.firsts, **firsts})
    guesses = [b for p in counting for b in behind.blocks(log, p) if b.rows.get("tentative")]
    since = {b.file: boundary for b in guesses if (boundary := counting[b.partition].since) is not None}
    tentative = read_blocks(
        spark, log, guesses, behind, late=False, positions=positions, kind=Kind.TENTATIVE, since=since
    )
    return results.withColumn(TENTATIVE, F.lit(False)).unionAll(tentative.withColumn(TENTATIVE, F.lit(True)))
