"""SPADE, table 1: how many tuples a second a join takes in, over windows of several sizes."""

from __future__ import annotations

import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.harness import rounds, say, spread
from benchmarks.orders import EVERY_US
from benchmarks.papers.figure import Claim, Data, Experiment, Figure, Panel, Size
from benchmarks.papers.spade.periods import INPUT_RATES, OUTPUT_RATES, Periods, by_key, by_looking, matches_of
from strandline.operators.join.definition import GROUP, JoinDefinition

_WINDOWS: Final = {"tiny": (8_192, 16_384), "small": tuple(INPUT_RATES), "full": tuple(INPUT_RATES)}
_EACH: Final = {"tiny": 512, "small": 4_096, "full": 8_192}
"""Tuples of a side in a batch."""
_BATCHES: Final = {"tiny": 1, "small": 2, "full": 8}
_ROUNDS: Final = {"tiny": 1, "small": 3, "full": 5}
_LOOKING, _KEYED = "compared with the whole window", "found by key"
_COLUMNS: Final = ("left_at", "right_at")


def measure(size: Size, folder: Path) -> Data:
    """Measures two joins that find the same pairs: one looks through the window as the paper's, one goes by key."""
    rates: dict[str, dict[str, float]] = {_LOOKING: {}, _KEYED: {}}
    results: dict[str, float] = {}
    spreads: dict[str, float] = {}
    for window in _WINDOWS[size]:
        tuples = Periods.of_window(window, matches_of(window), _EACH[size], _BATCHES[size])
        tables = _placed(tuples.tables())
        joins = {_LOOKING: by_looking(window, GROUP), _KEYED: by_key(window, GROUP)}
        pairs = {name: _run(join, tables)[1] for name, join in joins.items()}  # compiles
        if not np.array_equal(*pairs.values()) or not pairs[_KEYED].size:
            raise RuntimeError(f"the joins over a window of {window:,} have found different pairs, or none")
        taken = rounds({name: partial(_seconds, join, tables) for name, join in joins.items()}, _ROUNDS[size])
        for name, seconds in taken.items():
            rates[name][str(window)] = round(tuples.measured / min(seconds), 1)
        results[str(window)] = round(pairs[_KEYED].shape[1] / len(tuples.right), 2)
        spreads[str(window)] = max(map(spread, taken.values()))
        told = ", ".join(f"{rates[name][str(window)]:,.0f} {name}" for name in joins)
        say(f"SPADE, table 1, window of {window:,}: tuples/s {told}; {results[str(window)]} results a right tuple")
    return {"input": rates, "matches": results, "spread": spreads}


def _placed(tables: list[tuple[pa.Table, pa.Table]]) -> list[list[pa.Table]]:
    """Returns the tuples with their places in the serialised input, which alternates between left and right."""

    def placed(table: pa.Table, side: int) -> pa.Table:
        return table.append_column("_offset", pa.array(_numbers(table.column("at")) * 2 + side))

    return [[placed(table, side) for side, table in enumerate(pair)] for pair in tables]


def _seconds(join: JoinDefinition, tables: list[list[pa.Table]]) -> float:
    return _run(join, tables)[0]


def _run(join: JoinDefinition, tables: list[list[pa.Table]]) -> tuple[float, Any]:
    """Returns the processor's seconds of all batches but the first, which fills the window, and all pairs in order."""
    operator, seconds = join.fresh(), 0.0
    names = [name for name, _ in join.result_columns]
    places = [names.index(name) for name in _COLUMNS]
    found: list[list[pa.Array]] = []
    for number, pair in enumerate(tables):
        began = time.process_time()
        operator.begin()
        found.extend(operator.feed(pair))
        operator.end()
        seconds += time.process_time() - began if number else 0.0
    columns = [np.concatenate([_numbers(arrays[place]) for arrays in found]) for place in places]
    order = np.lexsort(columns)
    return seconds, np.stack([column[order] for column in columns])


def _numbers(times: Any) -> Any:
    """Returns the numbers of tuples in their side, which their times tell."""
    return np.asarray(times.cast(pa.int64())) // EVERY_US


def _comparisons(rates: Any) -> list[float]:
    """Returns comparisons a second: each right tuple, half of the input, is compared with a whole window."""
    return [rate / 2 * int(window) for window, rate in rates.items()]


