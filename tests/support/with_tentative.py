"""The results of a stream and the tentative ones that count, read without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from strandline.control_columns import KIND
from strandline.log.operator_state.guesses import guesses_of
from strandline.log.reading.results import result_blocks
from strandline.log.reading.tentative_results import TENTATIVE, is_counting
from strandline.log.stream.kinds import is_result
from strandline.log.stream.log import Log


def with_tentative(log: Log, partition: int, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yields the results of a partition, and the tentative ones that count, in the order of their offsets.

    The tables have the columns, then `_offset` and `_tentative`.
    """
    guesses = guesses_of(log, partition)
    end = guesses.first if guesses else log.state.ends[partition]
    for _, table in result_blocks(log, partition, columns, end=end):
        yield table.append_column(TENTATIVE, pa.repeat(pa.scalar(False), len(table)))
    if guesses is None:
        return
    wanted = list(dict.fromkeys([*columns, log.spec.time]))
    for table in log.read(partition, guesses.first, guesses.end, wanted):
        found = is_counting(table, guesses, log.spec.time)
        yield (
            table.append_column(TENTATIVE, found)
            .filter(pc.or_(is_result(table), found))
            .drop_columns([KIND, *(() if log.spec.time in columns else (log.spec.time,))])
        )
