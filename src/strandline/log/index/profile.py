"""How the tuples of a block lie over its time, as far as a chart needs to know.

A block that a task wrote covers a short time, and its tuples count as spread evenly over it. One that compaction made
covers what many did, so that a quiet night or a busy hour would be gone from the picture. Its profile is kept in its
name, as `reason` is: 64 digits, one for each slice of its time, of 0 to z. A name costs no format, and readers
that do not know of profiles do not need them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.log.stream.block import Block

SLICES = 64
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_IN_NAME = rf"-(?P<profile>[0-9a-z]{{{SLICES}}})(?:\.[a-z_]+)?\.parquet$"
_NAME_MIN = 20 + 1 + 20 + 1 + SLICES + len(".parquet")

Floats = npt.NDArray[np.float64]


class Spans:
    """Numbers of tuples, each spread evenly over a time from its first to its last."""

    def __init__(self, first: Floats, last: Floats, tuples: Floats) -> None:
        self.first = first
        self.last = last
        self.tuples = tuples

    def over(self, lowest: float, highest: float, buckets: int) -> Floats:
        """Returns the tuples in each of so many equal parts of the time from `lowest` to `highest`."""
        width = (highest - lowest + 1.0) / buckets
        edges = lowest + width * np.arange(buckets + 1)
        low, high = (np.clip((t - lowest) // width, 0, buckets - 1).astype(int) for t in (self.first, self.last))
        counts = np.bincount(low, weights=np.where(low == high, self.tuples, 0.0), minlength=buckets).astype(np.float64)
        # Few lie across an edge: their tuples before each edge, by the part of their time that lies there.
        across = low != high
        begin, length, many = self.first[across], (self.last - self.first + 1.0)[across], self.tuples[across]
        before = [float(np.sum(many * np.clip((edge - begin) / length, 0.0, 1.0))) for edge in edges]
        return counts + np.diff(before)

    def sliced(self, profiles: pa.ChunkedArray) -> Spans:
        """Returns the blocks, each cut into the slices of its profile, which is null where there is none."""
        is_profiled = profiles.is_valid().to_numpy()
        if not is_profiled.any():
            return self
        digits = np.frombuffer("".join(profiles.drop_null().to_pylist()).encode(), dtype=np.uint8).reshape(-1, SLICES)
        levels = _LEVELS[digits]
        first, last, tuples = (a[is_profiled, None] for a in (self.first, self.last, self.tuples))
        shares = tuples * levels / np.maximum(levels.sum(axis=1, keepdims=True), 1.0)
        width = (last - first + 1.0) / SLICES
        begins = first + width * np.arange(SLICES)
        rest = ~is_profiled
        return Spans(
            np.concatenate([self.first[rest], begins.ravel()]),
            np.concatenate([self.last[rest], (begins + np.maximum(width - 1.0, 0.0)).ravel()]),
            np.concatenate([self.tuples[rest], shares.ravel()]),
        )


_LEVELS: Floats = np.zeros(256)
_LEVELS[np.frombuffer(_DIGITS.encode(), dtype=np.uint8)] = np.arange(len(_DIGITS))


def profiles_of(files: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns the profiles that the names of blocks hold; null where a name holds none."""
    is_long = pc.greater_equal(pc.binary_length(files), _NAME_MIN)
    if not pc.any(is_long).as_py():
        return pa.chunked_array([pa.nulls(len(files), pa.string())])
    return pc.struct_field(pc.extract_regex(files, _IN_NAME), "profile")


def profile_of(run: Sequence[Block]) -> str:
    """Returns the profile of the block that takes the place of these."""
    counted = [b for b in run if b.has_results] or run
    spans = Spans(
        np.asarray([b.time_min for b in counted], dtype=np.float64),
        np.asarray([b.time_max for b in counted], dtype=np.float64),
        np.asarray([b.results or b.tuples for b in counted], dtype=np.float64),
    ).sliced(profiles_of(pa.chunked_array([[b.file for b in counted]], pa.string())))
    found = spans.over(min(float(b.time_min) for b in counted), max(float(b.time_max) for b in counted), SLICES)
    highest = max(float(found.max()), 1e-9)
    levels = np.ceil(found / highest * (len(_DIGITS) - 1) - 0.5)
    # Where there is anything at all, it is seen.
    return "".join(_DIGITS[int(max(level, 1 if many > 1e-9 else 0))] for level, many in zip(levels, found, strict=True))