def _falls(data: Data) -> bool:
    """Returns whether each rate is lower than that of the next smaller window, and the last far below the first."""
    rates = list(data["input"][_LOOKING].values())
    return all(later < before for before, later in pairwise(rates)) and rates[-1] < rates[0] / 2


def _is_by_comparisons(data: Data) -> bool:
    """Returns whether comparisons a second stay within a factor of 2.5, while the windows differ by up to 16."""
    found = _comparisons(data["input"][_LOOKING])
    return max(found) < 2.5 * min(found)


def _panels(data: Data) -> list[Panel]:
    def line(rates: Any) -> list[tuple[float, float]]:
        return [(float(window), rate) for window, rate in rates.items()]

    looking, keyed = line(data["input"][_LOOKING]), line(data["input"][_KEYED])
    compared = [(x, y / 2 * x / 1e6) for x, y in looking]
    theirs = [(float(window), rate / 2 * window / 1e6) for window, rate in INPUT_RATES.items()]
    axis = "tuples in the window (logarithmic)"
    return [
        Panel(
            "input rate",
            axis,
            "tuples a second (logarithmic)",
            ours={_LOOKING: looking, _KEYED: keyed},
            paper={"": line(INPUT_RATES)},
            log_x=True,
            log_y=True,
        ),
        Panel(
            "comparisons",
            axis,
            "million a second (logarithmic)",
            ours={_LOOKING: compared},
            paper={"": theirs},
            log_x=True,
            log_y=True,
        ),
    ]


def _table(data: Data) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("window", "results a right tuple", "paper", "tuples/s, whole window", "tuples/s, by key", "paper", "spread")
    ]
    for window, matches in data["matches"].items():
        rows.append(
            (
                f"{int(window):,}",
                f"{matches:.2f}",
                f"{matches_of(int(window)):.2f}",
                f"{data['input'][_LOOKING][window]:,.0f}",
                f"{data['input'][_KEYED][window]:,.0f}",
                f"{INPUT_RATES[int(window)]:,.0f}",
                f"{100 * data['spread'][window]:.0f} %",
            )
        )
    return rows


def _with_rates(*rates: float) -> Data:
    return {"input": {_LOOKING: dict(zip(map(str, INPUT_RATES), rates, strict=False))}}


_THEIRS: Final = _with_rates(*INPUT_RATES.values())

_FIGURE = Figure(
    "spade-table1",
    "Table 1: input rate of a join over windows of 8,192 to 131,072 tuples",
    "a join of two streams at full speed, half of the tuples from each. A window of the last 8,192 to 131,072 tuples "
    "of the first stream, none of the second; each tuple of the second is compared with the whole window. Tuples hold "
    "two integers and 70 bytes, and one integer and 10 bytes.",
    f"From {max(INPUT_RATES.values()):,.0f} tuples a second at 8,192 the rate falls to "
    f"{min(INPUT_RATES.values()):,.0f} at 131,072, because there are more tuples to compare with. The output rate goes "
    f"from {max(OUTPUT_RATES.values()):,.0f} to {min(OUTPUT_RATES.values()):,.0f}.",
    "The operator alone on one core, without logs and Spark, in seconds of the processor. The keys are so many that a "
    "tuple meets as many as in the paper (output rate over half of the input rate). Two joins find the same pairs: "
    "match='any' compares a tuple with the whole window, as the paper's join does; a join of equal keys, which is our "
    "usual one, finds tuples by their key. The window is full from the beginning; in the paper's 200 seconds the two "
    "largest fill up only during the run.",
    _panels,
    [
        Claim(
            "The input rate falls as the window grows",
            _falls,
            refuted_by=_with_rates(9350, 9300, 9250, 9200, 9150),
            shown_by=_THEIRS,
            why_not="see the table",
        ),
        Claim(
            "It falls because there are more comparisons: their number a second hardly depends on the window",
            _is_by_comparisons,
            refuted_by=_with_rates(9350, 9300, 9250, 9200, 9150),
            shown_by=_THEIRS,
            why_not="see the table",
        ),
    ],
    _table,
)

EXPERIMENT = Experiment("spade-windows", "spade", measure, [_FIGURE])
