"""The join at work on one partition: tuples of two inputs in, pairs and footprints out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.arrow_rows import Rows, rows_of, stacked
from strandline.control_columns import OFFSET
from strandline.operators.join import settling_kernels
from strandline.operators.join.definition import JoinDefinition
from strandline.operators.join.join_aside import JoinAside
from strandline.operators.join.join_columns import load_tuples, pair_values, portions_of, result_columns
from strandline.operators.join.join_kernels import take_in_lists, take_in_stretches, take_in_trails
from strandline.operators.join.join_saving import JoinSaving
from strandline.operators.join.join_windows import LEFT, NAMES, RIGHT, SIDES
from strandline.operators.join.predicate import Predicate
from strandline.operators.join.saved_groups import SavedGroups
from strandline.operators.join.tuple_record import (
    BYTES_END,
    DONE,
    FIRST,
    FOUND,
    FULL,
    GROW,
    HEAD,
    LIVE,
    MEETS,
    PROGRESS,
    ROW,
    SETTLED,
    TAIL,
    TIME,
    WHO,
    Arrivals,
    Pairs,
    rules_of,
)
from strandline.operators.join.tuple_ring import TupleRing
from strandline.operators.join.window_meeting import WindowMeeting
from strandline.operators.kernels.arrow_words import validity, words_of
from strandline.operators.kernels.kernel_arrays import sealed
from strandline.operators.open_windows.payloads import Payloads
from strandline.operators.operator import OnError, Saved, StateImage
from strandline.operators.versions import OtherVersionError

ROWS_MAX: Final = 1 << 20
"""Tuples that go through a kernel at once."""
PAIRS_MAX: Final = 1 << 17
"""Results that are made at once."""
_CONDITION: Final = "condition"
_LOOPS: Final = {"band": take_in_trails, "partition": take_in_trails, "key": take_in_lists, "any": take_in_stretches}
Arrays = list[pa.Array]
_NONE: Final[tuple[list[Rows], list[Rows]]] = ([], [])


class JoinOperator(JoinSaving):
    """A join with the tuples that it keeps of both sides."""

    def __init__(
        self,
        definition: JoinDefinition,
        rings: tuple[TupleRing, TupleRing],
        payloads: tuple[Payloads, Payloads],
        groups: npt.NDArray[np.int64] | None = None,
        on_error: OnError = "stop",
    ) -> None:
        self.definition = definition
        self.on_error = on_error
        self.rings = rings
        self.payloads = payloads
        self.groups = SavedGroups(rings, groups)
        self.aside = JoinAside(definition)
        """The tuples and windows that this step has set aside."""
        self.opened = 0
        """How many tuples were taken into windows in this step."""
        self.rules = rules_of(definition)
        self.loaded = [-1, -1]
        """Recovery: the place of the last tuple of each side that came from footprints."""
        self._pairs: Pairs | None = None
        self._met: Pairs | None = None
        self._group_room = self.groups.room

    @classmethod
    def new(cls, definition: JoinDefinition, on_error: OnError = "stop") -> JoinOperator:
        """Returns an operator without tuples."""
        left, right = (TupleRing.empty(definition, side) for side in SIDES)
        payloads = Payloads(definition.payload_schemas[LEFT]), Payloads(definition.payload_schemas[RIGHT])
        return cls(definition, (left, right), payloads, None, on_error)

    @classmethod
    def of(
        cls, definition: JoinDefinition, arrays: Mapping[str, npt.NDArray[Any]], on_error: OnError = "stop"
    ) -> JoinOperator:
        """Returns the operator that left these arrays; ValueError if they do not fit."""
        try:
            rings, payloads = [], []
            for side, name in enumerate(NAMES):
                mine = {k.removeprefix(f"{name}_"): a for k, a in arrays.items() if k.startswith(f"{name}_")}
                rings.append(TupleRing.of(definition, mine))
                payloads.append(Payloads(definition.payload_schemas[side], mine["payloads"], mine["chunks"]))
            groups = arrays["groups"]
            if not np.array_equal(arrays[_CONDITION], _condition_stamp(definition)):
                raise OtherVersionError("another version of the condition decided which tuples have a match")
        except KeyError as missing:
            raise ValueError(f"no array {missing}") from None
        return cls(definition, (rings[0], rings[1]), (payloads[0], payloads[1]), groups, on_error)

    # ------------------------------------------------------------------ where it stands

    @property
    def rows_at_once(self) -> int:
        return ROWS_MAX

    @property
    def due(self) -> int | None:
        """The first boundary at which `advance` does anything; None if there is none, or tuples go by count."""
        windows, found = self.definition.windows, []
        if not windows.is_band:
            return None
        for side, ring in enumerate(self.rings):
            for word, after, counts in ((SETTLED, windows.reach, windows.outer[side]), (HEAD, windows.keep, True)):
                if counts and ring[word] < ring[TAIL]:
                    found.append(int(ring.read(np.array([ring[word]]))[TIME, 0]) + after[side] + 1)
        return min(found, default=None)

    def begin(self) -> None:
        for ring, payloads in zip(self.rings, self.payloads, strict=True):
            ring.begin()
            payloads.begin()
        self._group_room = self.groups.room
        self.aside = JoinAside(self.definition)
        self.opened = 0

    def end(self) -> None:
        for side, ring in enumerate(self.rings):
            if ring.is_sparse:
                numbers = ring.renumber()
                self.payloads[side].choose(numbers)
                self.groups.renumber(side, numbers)
            ring.drop_bytes()

    # ------------------------------------------------------------------ tuples

    def feed(self, tuples: Sequence[pa.Table]) -> Iterator[Arrays]:
        """Takes in tuples of both sides; the pairs that they make, and what comes out unmatched before them."""
        end = self._end_of(tuples)
        healthy = self.aside.shaped(self._by_side(tuples), self.on_error)
        yield from self._run(healthy, meets=True)
        self.opened += sum(t.num_rows for t, keeps in zip(healthy, self.definition.windows.keeps, strict=True) if keeps)
        self.input_end = end

    def repeat(self, tuples: Sequence[pa.Table]) -> None:
        """Takes in tuples as `feed` did before, without results: who only looks need not know the condition."""
        end = self._end_of(tuples)
        self.take_again(self.aside.shaped(self._by_side(tuples), "set_aside"))
        self.input_end = end

    def _by_side(self, tuples: Sequence[pa.Table]) -> Sequence[pa.Table]:
        """Returns the tuples of left and of right; of a stream that is joined with itself these are the same."""
        return [tuples[0], tuples[0]] if self.definition.is_self else tuples

    def _end_of(self, tuples: Sequence[pa.Table]) -> int:
        """Returns the place behind the last of these tuples, or of those before."""
        return max([self.input_end, *(int(t.column(OFFSET)[-1].as_py()) + 1 for t in tuples if t.num_rows)])

    def replay(self, tuples: Sequence[pa.Table]) -> None:
        """Takes in tuples that were seen before, but for those up to the last one of their side that was loaded."""
        new = [
            table.slice(int(np.searchsorted(words_of(table.column(OFFSET), "long")[0], last, side="right")))
            for table, last in zip(self._by_side(tuples), self.loaded, strict=True)
        ]
        self.take_again(self.aside.shaped(new, "set_aside"))

    def take_again(self, tuples: Sequence[pa.Table]) -> None:
        """Takes in tuples without results. They meet only if it matters who was matched."""
        for _ in self._run(tuples, meets=self.definition.windows.how != "inner", emits=False):
            pass
        self.end()

    def load(self, newest_first: Iterable[Saved]) -> None:
        """Takes in the newest footprint of each tuple, into an operator that has seen nothing."""
        load_tuples(self, newest_first)

    def advance(self, boundary: int) -> Arrays | None:
        """Drops the tuples that are over when time has passed this; returns their results without a match."""
        if not self.definition.has_times:
            return None
        parts: list[Arrays] = []
        self._place()
        code = FULL
        while code == FULL:
            progress = _progress(meets=True)
            pairs = self._room()
            left, right = (ring.arrays for ring in self.rings)
            code = settling_kernels.pass_time(left, right, self.rules, boundary, pairs, progress)
            found = pairs.rows(slice(progress[FOUND]))
            parts += (result_columns(self, part, _NONE) for part in portions_of(self, found, _NONE))
        for ring, payloads in zip(self.rings, self.payloads, strict=True):
            payloads.drop_before(ring[HEAD])
        return stacked(parts) if parts else None

    def _run(self, tuples: Sequence[pa.Table], *, meets: bool, emits: bool = True) -> Iterator[Arrays]:
        """Takes in tuples of both sides, in the order of their places; results, part by part."""
        windows = self.definition.windows
        shaped = [payloads.shaped(t) for payloads, t in zip(self.payloads, tuples, strict=True)]
        new = [rows_of(t) for t in shaped]
        self._place()
        base, bytes_before = ([ring[word] for ring in self.rings] for word in (TAIL, BYTES_END))
        arrivals = [self._arrivals(side, t) for side, t in enumerate(tuples)]
        matched = [
            np.zeros(ring[TAIL] - ring[FIRST] + t.num_rows if windows.how != "inner" else 0, np.uint8)
            for ring, t in zip(self.rings, tuples, strict=True)
        ]
        progress, code = _progress(meets=meets), FULL
        meeting = None
        if windows.meets_any and meets:
            self._met = self._met or Pairs.room(PAIRS_MAX)
            meeting = WindowMeeting(self, new, [a.times for a in arrivals], self._met)
        take_in = _LOOPS["any" if windows.meets_any else windows.kind]
        while code != DONE:
            pairs = self._room()
            left, right = (ring.arrays for ring in self.rings)
            code = take_in(left, right, *arrivals, self.rules, pairs, progress)
            if code == GROW:
                who = int(progress[WHO])
                self.rings[who].grow(tuples[who].num_rows - int(progress[ROW + who]))
            elif progress[FOUND]:
                found = pairs.rows(slice(progress[FOUND]))
                progress[FOUND] = 0
                for met in [found] if meeting is None else meeting.pairs(found, emits=emits):
                    chosen = self._chosen(met, new, matched, emits=emits)
                    if emits:
                        for part in portions_of(self, chosen, new):
                            yield result_columns(self, part, new)
            elif code == FULL:
                self._pairs = Pairs.room(2 * len(pairs.left))
        for side, ring in enumerate(self.rings):
            if not windows.keeps[side]:
                ring[BYTES_END] = bytes_before[side]
            kept = max(ring[HEAD], base[side])
            self.payloads[side].drop_before(ring[HEAD])
            self.payloads[side].add(kept, shaped[side].slice(kept - base[side]), ring[LIVE])

    def _chosen(
        self, found: Pairs, new: list[list[Rows]], matched: list[npt.NDArray[np.uint8]], *, emits: bool
    ) -> Pairs:
        """Returns the pairs that are results; tuples of outer sides know afterwards whether they were matched."""
        windows, where = self.definition.windows, self.definition.where
        if windows.meets_any or (where is not None and where.function is None and not emits):
            where = None  # judged already; or without results: which tuples are kept does not depend on it
        if where is None and windows.how == "inner":
            return found
        true = np.ones(len(found.left), np.uint8)
        if where is not None:
            true = self._condition(where, found, new, emits=emits)
        if windows.how == "inner":
            return found.rows(true != 0)
        chosen = np.empty(len(found.left), np.int64)
        left, right = (ring.arrays for ring in self.rings)
        many = settling_kernels.settle_pairs(left, right, self.rules, found, true, *matched, chosen)
        return found.rows(chosen[:many])

    def _condition(
        self, where: Predicate, pairs: Pairs, new: list[list[Rows]], *, emits: bool
    ) -> npt.NDArray[np.uint8]:
        """Returns 1 for each pair that satisfies the condition, 0 for tuples that come out alone.

        Pairs for which it cannot be computed do not satisfy it; with `emits` they are set aside, or raised.
        """
        both = np.flatnonzero((pairs.left >= 0) & (pairs.right >= 0))
        parts = portions_of(self, pairs.rows(both), new)
        found = [np.empty(0, np.uint8), *(self._judged(where, part, new, emits=emits) for part in parts)]
        true = np.zeros(len(pairs.left), np.uint8)
        true[both] = np.concatenate(found)
        return true

    def _judged(self, where: Predicate, pairs: Pairs, new: list[list[Rows]], *, emits: bool) -> npt.NDArray[np.uint8]:
        d = self.definition
        left, right = (pair_values(self, side, where.names[side], pairs, new[side]) for side in SIDES)
        judged = where.holds((left, right), (d.types_of(LEFT), d.types_of(RIGHT)), len(pairs.left))
        if judged.failed and emits:
            unfit = pairs.rows(np.array([row for row, _ in judged.failed]))
            self.aside.add_pairs(result_columns(self, unfit, new), [why for _, why in judged.failed], self.on_error)
        return judged.true

    def _place(self) -> None:
        """Says from which number on places are counted."""
        for ring, payloads in zip(self.rings, self.payloads, strict=True):
            ring[FIRST] = ring[HEAD] if payloads.first is None else payloads.first

    def _arrivals(self, side: int, table: pa.Table) -> Arrivals:
        d, ring = self.definition, self.rings[side]
        times, _ = words_of(table.column(d.times[side]), d.time_types[side])
        places, _ = words_of(table.column(OFFSET), "long")
        if d.windows.meets_any:  # a key is a column as others are
            none = np.zeros(table.num_rows, np.int64)
            return Arrivals(none, none, sealed(np.zeros(table.num_rows, np.uint8)), times, places)
        columns = [table.column(c) for c, _ in d.key]
        keys, key_at, data = d.key_codec.encode(columns, ring[BYTES_END])
        if not d.key_codec.fits_word:
            ring.add_bytes(data)
        nulls = np.zeros(table.num_rows, np.uint8)
        for column in columns:
            if column.null_count:
                nulls |= 1 - validity(column)
        return Arrivals(keys, key_at, sealed(nulls), times, places)

    def _room(self) -> Pairs:
        """Returns the room for results, which is used again and again: columns made of it are copies."""
        self._pairs = self._pairs or Pairs.room(PAIRS_MAX)
        return self._pairs

    # ------------------------------------------------------------------ the state as arrays

    def image(self) -> StateImage:
        """Returns all arrays of the state, and which of their rows were changed since `begin`."""
        arrays: dict[str, npt.NDArray[Any]] = {
            "groups": self.groups.table,
            _CONDITION: _condition_stamp(self.definition),
        }
        changed: dict[str, npt.NDArray[Any] | slice] = {
            "groups": slice(0, len(arrays["groups"])),
            _CONDITION: slice(0, 0),
        }
        is_replaced = self.groups.room != self._group_room
        for ring, payloads, name in zip(self.rings, self.payloads, NAMES, strict=True):
            mine = {**ring.image(), "payloads": payloads.arena, "chunks": payloads.table}
            rows = {**ring.changed(), "payloads": payloads.changed, "chunks": slice(0, len(mine["chunks"]))}
            arrays |= {f"{name}_{k}": a for k, a in mine.items()}
            changed |= {f"{name}_{k}": r for k, r in rows.items()}
            is_replaced = is_replaced or ring.is_replaced or payloads.is_replaced
        return StateImage(arrays, None if is_replaced else changed)


def _progress(*, meets: bool) -> npt.NDArray[np.int64]:
    progress = np.zeros(PROGRESS, np.int64)
    progress[MEETS] = meets
    return progress


def _condition_stamp(definition: JoinDefinition) -> npt.NDArray[np.uint64]:
    """Returns a stamp of an outer join's condition, by which tuples are matched; an inner join has none."""
    where = definition.where
    if where is None or definition.windows.how == "inner":
        return np.zeros(1, np.uint64)
    told = f"{where.version} {where.text}".encode()
    return np.array([int.from_bytes(hashlib.sha256(told).digest()[:8], "little")], np.uint64)
