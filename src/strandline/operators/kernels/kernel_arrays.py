"""Arrays as compiled loops take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Float64s = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]


def sealed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns the array contiguous and read-only: for each other kind a kernel would be compiled anew."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
