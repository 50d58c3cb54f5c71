"""The compiled loops over tuples.

`operators/plain.py` says in plain Python what they compute; a test holds the two against each other. Everything here
is O(1) a tuple and window, allocates nothing, and leaves a trace of what it changed.
"""

# mypy: disable-error-code="call-overload,no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from strandline.operators.aggregates import Op
from strandline.operators.arrays import (
    BUCKETS,
    FRESH,
    RECORDS,
    RESULTS,
    TIMERS,
    WHERE,
    Batch,
    Bytes,
    Int32s,
    Int64s,
    State,
    Trace,
)
from strandline.operators.kernel_cache import njit
from strandline.operators.record import (
    BYTES_END,
    CHOSEN,
    CLOSED,
    END,
    FREE,
    FREE_HEAD,
    KEY,
    KEY_AT,
    LENGTH_BITS,
    LENGTH_MAX,
    LINK,
    NONE,
    OPENED,
    POS,
    QUEUE_HEAD,
    QUEUE_TAIL,
    ROWS,
    START,
    STATE,
    TICKET,
    USED,
    N,
    T,
)
from strandline.operators.record import TIMERS as TIMER_COUNT

Ops = tuple[tuple[int, int, int], ...]
"""Per aggregate: what to do, which input it reads, where its state begins."""
Kernel = Callable[..., Any]

DONE, FULL, OVERFLOW = 0, 1, 2
"""How a kernel ends: all rows done; no room for another window (grow, then go on); an integer sum overflowed."""

_MIX = -7046029254386353131  # 2**64 divided by the golden ratio
_AHEAD = 8
"""How many tuples ahead a record is sent for: enough for memory to answer, few enough to stay in the cache."""

_COUNT, _SUM_INT, _SUM_FLOAT, _MOMENTS = int(Op.COUNT), int(Op.SUM_INT), int(Op.SUM_FLOAT), int(Op.MOMENTS)
_MIN_INT, _MAX_INT, _MIN_FLOAT, _MAX_FLOAT = int(Op.MIN_INT), int(Op.MAX_INT), int(Op.MIN_FLOAT), int(Op.MAX_FLOAT)
_MIN_BYTES, _MAX_BYTES, _FIRST, _LAST = int(Op.MIN_BYTES), int(Op.MAX_BYTES), int(Op.FIRST), int(Op.LAST)
_NOTHING = int(Op.NOTHING)


# ---------------------------------------------------------------------- keys and bytes


@njit(inline="always", _nrt=False)
def copy_row(to: Int64s, to_row: int, source: Int64s, row: int) -> None:
    for word in range(source.shape[1]):
        to[to_row, word] = source[row, word]


@njit(inline="always", _nrt=False)
def copy_bytes(to: Bytes, to_at: int, source: Bytes, at: int, length: int) -> None:
    for i in range(length):
        to[to_at + i] = source[at + i]


@njit(inline="always", _nrt=False)
def bucket_of(key: int, mask: int) -> int:
    mixed = key * _MIX
    return (mixed ^ (mixed >> 32)) & mask


@njit(_nrt=False)
def byte_at(state: State, batch: Batch, position: int) -> int:
    held = state.header[BYTES_END]
    return state.bytes[position] if position < held else batch.bytes[position - held]


@njit(_nrt=False)
def compare_bytes(state: State, batch: Batch, a: int, b: int) -> int:
    """Less than, equal to or greater than zero, as bytes and then lengths compare."""
    a_at, b_at = a >> LENGTH_BITS, b >> LENGTH_BITS
    a_length, b_length = a & LENGTH_MAX, b & LENGTH_MAX
    for i in range(min(a_length, b_length)):
        a_byte, b_byte = byte_at(state, batch, a_at + i), byte_at(state, batch, b_at + i)
        if a_byte != b_byte:  # no subtraction: bytes are unsigned in here
            return -1 if a_byte < b_byte else 1
    return a_length - b_length


@njit(inline="always", _nrt=False)
def same_key(state: State, batch: Batch, word_key: bool, slot: int, key: int, key_at: int) -> bool:
    """A hash is only a hint: the bytes decide."""
    if state.records[slot, KEY] != key:
        return False
    held = state.records[slot, KEY_AT]
    if word_key or held == key_at:
        return held == key_at
    return compare_bytes(state, batch, held, key_at) == 0


