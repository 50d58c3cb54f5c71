"""Tables of tuples and windows that a step sets aside, by reason, for every operator."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from strandline.errors import InputError
from strandline.operators.open_windows.record import LENGTH_MAX

BYTES_MAX = 256 << 20
"""More than that is set aside by no step: it would not go through the driver."""
WHY: Final = {
    "time": "a time at the edge of what 64 bits hold",
    "key": f"a key of more than {LENGTH_MAX} bytes",
    "value": f"a value of more than {LENGTH_MAX} bytes",
}
"""Reasons why a tuple cannot be taken."""


def unfit_tuples(taker: str, reason: str, many: int, where: str) -> InputError:
    """Returns the error about tuples, so many of them, that this taker cannot take; the first stands at `where`."""
    return InputError(
        f"a tuple that no {taker} can take: {WHY[reason]}" + (f" (and {many - 1} more like it)" if many > 1 else ""),
        where=where,
        todo='start the operator with on_error="set_aside": such tuples go to its side log, read(late=True)',
    )


class AsideTables:
    """Tables in those of the columns of footprints that have values, by the reason why they were set aside."""

    advice = "this is for poison, not for a whole stream: repair the condition, or filter before the operator"
    """The advice if it is too much."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[tuple[str, ...], list[pa.Table]]] = {}
        self.nbytes = 0
        """How much that is: it travels through the driver."""
        self.closed: list[list[pa.Array]] = []
        """Columns that say which windows, or waiting tuples, are among them, so that no reader takes them for open."""
        self.is_ignoring = False
        """True if what is added is dropped."""

    @property
    def tables(self) -> dict[str, list[pa.Table]]:
        """For each reason some tables, each with columns of its own: those that it does not have are null."""
        return {reason: [*map(pa.concat_tables, parts.values())] for reason, parts in self._parts.items()}

    def ignore(self) -> None:
        """Drops what is added from now on."""
        self.is_ignoring = True

    def _keep(self, reason: str, table: pa.Table, where: str) -> None:
        """Keeps what is at `where`; raises InputError if that is too much."""
        self.nbytes += table.nbytes
        if self.nbytes > BYTES_MAX:
            raise InputError(
                f"one step sets aside more than {BYTES_MAX >> 20} MiB, the last of it for the reason {reason!r}",
                where=where,
                todo=self.advice,
            )
        self._parts.setdefault(reason, {}).setdefault(tuple(table.column_names), []).append(table)
