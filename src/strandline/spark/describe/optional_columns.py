"""Columns that only some streams of a union have: null in the tuples of the others, where an operator names them so."""

from __future__ import annotations

from collections.abc import Sequence, Set

import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import SchemaError
from strandline.spark.operator.processing_element import Upstream


def with_nulls(members: Sequence[Upstream], optional: Sequence[str], reads: Set[str]) -> tuple[Upstream, ...]:
    """Returns the streams, each with all `optional` columns that the operator reads: as nulls where it has none.

    That is a `select` before the operator, of what the operator reads: columns of no interest do not matter to it.
    Raises SchemaError for an optional column that no stream has, or that is a key or time, and for any other column
    that only some of the streams have.
    """
    fixed = {name for member in members for name in (*member._input_spec.key, member._input_spec.time)}
    kinds: dict[str, pa.DataType] = {}
    for name in optional:
        having = [member._input_spec.arrow for member in members if name in member._input_spec.columns]
        if name in fixed:
            raise SchemaError(
                f"the optional column {name!r} is the key or the time of a stream", todo="leave it out of optional="
            )
        if not having:
            raise SchemaError(
                f"no stream of the union has a column {name!r}",
                where=", ".join(member._input_place.url for member in members),
                todo="leave it out of optional=, or correct its name",
            )
        if name in reads:
            kinds[name] = having[0].field(name).type
    found = tuple(_completed(member, kinds, reads) for member in members)
    for name in sorted(reads - fixed):
        lacking = [member for member in found if name not in member._input_spec.columns]
        if 0 < len(lacking) < len(found):
            raise SchemaError(
                f"the operator reads {name!r}, and some streams of the union have no such column",
                where=", ".join(member._input_place.url for member in lacking),
                todo=f'let it be null in their tuples: @sl.keyed(…, optional="{name}"); or make it with select(…)',
            )
    return found


def _completed(member: Upstream, kinds: dict[str, pa.DataType], reads: Set[str]) -> Upstream:
    from strandline.spark.describe.shaped import Shaped, shaped

    spec = member._input_spec
    lacking = {name: pc.scalar(pa.scalar(None, kind)) for name, kind in kinds.items() if name not in spec.columns}
    if not lacking:
        return member
    wanted = [c for c in spec.columns if c in reads or c in spec.key or c == spec.time]
    return (member if isinstance(member, Shaped) else shaped(member)).select(*wanted, **lacking)