@intrinsic
def fetch_soon(typing_context: Any, array: Any, row: Any, column: Any) -> Any:
    """Tells the processor that an element of a two-dimensional array will be needed; it need not exist."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = cgutils.create_struct_proxy(signature.args[0])(context, builder, arguments[0])
        strides = cgutils.unpack_tuple(builder, view.strides)
        word, number = ir.IntType(64), ir.IntType(32)
        at = builder.add(builder.mul(arguments[1], strides[0]), builder.mul(arguments[2], strides[1]))
        pointer = builder.inttoptr(builder.add(builder.ptrtoint(view.data, word), at), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], kind)
        builder.call(prefetch, [pointer, *(ir.Constant(number, n) for n in (1, 3, 1))])  # to write, keep, data
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), generate


@njit(inline="always", _nrt=False)
def look_ahead(state: State, batch: Batch, row: int, mask: int) -> None:
    """Records lie anywhere in memory: the one that a tuple a little further on will want is sent for now."""
    if row + _AHEAD < len(batch.keys):
        slot = state.buckets[bucket_of(batch.keys[row + _AHEAD], mask)]
        fetch_soon(state.records, np.int64(slot), np.int64(KEY))  # type: ignore[call-arg]


# ---------------------------------------------------------------------- the trace
#
# Without a branch: whether something is touched for the first time is anybody's guess, and wrong guesses cost more.


@njit(inline="always", _nrt=False)
def touch_record(trace: Trace, slot: int) -> None:
    trace.records[trace.counts[RECORDS]] = slot
    trace.counts[RECORDS] += 1 - trace.record_marks[slot]
    trace.record_marks[slot] = 1


@njit(inline="always", _nrt=False)
def touch_bucket(trace: Trace, bucket: int) -> None:
    trace.buckets[trace.counts[BUCKETS]] = bucket
    trace.counts[BUCKETS] += 1 - trace.bucket_marks[bucket]
    trace.bucket_marks[bucket] = 1


@njit(inline="always", _nrt=False)
def touch_timer(trace: Trace, place: int) -> None:
    trace.timers[trace.counts[TIMERS]] = place
    trace.counts[TIMERS] += 1 - trace.timer_marks[place]
    trace.timer_marks[place] = 1


# ---------------------------------------------------------------------- aggregates


@njit(_nrt=False)
def larger(a: float, b: float) -> bool:
    """Whether a > b, NaN being the largest of all."""
    if math.isnan(a):
        return not math.isnan(b)
    return a > b


@njit(inline="always", _nrt=False)
def add_checked(a: int, b: int) -> tuple[int, bool]:
    total = a + b
    return total, ((a ^ total) & (b ^ total)) < 0


@njit(inline="always", _nrt=False)
def accumulate(ops: Ops, state: State, batch: Batch, slot: int, row: int) -> bool:
    """Takes one tuple into the state of one window; False if an integer sum overflowed."""
    records, floats = state.records, state.floats
    for j in range(len(ops)):
        op, column, word = ops[j]
        if op == _NOTHING:
            continue
        is_valid = batch.valid[column, row] != 0
        if op == _FIRST:
            if records[slot, word + 1] == 0:
                records[slot, word] = batch.values[column, row]
                records[slot, word + 1] = 1 if is_valid else 2
        elif op == _LAST:
            records[slot, word] = batch.values[column, row]
            records[slot, word + 1] = 1 if is_valid else 2
        elif is_valid:
            if op == _COUNT:
                records[slot, word] += 1
            elif op == _SUM_FLOAT:
                floats[slot, word] += batch.floats[column, row]
                records[slot, word + 1] += 1
            elif op == _SUM_INT:
                total, overflowed = add_checked(records[slot, word], batch.values[column, row])
                if overflowed:
                    return False
                records[slot, word] = total
                records[slot, word + 1] += 1
            elif op == _MOMENTS:
                records[slot, word] += 1
                delta = batch.floats[column, row] - floats[slot, word + 1]
                step = delta / records[slot, word]
                floats[slot, word + 1] += step
                floats[slot, word + 2] += delta * (delta - step)
            else:
                if records[slot, word + 1] == 0:
                    replaces = True
                elif op == _MIN_INT:
                    replaces = batch.values[column, row] < records[slot, word]
                elif op == _MAX_INT:
                    replaces = batch.values[column, row] > records[slot, word]
                elif op == _MIN_FLOAT:
                    replaces = larger(floats[slot, word], batch.floats[column, row])
                elif op == _MAX_FLOAT:
                    replaces = larger(batch.floats[column, row], floats[slot, word])
                elif op == _MIN_BYTES:
                    replaces = compare_bytes(state, batch, batch.values[column, row], records[slot, word]) < 0
                else:
                    replaces = compare_bytes(state, batch, batch.values[column, row], records[slot, word]) > 0
                if replaces:
                    records[slot, word] = batch.values[column, row]
                    records[slot, word + 1] = 1
    return True


@njit(_nrt=False)
def merge_state(ops: Ops, state: State, batch: Batch, into: int, other: int) -> bool:
    """Joins the state of a later session into that of an earlier one; False if an integer sum overflowed."""
    records, floats = state.records, state.floats
    for j in range(len(ops)):
        op, _, word = ops[j]
        if op == _COUNT:
            records[into, word] += records[other, word]
        elif op == _SUM_FLOAT:
            floats[into, word] += floats[other, word]
            records[into, word + 1] += records[other, word + 1]
        elif op == _SUM_INT:
            total, overflowed = add_checked(records[into, word], records[other, word])
            if overflowed:
                return False
            records[into, word] = total
            records[into, word + 1] += records[other, word + 1]
        elif op == _MOMENTS:
            n1, n2 = records[into, word], records[other, word]
            if n2 > 0:
                n = n1 + n2
                delta = floats[other, word + 1] - floats[into, word + 1]
                step = delta / n
                floats[into, word + 1] += step * n2
                floats[into, word + 2] += floats[other, word + 2] + delta * step * n1 * n2
                records[into, word] = n
        elif op in (_NOTHING, _FIRST):
            pass  # the earlier session has the first tuple
        elif op == _LAST:
            pass  # the tuple that joins them is the last
        elif records[other, word + 1] == 1:
            if records[into, word + 1] == 0:
                replaces = True
            elif op == _MIN_INT:
                replaces = records[other, word] < records[into, word]
            elif op == _MAX_INT:
                replaces = records[other, word] > records[into, word]
            elif op == _MIN_FLOAT:
                replaces = larger(floats[into, word], floats[other, word])
            elif op == _MAX_FLOAT:
                replaces = larger(floats[other, word], floats[into, word])
            elif op == _MIN_BYTES:
                replaces = compare_bytes(state, batch, records[other, word], records[into, word]) < 0
            else:
                replaces = compare_bytes(state, batch, records[other, word], records[into, word]) > 0
            if replaces:
                records[into, word] = records[other, word]
                records[into, word + 1] = 1
    return True


# ---------------------------------------------------------------------- windows come and go


@njit(_nrt=False)
def take_record(state: State, trace: Trace, key: int, key_at: int) -> int:
    """A record for this key, linked into its bucket, its words zero. There is room: the caller has looked."""
    header, records = state.header, state.records
    slot = header[FREE_HEAD]
    if slot >= 0:
        header[FREE_HEAD] = records[slot, LINK]
    else:
        slot = header[USED]
        header[USED] += 1
    touch_record(trace, slot)
    for word in range(records.shape[1]):
        records[slot, word] = 0
    bucket = bucket_of(key, len(state.buckets) - 1)
    touch_bucket(trace, bucket)
    records[slot, KEY] = key
    records[slot, KEY_AT] = key_at
    records[slot, LINK] = state.buckets[bucket]
    records[slot, T] = NONE
    records[slot, POS] = NONE
    records[slot, TICKET] = NONE
    state.buckets[bucket] = slot
    return slot


@njit(_nrt=False)
def drop_record(state: State, trace: Trace, slot: int) -> None:
    """Unlinks a record from its bucket and puts it on the list of free ones."""
    header, records = state.header, state.records
    bucket = bucket_of(records[slot, KEY], len(state.buckets) - 1)
    here = state.buckets[bucket]
    if here == slot:
        touch_bucket(trace, bucket)
        state.buckets[bucket] = records[slot, LINK]
    else:
        while records[here, LINK] != slot:
            here = records[here, LINK]
        touch_record(trace, here)
        records[here, LINK] = records[slot, LINK]
    touch_record(trace, slot)
    records[slot, OPENED] = FREE
    records[slot, TICKET] = NONE
    records[slot, LINK] = header[FREE_HEAD]
    header[FREE_HEAD] = slot


@njit(_nrt=False)
def open_window(
    state: State, trace: Trace, fresh: Int32s, key: int, key_at: int, start: int, end: int, offset: int
) -> int:
    slot = take_record(state, trace, key, key_at)
    records = state.records
    records[slot, START] = start
    records[slot, END] = end
    records[slot, OPENED] = offset
    state.header[N] += 1
    fresh[trace.counts[FRESH]] = slot
    trace.counts[FRESH] += 1
    return slot


@njit(_nrt=False)
def close_window(state: State, trace: Trace, slot: int, results: Int64s) -> None:
    """Its record becomes a result."""
    copy_row(results, trace.counts[RESULTS], state.records, slot)
    trace.counts[RESULTS] += 1
    drop_record(state, trace, slot)
    state.header[N] -= 1


@njit(_nrt=False)
def push_timer(state: State, trace: Trace, end: int, slot: int) -> None:
    timers = state.timers
    place = state.header[TIMER_COUNT]
    state.header[TIMER_COUNT] += 1
    while place > 0:
        parent = (place - 1) >> 1
        if timers[parent, 0] <= end:
            break
        timers[place, 0], timers[place, 1] = timers[parent, 0], timers[parent, 1]
        touch_timer(trace, place)
        place = parent
    timers[place, 0], timers[place, 1] = end, slot
    touch_timer(trace, place)


@njit(_nrt=False)
def pop_timer(state: State, trace: Trace) -> None:
    timers = state.timers
    state.header[TIMER_COUNT] -= 1
    length = state.header[TIMER_COUNT]
    if length == 0:
        return
    end, slot = timers[length, 0], timers[length, 1]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= length:
            break
        if child + 1 < length and timers[child + 1, 0] < timers[child, 0]:
            child += 1
        if timers[child, 0] >= end:
            break
        timers[place, 0], timers[place, 1] = timers[child, 0], timers[child, 1]
        touch_timer(trace, place)
        place = child
    timers[place, 0], timers[place, 1] = end, slot
    touch_timer(trace, place)


# ---------------------------------------------------------------------- the steps, one a kind of window


def tumbling_count_windows(ops: Ops, word_key: bool) -> Kernel:
    """Count windows one after the other: the hot loop of most jobs, so it has none of the questions of the next one."""

    @njit(cache=True, nogil=True, _nrt=False)
    def step(
        size: int, advance: int, state: State, batch: Batch, first: int, results: Int64s, fresh: Int32s, trace: Trace
    ) -> tuple[int, int]:
        records = state.records
        mask = len(state.buckets) - 1
        room = len(records) - state.header[N]  # closing windows make more
        for row in range(first, len(batch.keys)):
            look_ahead(state, batch, row, mask)
            key, key_at = batch.keys[row], batch.key_at[row]
            slot = state.buckets[bucket_of(key, mask)]
            while slot >= 0 and not same_key(state, batch, word_key, slot, key, key_at):
                slot = records[slot, LINK]
            if slot < 0:
                if room == 0:
                    return row, FULL
                room -= 1
                slot = open_window(state, trace, fresh, key, key_at, batch.offsets[row], NONE, batch.offsets[row])
            touch_record(trace, slot)
            if not accumulate(ops, state, batch, slot, row):
                trace.counts[WHERE] = slot
                return row, OVERFLOW
            tuples = records[slot, ROWS] + 1
            records[slot, ROWS] = tuples
            if tuples == size:
                records[slot, END] = batch.offsets[row]
                close_window(state, trace, slot, results)
                room += 1
        return len(batch.keys), DONE

    return step


def sliding_count_windows(ops: Ops, word_key: bool) -> Kernel:
    """Count windows that overlap: a tuple counts for every open window of its key, and may open one more."""

    @njit(cache=True, nogil=True, _nrt=False)
    def step(
        size: int, advance: int, state: State, batch: Batch, first: int, results: Int64s, fresh: Int32s, trace: Trace
    ) -> tuple[int, int]:
        records = state.records
        mask = len(state.buckets) - 1
        for row in range(first, len(batch.keys)):
            if state.header[N] >= len(records):
                return row, FULL
            look_ahead(state, batch, row, mask)
            key, key_at, offset = batch.keys[row], batch.key_at[row], batch.offsets[row]
            fewest = advance
            full = -1
            slot = state.buckets[bucket_of(key, mask)]
            while slot >= 0:
                if same_key(state, batch, word_key, slot, key, key_at):
                    touch_record(trace, slot)
                    if not accumulate(ops, state, batch, slot, row):
                        trace.counts[WHERE] = slot
                        return row, OVERFLOW
                    fewest = min(fewest, records[slot, ROWS])
                    records[slot, ROWS] += 1
                    if records[slot, ROWS] == size:
                        full = slot
                slot = records[slot, LINK]
            if fewest == advance:  # the newest window of the key has that many tuples, or there is none
                slot = open_window(state, trace, fresh, key, key_at, offset, NONE, offset)
                if not accumulate(ops, state, batch, slot, row):
                    trace.counts[WHERE] = slot
                    return row, OVERFLOW
                records[slot, ROWS] = 1
            if full >= 0:
                records[full, END] = offset
                close_window(state, trace, full, results)
        return len(batch.keys), DONE

    return step


def time_windows(ops: Ops, word_key: bool) -> Kernel:
    """Time windows: a tuple opens whichever of its windows are not open yet; `close_due` closes them."""

    @njit(cache=True, nogil=True, _nrt=False)
    def step(
        size: int, advance: int, state: State, batch: Batch, row: int, results: Int64s, fresh: Int32s, trace: Trace
    ) -> tuple[int, int]:
        records = state.records
        mask = len(state.buckets) - 1
        rows = len(batch.keys)
        room = min(len(records) - -(-size // advance), len(state.timers) - -(-size // advance))
        while row < rows:
            if state.header[N] > room or state.header[TIMER_COUNT] > room:
                return row, FULL
            look_ahead(state, batch, row, mask)
            key, key_at, offset, time = batch.keys[row], batch.key_at[row], batch.offsets[row], batch.times[row]
            newest = time // advance
            oldest = (time - size) // advance + 1
            missing = newest - oldest + 1
            bucket = bucket_of(key, mask)
            slot = state.buckets[bucket]
            while slot >= 0 and missing > 0:
                start = records[slot, START]
                if start <= time < start + size and same_key(state, batch, word_key, slot, key, key_at):
                    missing -= 1
                    touch_record(trace, slot)
                    records[slot, ROWS] += 1
                    if not accumulate(ops, state, batch, slot, row):
                        trace.counts[WHERE] = slot
                        return row, OVERFLOW
                slot = records[slot, LINK]
            if missing > 0:
                for number in range(oldest, newest + 1):
                    start = number * advance
                    slot = state.buckets[bucket]
                    while slot >= 0:
                        if records[slot, START] == start and same_key(state, batch, word_key, slot, key, key_at):
                            break
                        slot = records[slot, LINK]
                    if slot < 0:
                        slot = open_window(state, trace, fresh, key, key_at, start, start + size, offset)
                        push_timer(state, trace, start + size, slot)
                        records[slot, ROWS] = 1
                        if not accumulate(ops, state, batch, slot, row):
                            trace.counts[WHERE] = slot
                            return row, OVERFLOW
            row += 1
        return row, DONE

    return step


def session_windows(ops: Ops, word_key: bool) -> Kernel:
    """Sessions: a tuple opens one, continues one, or joins two."""

    @njit(cache=True, nogil=True, _nrt=False)
    def step(
        size: int, advance: int, state: State, batch: Batch, row: int, results: Int64s, fresh: Int32s, trace: Trace
    ) -> tuple[int, int]:
        records = state.records
        mask = len(state.buckets) - 1
        rows = len(batch.keys)
        gap = size
        while row < rows:
            if state.header[N] >= len(records) or state.header[TIMER_COUNT] + 1 >= len(state.timers):
                return row, FULL
            look_ahead(state, batch, row, mask)
            key, key_at, offset, time = batch.keys[row], batch.key_at[row], batch.offsets[row], batch.times[row]
            mine = -1
            slot = state.buckets[bucket_of(key, mask)]
            while slot >= 0:
                following = records[slot, LINK]
                is_near = time + gap > records[slot, START] and time < records[slot, END]
                if is_near and same_key(state, batch, word_key, slot, key, key_at):
                    if mine < 0:
                        mine = slot
                    else:
                        other = slot
                        if records[other, OPENED] < records[mine, OPENED]:
                            mine, other = other, mine
                        if not merge_state(ops, state, batch, mine, other):
                            trace.counts[WHERE] = mine
                            return row, OVERFLOW
                        records[mine, ROWS] += records[other, ROWS]
                        records[mine, START] = min(records[mine, START], records[other, START])
                        records[mine, END] = max(records[mine, END], records[other, END])
                        drop_record(state, trace, other)
                        state.header[N] -= 1
                        # What was saved of the two cannot be replayed into one: the joined session is saved anew.
                        if records[mine, T] != NONE:
                            fresh[trace.counts[FRESH]] = mine
                            trace.counts[FRESH] += 1
                        records[mine, T] = NONE
                        records[mine, TICKET] = NONE
                        break
                slot = following
            if mine < 0:
                mine = open_window(state, trace, fresh, key, key_at, time, time + gap, offset)
                push_timer(state, trace, time + gap, mine)
                records[mine, STATE] = time + gap
            touch_record(trace, mine)
            if not accumulate(ops, state, batch, mine, row):
                trace.counts[WHERE] = mine
                return row, OVERFLOW
            records[mine, ROWS] += 1
            records[mine, START] = min(records[mine, START], time)
            records[mine, END] = max(records[mine, END], time + gap)
            row += 1
        return row, DONE

    return step


@njit(cache=True, nogil=True, _nrt=False)
def count_due(state: State, boundary: int, stack: Int64s) -> int:
    """An upper bound of how many windows `close_due` will close, in time that follows their number."""
    timers, length = state.timers, state.header[TIMER_COUNT]
    depth, due = 0, 0
    if length > 0:
        stack[0], depth = 0, 1
    while depth > 0:
        depth -= 1
        place = stack[depth]
        if timers[place, 0] <= boundary:
            due += 1
            for child in (2 * place + 1, 2 * place + 2):
                if child < length:
                    stack[depth] = child
                    depth += 1
    return due


@njit(cache=True, nogil=True, _nrt=False)
def close_due(is_session: bool, state: State, boundary: int, results: Int64s, trace: Trace) -> None:
    """Closes the windows that end at the boundary or before it, in no particular order."""
    records = state.records
    while state.header[TIMER_COUNT] > 0 and state.timers[0, 0] <= boundary:
        end, slot = state.timers[0, 0], state.timers[0, 1]
        pop_timer(state, trace)
        if records[slot, OPENED] == FREE or (records[slot, STATE] if is_session else records[slot, END]) != end:
            continue  # the window it was set for has gone
        if records[slot, END] <= boundary:
            close_window(state, trace, slot, results)
        else:  # the session went on meanwhile
            touch_record(trace, slot)
            records[slot, STATE] = records[slot, END]
            push_timer(state, trace, records[slot, END], slot)


# ---------------------------------------------------------------------- footprints


@njit(_nrt=False)
def leave_footprint(
    state: State, trace: Trace, slot: int, input_end: int, position: int, out: Int64s, written: int
) -> None:
    records, header = state.records, state.header
    touch_record(trace, slot)
    records[slot, T] = input_end
    records[slot, POS] = position
    ticket = header[QUEUE_TAIL]
    header[QUEUE_TAIL] += 1
    records[slot, TICKET] = ticket
    state.queue[ticket % len(state.queue)] = slot
    copy_row(out, written, records, slot)


@njit(inline="always", _nrt=False)
def oldest_footprint(state: State) -> int:
    """The window whose footprint is the oldest; -1 if there is none. Entries of windows that have gone are dropped."""
    records, header = state.records, state.header
    while header[QUEUE_HEAD] < header[QUEUE_TAIL]:
        slot = state.queue[header[QUEUE_HEAD] % len(state.queue)]
        if records[slot, TICKET] == header[QUEUE_HEAD]:
            return slot
        header[QUEUE_HEAD] += 1
    return -1


@njit(cache=True, nogil=True, _nrt=False)
def still_open(state: State, fresh: Int32s, chosen: Int32s) -> int:
    """The windows of this list that are open and have no footprint, each once, in the order they were opened in.

    Backwards, because the last entry of a record is the one of the window that is in it now. `chosen` is filled from
    its end; returns how many.
    """
    records = state.records
    count = 0
    for i in range(len(fresh) - 1, -1, -1):
        slot = fresh[i]
        if records[slot, OPENED] >= 0 and records[slot, T] == NONE:
            records[slot, T] = CHOSEN
            count += 1
            chosen[len(chosen) - count] = slot
    return count


@njit(cache=True, nogil=True, _nrt=False)
def save_open(state: State, trace: Trace, slots: Int32s, input_end: int, position: int, out: Int64s) -> None:
    """A footprint for each of these windows."""
    for i in range(len(slots)):
        leave_footprint(state, trace, slots[i], input_end, position + i, out, i)


@njit(cache=True, nogil=True, _nrt=False)
def save_oldest(
    state: State,
    trace: Trace,
    input_end: int,
    begin: int,
    position: int,
    out: Int64s,
    extent_max: float,
    replay_max: float,
    cost_max: float,
    extent_cost: float,
    replay_cost: float,
    budget: int,
) -> int:
    """G-checks, oldest window first, while extent, replay or what recovery would cost is too large; how many.

    The footprints of this step begin at output offset `begin`; the next one goes to `position`.
    """
    records = state.records
    written = 0
    while written < budget:
        slot = oldest_footprint(state)
        if slot < 0 or records[slot, POS] >= begin:  # none is left that this step has not saved
            break
        extent = position + written - records[slot, POS]
        replay = input_end - records[slot, T]
        if extent <= extent_max and replay <= replay_max and extent * extent_cost + replay * replay_cost <= cost_max:
            break
        leave_footprint(state, trace, slot, input_end, position + written, out, written)
        written += 1
    return written


@njit(cache=True, nogil=True, _nrt=False)
def oldest(state: State) -> int:
    """The window whose footprint is the oldest, or -1."""
    return oldest_footprint(state)


@njit(cache=True, nogil=True, _nrt=False)
def renumber_queue(state: State, queue: Int32s) -> None:
    """Moves the entries that still stand for something into another queue, from ticket 0 on."""
    records, header = state.records, state.header
    kept = 0
    for ticket in range(header[QUEUE_HEAD], header[QUEUE_TAIL]):
        slot = state.queue[ticket % len(state.queue)]
        if records[slot, TICKET] == ticket:
            queue[kept] = slot
            records[slot, TICKET] = kept
            kept += 1
    header[QUEUE_HEAD], header[QUEUE_TAIL] = 0, kept


# ---------------------------------------------------------------------- recovery


@njit(cache=True, nogil=True, _nrt=False)
def load(
    is_session: bool, word_key: bool, state: State, batch: Batch, footprints: Int64s, is_closed: bool, trace: Trace
) -> int:
    """Takes in footprints (or, with `is_closed`, results), newest first; those of windows already met are skipped.

    Row i of `footprints` is a record, its key is row i of the batch. Returns how many were taken in.
    """
    records = state.records
    mask = len(state.buckets) - 1
    taken = 0
    for i in range(len(footprints)):
        key, key_at = batch.keys[i], batch.key_at[i]
        start = footprints[i, START]
        slot = state.buckets[bucket_of(key, mask)]
        while slot >= 0:
            met = records[slot, START] == start
            if is_session:  # a session's start may move back, and it may have swallowed this one
                met = records[slot, START] <= start < records[slot, END]
            if met and same_key(state, batch, word_key, slot, key, key_at):
                break
            slot = records[slot, LINK]
        if slot >= 0:
            continue
        slot = take_record(state, trace, key, key_at)
        link = records[slot, LINK]
        copy_row(records, slot, footprints, i)
        records[slot, KEY], records[slot, KEY_AT], records[slot, LINK] = key, key_at, link
        records[slot, TICKET] = NONE
        if is_closed:
            records[slot, OPENED] = CLOSED
        else:
            taken += 1
    return taken


@njit(cache=True, nogil=True, _nrt=False)
def fill(is_timed: bool, is_session: bool, state: State, batch: Batch, records: Int64s, trace: Trace) -> None:
    """Fills an empty state with windows, in the order of their footprints; their keys are the batch's."""
    for i in range(len(records)):
        slot = take_record(state, trace, batch.keys[i], batch.key_at[i])
        link = state.records[slot, LINK]
        copy_row(state.records, slot, records, i)
        state.records[slot, LINK] = link
        state.records[slot, TICKET] = i
        state.queue[i] = slot
        if is_session:
            state.records[slot, STATE] = records[i, END]
        if is_timed:
            push_timer(state, trace, records[i, END], slot)
    state.header[N] = len(records)
    state.header[QUEUE_TAIL] = len(records)


