"""Checks of the windows in footprints, before kernels see them: can tuples have made such a state?"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from strandline.arrow_types import decimal_of
from strandline.operators.aggregate import sketches
from strandline.operators.aggregate.aggregates import Accumulator, Op
from strandline.operators.aggregate.definition import END, OPENED, ROWS, START, AggregateDefinition
from strandline.operators.kernels.arrow_words import validity
from strandline.operators.kernels.kernel_arrays import Int64s
from strandline.operators.open_windows.record import END as END_WORD
from strandline.operators.open_windows.record import OPENED as OPENED_WORD
from strandline.operators.open_windows.record import OVERFLOWED, POS, T
from strandline.operators.open_windows.record import ROWS as ROWS_WORD
from strandline.operators.open_windows.record import START as START_WORD
from strandline.operators.operator import TAKEN_IN
from strandline.operators.unsound_footprint import require_sound, require_values

_ABSENT, _VALUE, _NULL = 0, 1, 2
"""The flag of a value: no tuple yet, a value, a null."""


def require_sound_windows(definition: AggregateDefinition, table: pa.Table, records: Int64s) -> None:
    """Raises UnsoundFootprintError if footprints, and the records made of them, hold what tuples cannot have made."""
    at, rows = records[:, POS], records[:, ROWS_WORD]
    parts = [f"_{a.name}_{part}" for a in definition.accumulators for part, _ in a.parts if part != "value"]
    require_values(table, [START, END, TAKEN_IN, ROWS, OPENED, *parts])
    taken_in, opened = records[:, T], records[:, OPENED_WORD]
    is_opened = (opened >= 0) & (opened < taken_in)
    require_sound(is_opened, "the window was opened behind what the footprint holds", at)
    require_sound(rows >= 1, "the window has no tuples", at)
    if definition.window.has_times:
        require_sound(records[:, START_WORD] < records[:, END_WORD], "the window ends before it begins", at)
    else:
        require_sound(rows < definition.window.size, "the window has as many tuples as one that is complete", at)
    for a, word in zip(definition.accumulators, definition.words, strict=False):
        if a.op is Op.SKETCH:
            found = sketches.first_unsound(a, table.column(f"_{a.name}_sketch"), rows)
            require_sound(np.arange(len(rows)) != found, f"the sketch of {a.name} is none", at)
        else:
            _require_sound_numbers(a, table, records[:, word : word + a.places[-1]], rows, at)


def _require_sound_numbers(a: Accumulator, table: pa.Table, words: Int64s, rows: Int64s, at: Int64s) -> None:
    """Raises UnsoundFootprintError unless tuples can have made these words of an aggregate of fixed size."""
    places = {part: place for (part, _), place in zip(a.parts, a.places, strict=False)}
    if "n" in places:
        n = words[:, places["n"]]
        least = OVERFLOWED if a.count_place is not None else 0
        require_sound((n >= least) & (n <= rows), f"{a.name} has taken more values than there are tuples, or less", at)
        decimal = decimal_of(a.type)
        if a.op is Op.SUM_INT and decimal is not None:
            is_sum = (n == OVERFLOWED) | (np.abs(words[:, 0].astype(np.float64)) <= n * 10.0 ** decimal[0])
            require_sound(is_sum, f"the sum of {a.name} is larger than its values can be", at)
    if "flag" in places:
        flags, is_valid = words[:, places["flag"]], validity(table.column(f"_{a.name}_value")) == 1
        is_flag = (flags == _VALUE) | (flags == _NULL) | (flags == _ABSENT)
        require_sound(is_flag & ((flags == _VALUE) == is_valid), f"the value of {a.name} contradicts its flag", at)
