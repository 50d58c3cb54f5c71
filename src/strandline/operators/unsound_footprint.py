"""The refusal of a footprint: it has values that no operator can have saved.

Footprints come from a file, which may be of someone else, and compiled code asks no questions. Each operator checks
all that its kernels rely on when it loads them. A checksum does not help: it is written by those who write the file.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.control_columns import OFFSET
from strandline.operators.kernels.kernel_arrays import Int64s


class UnsoundFootprintError(ValueError):
    """Raised if a footprint holds what no operator can have saved; `offset` is where in the output it stands."""

    def __init__(self, what: str, offset: int) -> None:
        super().__init__(what, offset)
        self.what = what
        self.offset = offset


def require_sound(is_sound: npt.NDArray[np.bool_], what: str, offsets: Int64s) -> None:
    """Raises UnsoundFootprintError about the first footprint that is not sound; these are their output offsets."""
    if not is_sound.all():
        raise UnsoundFootprintError(what, int(offsets[np.argmin(is_sound)]))


def require_values(table: pa.Table, columns: Iterable[str]) -> None:
    """Raises UnsoundFootprintError if one of these columns of footprints has a null."""
    for name in columns:
        column = table.column(name)
        if column.null_count:
            is_valid = np.asarray(column.is_valid())
            require_sound(is_valid, f"{name} is null", table.column(OFFSET).to_numpy())
