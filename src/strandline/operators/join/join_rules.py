"""The rules of a join as its kernels take them: numbers for its windows, and for what each side keeps."""

from __future__ import annotations

from typing import Final

import numpy as np

from strandline.operators.join.definition import JoinDefinition
from strandline.operators.join.join_windows import SIDES
from strandline.operators.join.tuple_record import (
    BAND,
    FITS_WORD,
    HIGH,
    KEEP,
    KEEPS,
    KEEPS_NULL,
    LOW,
    OUTER,
    PER_KEY,
    PER_PARTITION,
    REACH,
    RULES,
    SIZE,
)
from strandline.operators.kernels.kernel_arrays import Int64s

_FORMS: Final = {"band": BAND, "key": PER_KEY, "partition": PER_PARTITION}


def rules_of(definition: JoinDefinition) -> Int64s:
    """Returns the rules of a join by their numbers in `tuple_record`."""
    windows, rules = definition.windows, np.zeros(RULES, np.int64)
    rules[0], rules[LOW], rules[HIGH] = _FORMS[windows.kind], windows.low, windows.high
    rules[FITS_WORD] = definition.fits_word
    for side in SIDES:
        rules[OUTER + side], rules[SIZE + side] = windows.outer[side], windows.sizes[side]
        rules[REACH + side], rules[KEEP + side] = windows.reach[side], windows.keep[side]
        rules[KEEPS + side], rules[KEEPS_NULL + side] = windows.keeps[side], windows.keeps_null(side)
    return rules
