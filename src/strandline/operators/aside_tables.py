"""What a step sets aside, by reason: the part of it that is the same for every operator."""

from __future__ import annotations

import pyarrow as pa


class AsideTables:
    """Tables in the columns of footprints, by the reason why they were set aside."""

    def __init__(self) -> None:
        self._parts: dict[str, list[pa.Table]] = {}
        self.nbytes = 0
        """How much that is: it travels through the driver."""
        self.closed: list[list[pa.Array]] = []
        """Of windows, or tuples that wait, among them: columns that say so, so that nobody takes them for open."""

    @property
    def tables(self) -> dict[str, pa.Table]:
        """A table for each reason."""
        return {reason: pa.concat_tables(parts) for reason, parts in self._parts.items()}

    def _keep(self, reason: str, table: pa.Table) -> None:
        self.nbytes += table.nbytes
        self._parts.setdefault(reason, []).append(table)
