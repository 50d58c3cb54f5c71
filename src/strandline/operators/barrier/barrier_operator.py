"""A barrier at work on one partition: tuples in, sets and footprints out.

A tuple that waits needs no footprint as long as it can be replayed. Which of the replayed tuples still wait is told by
the results: each says of which tuples it was made. So a recovery reads the results since the oldest tuple without a
footprint, the footprints of the others, and the input since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.arrow_rows import in_order, rows_of
from strandline.control_columns import OFFSET
from strandline.operators.barrier.barrier_columns import (
    BarrierAside,
    closed_of,
    dropped_of,
    footprints_of,
    incoming_of,
    loaded_tuples,
    results_of,
)
from strandline.operators.barrier.consumed import Consumed
from strandline.operators.barrier.definition import BarrierDefinition
from strandline.operators.barrier.matching import (
    INPUT,
    ROW,
    SINCE,
    Incoming,
    Outgoing,
    oldest_unsaved,
    save_oldest_tuples,
    save_slow_tuples,
    take_in,
)
from strandline.operators.barrier.waiting_state import WaitingState
from strandline.operators.kernels.kernel_arrays import Int32s, Int64s
from strandline.operators.open_windows.arrays import FULL
from strandline.operators.open_windows.record import NONE, OPENED, POS, QUEUE_TAIL, TICKET
from strandline.operators.open_windows.window_footprints import LimitBounds, Page, SlowBounds, oldest
from strandline.operators.open_windows.windows_at_work import OpenWindows
from strandline.operators.operator import Extent, Footprints, Limits, OnError, Saved
from strandline.units import END_OF_TIME


class BarrierOperator(OpenWindows):
    """A definition with the tuples that wait: N is how many."""

    definition: BarrierDefinition
    state: WaitingState
    aside: BarrierAside

    rows_at_once = 1 << 18
    due = END_OF_TIME

    def __init__(self, definition: BarrierDefinition, state: WaitingState, on_error: OnError = "stop") -> None:
        super().__init__(definition, state, on_error)
        self._written = 0
        self._entered: list[Int64s] = []
        """Records and places of tuples that began to wait since the last `save`."""
        self._unsaved: Int32s = np.empty(0, np.int32)
        self._consumed = Consumed.nothing(len(definition.inputs))

    def _nothing_aside(self) -> BarrierAside:
        return BarrierAside(self.definition)

    def begin(self) -> None:
        super().begin()
        self._written = 0
        self._consumed = Consumed.nothing(len(self.definition.inputs))

    # ------------------------------------------------------------------ tuples

    def feed(self, tuples: Sequence[pa.Table]) -> Iterator[list[pa.Array]]:
        made = self.definition.shaping.over(tuples, self.on_error, self.aside.add_unmade)
        tuples = self.aside.healthy(made, self.on_error)
        incoming = incoming_of(self.definition, self.state, tuples)
        if not len(incoming.rows):
            return
        out = self._run(incoming, completes_sets=True)
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
        self.input_end = int(incoming.batch.offsets[-1]) + 1

    def _run(self, incoming: Incoming, *, completes_sets: bool) -> Outgoing:
        """Returns what becomes of the tuples, see `take_in`; makes the state as large as it has to be for that."""
        many, inputs, state = len(incoming.rows), len(self.definition.inputs), self.state
        out = Outgoing(
            np.empty((many, inputs), np.int64),
            np.empty((many, inputs), np.int64),
            np.empty((many, 4), np.int64),
            np.empty((many, 2), np.int64),
            np.zeros(3, np.int64),
        )
        at_most = self.definition.at_most if completes_sets else None
        options = self.definition.key_codec.fits_word, completes_sets, at_most or NONE
        state.reserve_openings(many)
        at, code = 0, FULL
        while code == FULL:
            state.make_room()
            at, code = take_in(state.for_kernels, incoming, at, *options, out)
        return out

    def _shaped(self, tuples: Sequence[pa.Table]) -> list[pa.Table]:
        return [payload.shaped(table) for payload, table in zip(self.state.payloads, tuples, strict=True)]

    def _keep(self, payloads: Sequence[pa.Table], incoming: Incoming, out: Outgoing) -> None:
        """Takes over what the tuples that began to wait refer to."""
        records = self.state.arrays.records
        self.state.keep_key_bytes(incoming.batch)
        self._entered.append(out.fresh[: out.counts[2]])
        fresh = self._still_waiting(self._entered[-1])
        for i, payload in enumerate(self.state.payloads):
            own = fresh[records[fresh, INPUT] == i]
            rows = records[own, ROW] - payload.end
            records[own, ROW] = payload.end + np.arange(len(own))
            payload.add(payload.end, in_order(payloads[i], rows), self.open_windows)

    def _still_waiting(self, entered: Int64s) -> Int64s:
        """Returns the records of those of these tuples that wait; each comes with its place."""
        found: Int64s = entered[self.state.arrays.records[entered[:, 0], OPENED] == entered[:, 1], 0]
        return found

    def replay(self, tuples: Sequence[pa.Table]) -> None:
        """Lets those of the tuples wait that did so before: all that no result was made of."""
        made = self.definition.shaping.over(tuples, "set_aside", self.aside.add_unmade)
        made = self.aside.healthy(made, "set_aside")
        waiting = [self._consumed.others(i, table) for i, table in enumerate(made)]
        incoming = incoming_of(self.definition, self.state, waiting)
        if not len(incoming.rows):
            return
        out = self._run(incoming, completes_sets=False)
        slots = out.fresh[: out.counts[2], 0]
        self.state.arrays.records[slots, SINCE] = self._consumed.since(incoming.batch.offsets)
        self._keep(self._shaped(waiting), incoming, out)

    # ------------------------------------------------------------------ footprints

    def save(self, position: int, limits: Limits) -> Footprints:
        """Returns footprints of the tuples that must have one now, then of the oldest ones as the limits ask."""
        state, begin = self.state, position
        for entered in self._entered:
            new = self._still_waiting(entered)
            since = state.arrays.records[new, SINCE]
            state.arrays.records[new, SINCE] = np.where(since < 0, position - self._written, since)
        opened = self._save_these(self._unsaved, position)
        state.reserve_queue(state.open_windows)
        records = np.empty((state.open_windows, state.width), np.int64)
        page, bounds = Page(records, position + len(self._unsaved), self.input_end), LimitBounds.of(limits)
        written = int(save_oldest_tuples(state.arrays, state.trace, page, 0, bounds))
        if limits.slow is not None:
            slow = SlowBounds.of(limits, begin, written)
            written += int(save_slow_tuples(state.arrays, state.trace, page, written, slow))
            written = int(save_oldest_tuples(state.arrays, state.trace, page, written, bounds))
        self._entered, self._unsaved = [], np.empty(0, np.int32)
        return Footprints(opened, self._footprints(records[:written]))

    def save_nothing(self) -> Footprints:
        self._entered, self._unsaved = [], np.empty(0, np.int32)
        return super().save_nothing()

    def _footprints(self, records: Int64s) -> list[pa.Array]:
        lines = records[:, [INPUT, ROW, OPENED]]
        return footprints_of(self.definition, self.state, lines, np.full(len(records), self.input_end))

    def mark_unsaved(self, *, every: bool = False) -> None:
        records, slots = self.state.arrays.records, self.state.open_slots()
        if every:
            records[slots, POS] = records[slots, TICKET] = NONE
            self.state.grown = True  # nothing less than the whole state tells it
        self._unsaved = slots[records[slots, POS] < 0]

    def end(self) -> None:
        self.state.drop_garbage()

    @property
    def in_footprints(self) -> int:
        return int(np.count_nonzero(self.state.arrays.records[self.state.open_slots(), POS] >= 0))

    def extent(self, position: int) -> Extent:
        records, saved = self.state.arrays.records, self.oldest_footprint()
        unsaved = int(oldest_unsaved(self.state.arrays))
        since = int(records[unsaved, SINCE]) if unsaved >= 0 else NONE
        first = saved[1] if saved is not None else position
        oldest = int(records[unsaved, OPENED]) if unsaved >= 0 else self.input_end
        return Extent(self.open_windows, oldest, min(position, first, since if since >= 0 else position))

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
        if not len(incoming.rows):
            return
        out = self._run(incoming, completes_sets=False)
        slots = out.fresh[: out.counts[2], 0]
        self._keep(self._shaped(tables), incoming, out)
        self.state.reserve_queue(len(slots))
        order = np.argsort(offsets)
        arrays = self.state.arrays
        arrays.records[slots[order], POS] = offsets[order]
        arrays.records[slots[order], TICKET] = np.arange(len(slots))
        arrays.queue[: len(slots)] = slots[order]
        arrays.header[QUEUE_TAIL] = len(slots)

    def oldest_footprint(self) -> tuple[int, int] | None:
        slot = int(oldest(self.state.arrays))
        record = self.state.arrays.records[slot]
        return (int(record[OPENED]), int(record[POS])) if slot >= 0 else None

    def windows(self, *, now: bool = False) -> list[pa.Array]:
        return self._footprints(self.state.arrays.records[self.state.open_slots()])
