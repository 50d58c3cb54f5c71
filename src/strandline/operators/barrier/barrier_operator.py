"""A barrier at work on one partition: tuples in, sets and footprints out.

A tuple that waits needs no footprint as long as it can be replayed. Which of the replayed tuples still wait is told by
the results: each says of which tuples it was made. So a recovery reads the results since the oldest tuple without a
footprint, the footprints of the others, and the input since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.arrow_rows import in_order, rows_of
from strandline.control_columns import OFFSET
from strandline.operators.barrier import footprint_queue, matching
from strandline.operators.barrier.barrier_aside import BarrierAside
from strandline.operators.barrier.barrier_columns import (
    closed_of,
    dropped_of,
    footprints_of,
    incoming_of,
    loaded_tuples,
    results_of,
)
from strandline.operators.barrier.consumed import Consumed
from strandline.operators.barrier.definition import BarrierDefinition
from strandline.operators.barrier.matching import AT, NONE, POS, SINCE, Incoming, Outgoing
from strandline.operators.barrier.waiting_state import WaitingState
from strandline.operators.kernels.kernel_arrays import Int64s, sealed
from strandline.operators.operator import Extent, Footprints, Limits, OnError, Operator, Saved, StateImage
from strandline.units import END_OF_TIME

_ROWS_MAX = 1 << 18


class BarrierOperator(Operator):
    """A definition with the tuples that wait."""

    def __init__(self, definition: BarrierDefinition, state: WaitingState, on_error: OnError = "stop") -> None:
        self.definition = definition
        self.state = state
        self.on_error = on_error
        self.aside = BarrierAside(definition)
        """The tuples and windows that this step has set aside."""
        self.opened = 0
        """How many tuples began to wait in this step."""
        self._written = 0
        self._fresh: list[Int64s] = []
        """Records and places of tuples that began to wait since the last `save`."""
        self._unsaved: Int64s = np.empty(0, np.int64)
        self._consumed = Consumed.nothing(len(definition.inputs))

    @property
    def input_end(self) -> int:
        """The state holds the input tuples before this place."""
        return self.state.input_end

    @input_end.setter
    def input_end(self, place: int) -> None:
        self.state.input_end = place

    @property
    def open_windows(self) -> int:
        """N: tuples that wait."""
        return self.state.waiting

    @property
    def rows_at_once(self) -> int:
        """How many tuples to feed at a time."""
        return _ROWS_MAX

    @property
    def due(self) -> int | None:
        """Nothing happens to a barrier because time passes."""
        return END_OF_TIME

    def begin(self) -> None:
        """Begins a step."""
        self.state.begin()
        self.aside = BarrierAside(self.definition)
        self.opened = self._written = 0
        self._consumed = Consumed.nothing(len(self.definition.inputs))

    # ------------------------------------------------------------------ tuples

    def feed(self, tuples: Sequence[pa.Table]) -> Iterator[list[pa.Array]]:
        """Takes in tuples, a table an input; yields the sets that they complete, with the places of their tuples."""
        made = self.definition.shaping.over(tuples, self.on_error, self.aside.add_unmade)
        tuples = self.aside.healthy(made, self.on_error)
        incoming = incoming_of(self.definition, self.state, tuples)
        many = len(incoming.keys)
        if not many:
            return
        out = self._run(incoming, matching.take_in, self.definition.at_most or NONE)
        sets, dropped = int(out.counts[0]), out.dropped[: out.counts[1]]
        shaped = self._shaped(tuples)
        new = [rows_of(table) for table in shaped]
        yield from results_of(self.definition, self.state, new, out.rows[:sets], out.places[:sets])
        if len(dropped) and not self.aside.is_ignoring:
            for number, table in dropped_of(self.definition, self.state, dropped, new):
                self.aside.add(number, table)
            self.aside.closed.append(closed_of(self.definition, self.state, dropped, new))
        self._written += sets + len(dropped)
        self.opened += int(out.counts[2])
        self._keep(shaped, incoming, out)
        self.input_end = int(incoming.places[-1]) + 1

    def _run(self, incoming: Incoming, kernel: Any, *options: int) -> Outgoing:
        """Returns what the kernel makes of the tuples, the state as large as it has to be for that."""
        many, inputs, state = len(incoming.keys), len(self.definition.inputs), self.state
        out = Outgoing(
            np.empty((many, inputs), np.int64),
            np.empty((many, inputs), np.int64),
            np.empty((many, 4), np.int64),
            np.empty((many, 2), np.int64),
            np.empty(many, np.int64),
            np.zeros(4, np.int64),
        )
        at, code = 0, matching.FULL
        is_word = self.definition.key_codec.fits_word
        while code == matching.FULL:
            at, code = kernel(state.arrays, incoming, at, is_word, *options, state.touched, out)
            if code == matching.FULL:
                state.grow()
        return out

    def _shaped(self, tuples: Sequence[pa.Table]) -> list[pa.Table]:
        return [payload.shaped(table) for payload, table in zip(self.state.payloads, tuples, strict=True)]

    def _keep(self, payloads: Sequence[pa.Table], incoming: Incoming, out: Outgoing) -> None:
        """Takes over what the tuples that began to wait refer to."""
        state = self.state
        state.keep_bytes(out.fresh_keys[: out.counts[3]], incoming.bytes)
        fresh = out.fresh[: out.counts[2]]
        self._fresh.append(fresh)
        fresh = fresh[state.arrays.tuples[fresh[:, 0], AT] == fresh[:, 1]][:, 0]
        for i, payload in enumerate(state.payloads):
            own = fresh[state.arrays.tuples[fresh, matching.INPUT] == i]
            rows = state.arrays.tuples[own, matching.ROW] - payload.end
            state.arrays.tuples[own, matching.ROW] = payload.end + np.arange(len(own))
            payload.add(payload.end, in_order(payloads[i], rows), state.waiting)

    def replay(self, tuples: Sequence[pa.Table]) -> None:
        """Lets those of the tuples wait that did so before: all that no result was made of."""
        made = self.definition.shaping.over(tuples, "set_aside", self.aside.add_unmade)
        made = self.aside.healthy(made, "set_aside")
        waiting = [self._consumed.others(i, table) for i, table in enumerate(made)]
        incoming = incoming_of(self.definition, self.state, waiting)
        if not len(incoming.keys):
            return
        out = self._run(incoming, matching.enter)
        slots = out.fresh[: out.counts[2], 0]
        self.state.arrays.tuples[slots, SINCE] = self._consumed.since(incoming.places)
        self._keep(self._shaped(waiting), incoming, out)

    # ------------------------------------------------------------------ footprints

    def save(self, position: int, limits: Limits) -> Footprints:
        """Returns footprints of the tuples that must have one now, then of the oldest ones as the limits ask."""
        state, tuples = self.state, self.state.arrays.tuples
        for fresh in self._fresh:
            new = fresh[tuples[fresh[:, 0], AT] == fresh[:, 1], 0]
            tuples[new, SINCE] = np.where(tuples[new, SINCE] < 0, position - self._written, tuples[new, SINCE])
            state.touched.tuples[new] = 1
        begin, opened = position, self._save_these(self._unsaved, position)
        position += len(self._unsaved)
        state.reserve_prints(state.waiting)
        chosen = np.empty(state.waiting, np.int64)
        words = [limits.extent, limits.replay, limits.cost, limits.extent_cost, limits.replay_cost, limits.budget]
        asked = sealed(np.array(words, np.float64))
        many = int(footprint_queue.save_oldest(state.arrays, position, 0, asked, state.touched, chosen))
        if limits.slow is not None:
            before = min(limits.slow.written_before, begin)
            told = sealed(np.array([limits.slow.opened_before, before, limits.slow_budget(many)], np.int64))
            rest = chosen[many:]
            many += int(footprint_queue.save_slow(state.arrays, position + many, told, state.touched, rest))
            many = int(footprint_queue.save_oldest(state.arrays, position, many, asked, state.touched, chosen))
        self._forget()
        return Footprints(opened, self._footprints(chosen[:many]))

    def save_all(self, position: int) -> Footprints:
        """Returns a footprint of every tuple that waits: an instant checkpoint."""
        return Footprints(self.save_nothing().opened, self._save_these(self.state.live(), position))

    def save_nothing(self) -> Footprints:
        nothing = self._footprints(np.empty(0, np.int64))
        self._forget()
        return Footprints(nothing, nothing)

    def _forget(self) -> None:
        self._fresh, self._unsaved = [], np.empty(0, np.int64)

    def _save_these(self, slots: Int64s, position: int) -> list[pa.Array]:
        self.state.reserve_prints(len(slots))
        footprint_queue.note_prints(
            self.state.arrays, sealed(slots), sealed(position + np.arange(len(slots))), self.state.touched
        )
        return self._footprints(slots)

    def _footprints(self, slots: Int64s) -> list[pa.Array]:
        tuples = self.state.arrays.tuples[slots]
        lines = tuples[:, [matching.INPUT, matching.ROW, AT]]
        return footprints_of(self.definition, self.state, lines, np.full(len(slots), self.input_end))

    def mark_unsaved(self, *, every: bool = False) -> None:
        """Lets the next `save` write tuples without a footprint; with `every` all, for none that there is counts."""
        live, tuples = self.state.live(), self.state.arrays.tuples
        if every:
            tuples[live, POS] = NONE
            self.state.touched.tuples[live] = 1
        self._unsaved = live[tuples[live, POS] < 0]

    def end(self) -> None:
        self.state.drop_garbage()

    @property
    def in_footprints(self) -> int:
        """The number of tuples that wait and have a footprint; all others come back with the replay."""
        return int(np.count_nonzero(self.state.arrays.tuples[self.state.live(), POS] >= 0))

    def extent(self, position: int) -> Extent:
        w = self.state.arrays
        unsaved, saved = int(footprint_queue.oldest_unsaved(w)), int(footprint_queue.oldest_print(w))
        since = int(w.tuples[unsaved, SINCE]) if unsaved >= 0 else NONE
        first = int(w.tuples[saved, POS]) if saved >= 0 else position
        oldest = int(w.tuples[unsaved, AT]) if unsaved >= 0 else self.input_end
        return Extent(self.state.waiting, oldest, min(position, first, since if since >= 0 else position))

    def load(self, newest_first: Iterable[Saved]) -> None:
        """Takes the newest footprint of every tuple into a fresh state, but of those that results were made of."""
        closed, footprints = [], []
        for stretch in newest_first:
            closed.append(stretch.closed)
            order = pc.sort_indices(stretch.footprints, [(OFFSET, "descending")])
            footprints.append(in_order(stretch.footprints, order.to_numpy().astype(np.int64)))
        self._consumed = Consumed.of(self.definition, closed)
        if not footprints:
            return
        tables, offsets = loaded_tuples(self.definition, pa.concat_tables(footprints), self._consumed)
        incoming = incoming_of(self.definition, self.state, tables)
        if not len(incoming.keys):
            return
        out = self._run(incoming, matching.enter)
        slots = out.fresh[: out.counts[2], 0]
        self._keep(self._shaped(tables), incoming, out)
        self.state.reserve_prints(len(slots))
        order = np.argsort(offsets)
        footprint_queue.note_prints(self.state.arrays, sealed(slots[order]), sealed(offsets[order]), self.state.touched)

    def oldest_footprint(self) -> tuple[int, int] | None:
        slot = int(footprint_queue.oldest_print(self.state.arrays))
        if slot < 0:
            return None
        return int(self.state.arrays.tuples[slot, AT]), int(self.state.arrays.tuples[slot, POS])

    def windows(self, *, now: bool = False) -> list[pa.Array]:
        """Returns every tuple that waits in the columns of a footprint."""
        return self._footprints(self.state.live())

    def image(self) -> StateImage:
        return self.state.image()