def replaying(ops: Ops, word_key: bool) -> Kernel:
    """Brings windows up to date: a tuple counts for those whose footprint did not have it yet. Nothing is emitted."""

    @njit(cache=True, nogil=True, _nrt=False)
    def step(is_timed: bool, is_session: bool, state: State, batch: Batch, gap: int, trace: Trace) -> tuple[int, int]:
        records = state.records
        mask = len(state.buckets) - 1
        for row in range(len(batch.keys)):
            look_ahead(state, batch, row, mask)
            key, key_at, offset, time = batch.keys[row], batch.key_at[row], batch.offsets[row], batch.times[row]
            slot = state.buckets[bucket_of(key, mask)]
            while slot >= 0:
                if offset >= records[slot, T]:
                    if is_session:
                        belongs = time + gap > records[slot, START] and time < records[slot, END]
                    elif is_timed:
                        belongs = records[slot, START] <= time < records[slot, END]
                    else:
                        belongs = True
                    if belongs and same_key(state, batch, word_key, slot, key, key_at):
                        if not accumulate(ops, state, batch, slot, row):
                            trace.counts[WHERE] = slot
                            return row, OVERFLOW
                        records[slot, ROWS] += 1
                        if is_session:
                            records[slot, START] = min(records[slot, START], time)
                            records[slot, END] = max(records[slot, END], time + gap)
                slot = records[slot, LINK]
        return len(batch.keys), DONE

    return step


