"""The results of the best replica at one moment, and its guesses, if they are wanted."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.control_columns import KIND, PARTITION
from strandline.inputs.replicas.replica_reader import ReplicaReader
from strandline.inputs.replicas.replica_set import ReplicaSet
from strandline.inputs.replicas.replica_story import RESULT
from strandline.log.reading.tentative_results import CHANGES, TENTATIVE
from strandline.log.stream.kinds import Kind


def snapshot(replicas: ReplicaSet, *, tentative: bool = False) -> Iterator[pa.Table]:
    """Yields the results that the best replica has now, partition by partition, with `_partition` and `_result`.

    With `tentative` the tentative ones that count follow behind all others, and a column `_tentative` tells them apart.
    Should the replica be lost on the way, another goes on. Raises if there is none to be read.
    """
    reader = ReplicaReader(replicas)
    guesses: dict[int, list[pa.Table]] = {}
    for table in reader.poll():
        if len(stable := _of_kind(table, Kind.RESULT)):
            yield _shown(stable, tentative=tentative, is_guess=False)
        own = guesses.setdefault(table.column(PARTITION)[0].as_py(), [])
        undone = np.flatnonzero(pc.equal(table.column(KIND), CHANGES[Kind.UNDO]).to_numpy())
        if len(undone):  # another replica knew better
            own.clear()
        own.append(_of_kind(table.slice(int(undone[-1]) + 1 if len(undone) else 0), Kind.TENTATIVE))
    if reader.current is None:
        raise replicas.none_readable()
    if tentative:
        found = (guess for own in guesses.values() for guess in own if len(guess))
        yield from (_shown(guess, tentative=True, is_guess=True) for guess in found)


def snapshot_schema(replicas: ReplicaSet, *, tentative: bool = False) -> pa.Schema:
    """Returns the columns of these tables."""
    found = replicas.spec.arrow.append(pa.field(PARTITION, pa.int32())).append(pa.field(RESULT, pa.int64()))
    return found.append(pa.field(TENTATIVE, pa.bool_())) if tentative else found


def _of_kind(table: pa.Table, kind: Kind) -> pa.Table:
    return table.filter(pc.equal(table.column(KIND), CHANGES[kind]))


def _shown(table: pa.Table, *, tentative: bool, is_guess: bool) -> pa.Table:
    table = table.drop_columns([KIND])
    return table.append_column(TENTATIVE, pa.repeat(pa.scalar(is_guess), len(table))) if tentative else table
