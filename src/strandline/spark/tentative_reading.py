"""Results with the tentative ones that count: `read(tentative=True)`, through Spark's own Parquet reader."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.errors import OptionError
from strandline.log.bounds import Bounds
from strandline.log.kinds import Kind
from strandline.log.log import Log
from strandline.log.tentative_results import TENTATIVE
from strandline.spark.block_reading import read_blocks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def require_readable(log: Log, *, late: bool) -> None:
    """Raises `OptionError` where tentative results cannot be read as a DataFrame."""
    if late:
        raise OptionError("late=True and tentative=True", todo="read one of them: what is late is never tentative")
    if log.storage.local_path("x") is None:
        raise OptionError(
            "read(tentative=True) is for file systems",
            where=log.storage.url,
            todo="use read_stream(spark, tentative=True), which tells all that happens to results, or read() for "
            "those that stay",
        )


def read_with_tentative(spark: SparkSession, log: Log, bounds: Bounds, *, positions: bool) -> DataFrame:
    """The results, and behind them the tentative ones that are not void, with the column `_tentative`.

    Those that count stand behind the last undo, and not before the stable boundary: the state of the log says both.
    """
    from pyspark.sql import functions as F

    state, partitions = log.state, range(log.spec.partitions)
    stable = [b for p in partitions for b in bounds.blocks(log, p)]
    results = read_blocks(spark, log, stable, bounds, late=False, positions=positions)
    forks = dict(enumerate(state.outage.forks)) if state.outage else {}
    firsts = {p: max(fork.first, bounds.firsts.get(p, 0)) for p, fork in forks.items() if fork.tuples}
    behind = replace(bounds, firsts={**bounds.firsts, **firsts})
    guesses = [b for p in firsts for b in behind.blocks(log, p) if b.rows.get("tentative")]
    since = {b.file: boundary for b in guesses if (boundary := state.boundaries[b.partition]) is not None}
    tentative = read_blocks(
        spark, log, guesses, behind, late=False, positions=positions, kind=Kind.TENTATIVE, since=since
    )
    return results.withColumn(TENTATIVE, F.lit(False)).unionAll(tentative.withColumn(TENTATIVE, F.lit(True)))