# ---------------------------------------------------------------------- bytes


@njit(cache=True, nogil=True, _nrt=False)
def bytes_wanted(words: Int64s, state: State, slots: Int32s) -> int:
    """How many bytes the references of these windows into the batch come to."""
    records, held = state.records, state.header[BYTES_END]
    wanted = 0
    for i in range(len(slots)):
        if records[slots[i], OPENED] != FREE:
            for word in words:
                at = records[slots[i], word]
                if (at >> LENGTH_BITS) >= held:
                    wanted += at & LENGTH_MAX
    return wanted


@njit(cache=True, nogil=True, _nrt=False)
def keep_bytes(words: Int64s, state: State, batch: Batch, slots: Int32s) -> int:
    """Copies the bytes that windows refer to from the batch into the state; returns where they end then."""
    records, held = state.records, state.header[BYTES_END]
    end = held
    for i in range(len(slots)):
        slot = slots[i]
        if records[slot, OPENED] == FREE:
            continue
        for word in words:
            at = records[slot, word]
            position, length = at >> LENGTH_BITS, at & LENGTH_MAX
            if position >= held:
                copy_bytes(state.bytes, end, batch.bytes, position - held, length)
                records[slot, word] = end << LENGTH_BITS | length
                end += length
    return end


@njit(cache=True, nogil=True, _nrt=False)
def gather(refs: Int64s, state: State, batch: Batch, ends: Int64s, out: Bytes) -> None:
    """The bytes of each reference, one after the other; `ends` has where each begins."""
    held = state.header[BYTES_END]
    for i in range(len(refs)):
        position, length = refs[i] >> LENGTH_BITS, refs[i] & LENGTH_MAX
        if position < held:
            copy_bytes(out, ends[i], state.bytes, position, length)
        else:
            copy_bytes(out, ends[i], batch.bytes, position - held, length)


@njit(cache=True, nogil=True, _nrt=False)
def rebuild(state: State, larger_state: State) -> None:
    """Copies records and their hash table into larger arrays."""
    used = state.header[USED]
    for slot in range(used):
        copy_row(larger_state.records, slot, state.records, slot)
    mask = len(larger_state.buckets) - 1
    for slot in range(used):
        if larger_state.records[slot, OPENED] != FREE:
            bucket = bucket_of(larger_state.records[slot, KEY], mask)
            larger_state.records[slot, LINK] = larger_state.buckets[bucket]
            larger_state.buckets[bucket] = slot
    for place in range(state.header[TIMER_COUNT]):
        copy_row(larger_state.timers, place, state.timers, place)
