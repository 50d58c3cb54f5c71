"""How many windows of a key are open after a recovery: kernels have room for as many as a key can have."""

from __future__ import annotations

from collections import Counter

import numpy as np

from strandline.operators.kernels.kernel_arrays import Bytes, Int64s
from strandline.operators.open_windows.record import KEY, KEY_AT, LENGTH_BITS, LENGTH_MAX, POS
from strandline.operators.unsound_footprint import UnsoundFootprintError


def require_few(records: Int64s, most: int, *, fits_word: bool, held: Bytes) -> None:
    """Raises UnsoundFootprintError if more than `most` of these windows have the same key; `held` has bytes of keys."""
    words = np.sort(records[:, KEY])
    again = words[most:][words[most:] == words[: len(words) - most]] if len(words) > most else words[:0]
    met: Counter[object] = Counter()
    for record in records[np.isin(records[:, KEY], again)] if len(again) else ():  # or hashes that are the same
        at, length = int(record[KEY_AT]) >> LENGTH_BITS, int(record[KEY_AT]) & LENGTH_MAX
        key = (int(record[KEY]), int(record[KEY_AT])) if fits_word else held[at : at + length].tobytes()
        met[key] += 1
        if met[key] > most:
            raise UnsoundFootprintError(f"a key has more than {most:,} open windows", int(record[POS]))
