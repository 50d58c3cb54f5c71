"""The compiled loops over tuples.

`plain.py` says in plain Python what they compute; a test holds the two against each other. Everything here is
O(1) a tuple and window (for sessions: as long as tuples of a key come nearly in order, or in runs that do), allocates
nothing, and leaves a trace of what it changed.
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

from strandline.operators.aggregate.aggregates import Op
from strandline.operators.aggregate.hits import note_hit, note_join
from strandline.operators.kernel_arrays import Bytes, Int32s, Int64s
from strandline.operators.kernel_cache import njit
from strandline.operators.open_windows.arrays import (
    BUCKETS,
    FRESH,
    OVERFLOWS,
    RECORDS,
    RESULTS,
    TIMERS,
    Batch,
    State,
    Trace,
)
from strandline.operators.open_windows.record import (
    BY_LIST,
    BY_START,
    BYTES_END,
    CHOSEN,
    CLOSED,
    END,
    FREE,
    FREE_HEAD,
    HINT,
    KEY,
    KEY_AT,
    LAYOUT,
    LENGTH_BITS,
    LENGTH_MAX,
    LINK,
    NEWER,
    NONE,
    OLDER,
    OPENED,
    OVERFLOWED,
    POS,
    QUEUE_HEAD,
    QUEUE_TAIL,
    ROWS,
    START,
    TICKET,
    TIMER,
    USED,
    N,
    T,
)
from strandline.operators.open_windows.record import TIMERS as TIMER_COUNT
from strandline.operators.wide import add_to_wide_sum

Ops = tuple[tuple[int, int, int], ...]
"""Per aggregate: what to do, which input it reads, where its state begins."""
Kernel = Callable[..., Any]

DONE, FULL = 0, 1
"""How a kernel ends: all rows done; no room for another window (grow, then go on)."""

_MIX = -7046029254386353131  # 2**64 divided by the golden ratio
_MIX_START = -4417276706812531889  # some other odd number
NO_START = 0
"""In the place of a start where windows are found by their key alone."""
_NEAR = 8
"""So many sessions of a key are looked at from the newest on, before the hint is asked."""
_AHEAD = 8
"""How many tuples ahead a record is sent for: enough for memory to answer, few enough to stay in the cache."""

_COUNT, _SUM_INT, _SUM_FLOAT, _MOMENTS = int(Op.COUNT), int(Op.SUM_INT), int(Op.SUM_FLOAT), int(Op.MOMENTS)
_MIN_INT, _MAX_INT, _MIN_FLOAT, _MAX_FLOAT = int(Op.MIN_INT), int(Op.MAX_INT), int(Op.MIN_FLOAT), int(Op.MAX_FLOAT)
_MIN_BYTES, _MAX_BYTES, _FIRST, _LAST = int(Op.MIN_BYTES), int(Op.MAX_BYTES), int(Op.FIRST), int(Op.LAST)
_NOTHING, _SUM_WIDE = int(Op.NOTHING), int(Op.SUM_WIDE)
_FIRST_WHERE, _LAST_WHERE, _HITS = int(Op.FIRST_WHERE), int(Op.LAST_WHERE), int(Op.HITS)


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
def bucket_of(key: int, start: int, mask: int) -> int:
    mixed = (key ^ (start * _MIX_START)) * _MIX
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
def look_ahead(state: State, batch: Batch, row: int, start: int, mask: int) -> None:
    """Records lie anywhere in memory: the one that a tuple a little further on will want is sent for now."""
    if row + _AHEAD < len(batch.keys):
        slot = state.buckets[bucket_of(batch.keys[row + _AHEAD], start, mask)]
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
def add_to_sum(state: State, trace: Trace, slot: int, word: int, value: int, count: int) -> None:
    """Adds `count` values that come to `value` to an integer sum. One that does not fit 64 bits stays overflowed."""
    records = state.records
    held, n = records[slot, word], records[slot, word + 1]
    total = held + value
    if n == OVERFLOWED or count == OVERFLOWED or ((held ^ total) & (value ^ total)) < 0:
        trace.counts[OVERFLOWS] += 1
        records[slot, word], records[slot, word + 1] = 0, OVERFLOWED
    else:
        records[slot, word], records[slot, word + 1] = total, n + count


@njit(inline="always", _nrt=False)
def accumulate(ops: Ops, state: State, batch: Batch, slot: int, row: int, trace: Trace) -> None:
    """Takes one tuple into the state of one window."""
    records, floats = state.records, state.floats
    for j in range(len(ops)):
        op, column, word = ops[j]
        if op == _NOTHING:
            continue
        if op == _HITS:
            note_hit(state, trace, slot, word, column, row)
            continue
        is_valid = batch.valid[column, row] == 1
        if op == _FIRST:
            if records[slot, word + 1] == 0:
                records[slot, word] = batch.values[column, row]
                records[slot, word + 1] = 1 if is_valid else 2
        elif op == _LAST:
            records[slot, word] = batch.values[column, row]
            records[slot, word + 1] = 1 if is_valid else 2
        elif op in (_FIRST_WHERE, _LAST_WHERE):
            if batch.valid[column, row] != 0 and (op == _LAST_WHERE or records[slot, word + 1] == 0):
                records[slot, word] = batch.values[column, row]
                records[slot, word + 1] = batch.valid[column, row]
                records[slot, word + 2] = batch.offsets[row]
        elif is_valid:
            if op == _COUNT:
                records[slot, word] += 1
            elif op == _SUM_FLOAT:
                floats[slot, word] += batch.floats[column, row]
                records[slot, word + 1] += 1
            elif op == _SUM_INT:
                add_to_sum(state, trace, slot, word, batch.values[column, row], 1)
            elif op == _MOMENTS:
                records[slot, word] += 1
                delta = batch.floats[column, row] - floats[slot, word + 1]
                step = delta / records[slot, word]
                floats[slot, word + 1] += step
                floats[slot, word + 2] += delta * (delta - step)
            elif op == _SUM_WIDE:
                low, high = batch.values[column, row], batch.values[column + 1, row]
                add_to_wide_sum(state, trace, slot, word, low, high, 1)
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


@njit(_nrt=False)
def merge_state(ops: Ops, state: State, batch: Batch, into: int, other: int, trace: Trace) -> None:
    """Joins the state of a later session into that of an earlier one."""
    records, floats = state.records, state.floats
    for j in range(len(ops)):
        op, column, word = ops[j]
        if op == _HITS:
            note_join(state, trace, into, other, word, column)
        elif op == _COUNT:
            records[into, word] += records[other, word]
        elif op == _SUM_FLOAT:
            floats[into, word] += floats[other, word]
            records[into, word + 1] += records[other, word + 1]
        elif op == _SUM_INT:
            add_to_sum(state, trace, into, word, records[other, word], records[other, word + 1])
        elif op == _MOMENTS:
            n1, n2 = records[into, word], records[other, word]
            if n2 > 0:
                n = n1 + n2
                delta = floats[other, word + 1] - floats[into, word + 1]
                step = delta / n
                floats[into, word + 1] += step * n2
                floats[into, word + 2] += floats[other, word + 2] + delta * step * n1 * n2
                records[into, word] = n
        elif op == _SUM_WIDE:
            low, high, n = records[other, word], records[other, word + 1], records[other, word + 2]
            add_to_wide_sum(state, trace, into, word, low, high, n)
        elif op in (_NOTHING, _FIRST):
            pass  # the earlier session has the first tuple
        elif op == _LAST:
            pass  # the tuple that joins them is the last
        elif op in (_FIRST_WHERE, _LAST_WHERE):
            is_earlier = records[other, word + 2] < records[into, word + 2]
            is_nearer = is_earlier if op == _FIRST_WHERE else not is_earlier
            if records[other, word + 1] != 0 and (records[into, word + 1] == 0 or is_nearer):
                for i in range(word, word + 3):
                    records[into, i] = records[other, i]
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


# ---------------------------------------------------------------------- windows come and go


@njit(inline="always", _nrt=False)
def start_in_hash(state: State, slot: int) -> int:
    return state.records[slot, START] if state.header[LAYOUT] == BY_START else NO_START


@njit(_nrt=False)
def blank_record(state: State, trace: Trace, key: int, key_at: int) -> int:
    """A record for this key, its other words zero, linked nowhere. There is room: the caller has looked."""
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
    records[slot, KEY] = key
    records[slot, KEY_AT] = key_at
    records[slot, T] = NONE
    records[slot, POS] = NONE
    records[slot, TICKET] = NONE
    return slot


@njit(_nrt=False)
def link(state: State, trace: Trace, slot: int, start: int) -> None:
    """Puts a record into its bucket; `start` is NO_START where windows are found by their key alone."""
    bucket = bucket_of(state.records[slot, KEY], start, len(state.buckets) - 1)
    touch_bucket(trace, bucket)
    state.records[slot, LINK] = state.buckets[bucket]
    state.buckets[bucket] = slot


@njit(_nrt=False)
def relink(state: State, trace: Trace, slot: int, start: int, following: int) -> None:
    """Lets whatever leads to a record in its bucket lead to `following` instead."""
    records = state.records
    bucket = bucket_of(records[slot, KEY], start, len(state.buckets) - 1)
    here = state.buckets[bucket]
    if here == slot:
        touch_bucket(trace, bucket)
        state.buckets[bucket] = following
        return
    while records[here, LINK] != slot:
        here = records[here, LINK]
    touch_record(trace, here)
    records[here, LINK] = following


@njit(_nrt=False)
def free_record(state: State, trace: Trace, slot: int) -> None:
    """Puts a record that is linked nowhere on the list of free ones."""
    touch_record(trace, slot)
    state.records[slot, OPENED] = FREE
    state.records[slot, TICKET] = NONE
    state.records[slot, LINK] = state.header[FREE_HEAD]
    state.header[FREE_HEAD] = slot


@njit(_nrt=False)
def open_window(
    state: State, trace: Trace, fresh: Int32s, key: int, key_at: int, start: int, end: int, offset: int
) -> int:
    """A new window, linked nowhere yet."""
    slot = blank_record(state, trace, key, key_at)
    records = state.records
    records[slot, START] = start
    records[slot, END] = end
    records[slot, OPENED] = offset
    state.header[N] += 1
    fresh[trace.counts[FRESH]] = slot
    trace.counts[FRESH] += 1
    return slot


@njit(_nrt=False)
def close_window(state: State, trace: Trace, slot: int, start: int, results: Int64s) -> None:
    """Its record becomes a result."""
    copy_row(results, trace.counts[RESULTS], state.records, slot)
    trace.counts[RESULTS] += 1
    relink(state, trace, slot, start, state.records[slot, LINK])
    free_record(state, trace, slot)
    state.header[N] -= 1


# ---------------------------------------------------------------------- the sessions of a key, newest first


@njit(_nrt=False)
def newest_session(state: State, batch: Batch, word_key: bool, key: int, key_at: int) -> int:
    slot = state.buckets[bucket_of(key, NO_START, len(state.buckets) - 1)]
    while slot >= 0 and not same_key(state, batch, word_key, slot, key, key_at):
        slot = state.records[slot, LINK]
    return slot


@njit(_nrt=False)
def sessions_around(
    state: State, trace: Trace, batch: Batch, word_key: bool, key: int, key_at: int, limit: int
) -> tuple[int, int]:
    """The newest session of a key that begins before `limit`, and the one after it; -1 where there is none.

    Tuples come nearly in order, so most are found at the newest session. What comes far behind it (an older day after a
    newer one) comes in order as well: it is found near to where the one before it was.
    """
    records = state.records
    newest = newest_session(state, batch, word_key, key, key_at)
    newer, slot = -1, newest
    for _ in range(_NEAR):
        if slot < 0 or records[slot, START] < limit:
            return slot, newer
        newer, slot = slot, records[slot, OLDER]
    hint = records[newest, HINT]
    is_older = slot >= 0 and records[hint, OPENED] >= 0 and records[hint, START] < records[slot, START]
    if is_older and same_key(state, batch, word_key, hint, key, key_at):
        slot, newer = hint, records[hint, NEWER]
    while slot >= 0 and records[slot, START] >= limit:
        newer, slot = slot, records[slot, OLDER]
    while newer >= 0 and records[newer, START] < limit:
        newer, slot = records[newer, NEWER], newer
    touch_record(trace, newest)
    records[newest, HINT] = slot if slot >= 0 else newer
    return slot, newer


@njit(_nrt=False)
def put_session(state: State, trace: Trace, slot: int, newer: int, older: int) -> None:
    """Puts a session between two others of its key; -1 where there is none."""
    records = state.records
    records[slot, NEWER], records[slot, OLDER] = newer, older
    if newer >= 0:
        touch_record(trace, newer)
        records[newer, OLDER] = slot
    elif older >= 0:
        records[slot, LINK], records[slot, HINT] = records[older, LINK], records[older, HINT]
        relink(state, trace, older, NO_START, slot)
    else:
        link(state, trace, slot, NO_START)
    if older >= 0:
        touch_record(trace, older)
        records[older, NEWER] = slot


@njit(_nrt=False)
def drop_session(state: State, trace: Trace, slot: int) -> None:
    """Takes a session out of the list of its key and frees its record."""
    records = state.records
    newer, older = records[slot, NEWER], records[slot, OLDER]
    if newer >= 0:
        touch_record(trace, newer)
        records[newer, OLDER] = older
    elif older >= 0:
        touch_record(trace, older)
        records[older, LINK], records[older, HINT] = records[slot, LINK], records[slot, HINT]
        relink(state, trace, slot, NO_START, older)
    else:
        relink(state, trace, slot, NO_START, records[slot, LINK])
    if older >= 0:
        touch_record(trace, older)
        records[older, NEWER] = newer
    free_record(state, trace, slot)
    state.header[N] -= 1


# ---------------------------------------------------------------------- timers


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
            look_ahead(state, batch, row, NO_START, mask)
            key, key_at = batch.keys[row], batch.key_at[row]
            slot = state.buckets[bucket_of(key, NO_START, mask)]
            while slot >= 0 and not same_key(state, batch, word_key, slot, key, key_at):
                slot = records[slot, LINK]
            if slot < 0:
                if room == 0:
                    return row, FULL
                room -= 1
                slot = open_window(state, trace, fresh, key, key_at, batch.offsets[row], NONE, batch.offsets[row])
                link(state, trace, slot, NO_START)
            touch_record(trace, slot)
            accumulate(ops, state, batch, slot, row, trace)
            tuples = records[slot, ROWS] + 1
            records[slot, ROWS] = tuples
            if tuples == size:
                records[slot, END] = batch.offsets[row]
                close_window(state, trace, slot, NO_START, results)
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
            look_ahead(state, batch, row, NO_START, mask)
            key, key_at, offset = batch.keys[row], batch.key_at[row], batch.offsets[row]
            fewest = advance
            full = -1
            slot = state.buckets[bucket_of(key, NO_START, mask)]
            while slot >= 0:
                if same_key(state, batch, word_key, slot, key, key_at):
                    touch_record(trace, slot)
                    accumulate(ops, state, batch, slot, row, trace)
                    fewest = min(fewest, records[slot, ROWS])
                    records[slot, ROWS] += 1
                    if records[slot, ROWS] == size:
                        full = slot
                slot = records[slot, LINK]
            if fewest == advance:  # the newest window of the key has that many tuples, or there is none
                slot = open_window(state, trace, fresh, key, key_at, offset, NONE, offset)
                link(state, trace, slot, NO_START)
                accumulate(ops, state, batch, slot, row, trace)
                records[slot, ROWS] = 1
            if full >= 0:
                records[full, END] = offset
                close_window(state, trace, full, NO_START, results)
        return len(batch.keys), DONE

    return step


@njit(inline="always", _nrt=False)
def first_start(time: int, latest: int, size: int, advance: int, rest: int) -> int:
    """Where the first window that holds this time begins. The last one begins at `latest`; `rest` is size % advance."""
    return latest - (size - rest) + (advance if time - latest >= rest else 0)


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
        rest = size % advance
        latest = batch.times[row] // advance * advance if row < rows else 0
        while row < rows:
            if state.header[N] > room or state.header[TIMER_COUNT] > room:
                return row, FULL
            key, key_at, offset, time = batch.keys[row], batch.key_at[row], batch.offsets[row], batch.times[row]
            if not latest <= time < latest + advance:  # tuples come nearly in order: few need a division
                latest = time // advance * advance
            look_ahead(state, batch, row, latest, mask)
            start = first_start(time, latest, size, advance, rest)
            while start <= latest:
                slot = state.buckets[bucket_of(key, start, mask)]
                while slot >= 0:
                    if records[slot, START] == start and same_key(state, batch, word_key, slot, key, key_at):
                        break
                    slot = records[slot, LINK]
                if slot < 0:
                    slot = open_window(state, trace, fresh, key, key_at, start, start + size, offset)
                    link(state, trace, slot, start)
                    push_timer(state, trace, start + size, slot)
                touch_record(trace, slot)
                records[slot, ROWS] += 1
                accumulate(ops, state, batch, slot, row, trace)
                start += advance
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
            look_ahead(state, batch, row, NO_START, mask)
            key, key_at, offset, time = batch.keys[row], batch.key_at[row], batch.offsets[row], batch.times[row]
            mine, newer = sessions_around(state, trace, batch, word_key, key, key_at, time + gap)
            if mine < 0 or records[mine, END] <= time:
                older = mine
                mine = open_window(state, trace, fresh, key, key_at, time, time + gap, offset)
                put_session(state, trace, mine, newer, older)
                push_timer(state, trace, time + gap, mine)
                records[mine, TIMER] = time + gap
            else:
                other = records[mine, OLDER]
                if other >= 0 and records[other, END] > time:
                    if records[other, OPENED] < records[mine, OPENED]:
                        mine, other = other, mine
                    merge_state(ops, state, batch, mine, other, trace)
                    records[mine, ROWS] += records[other, ROWS]
                    records[mine, START] = min(records[mine, START], records[other, START])
                    records[mine, END] = max(records[mine, END], records[other, END])
                    drop_session(state, trace, other)
                    # What was saved of the two cannot be replayed into one: the joined session is saved anew.
                    if records[mine, T] != NONE:
                        fresh[trace.counts[FRESH]] = mine
                        trace.counts[FRESH] += 1
                    records[mine, T] = NONE
                    records[mine, TICKET] = NONE
            touch_record(trace, mine)
            accumulate(ops, state, batch, mine, row, trace)
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
        if records[slot, OPENED] == FREE or (records[slot, TIMER] if is_session else records[slot, END]) != end:
            continue  # the window it was set for has gone
        if records[slot, END] > boundary:  # the session went on meanwhile
            touch_record(trace, slot)
            records[slot, TIMER] = records[slot, END]
            push_timer(state, trace, records[slot, END], slot)
        elif is_session:
            copy_row(results, trace.counts[RESULTS], records, slot)
            trace.counts[RESULTS] += 1
            drop_session(state, trace, slot)
        else:
            close_window(state, trace, slot, records[slot, START], results)


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
def load(word_key: bool, state: State, batch: Batch, footprints: Int64s, is_closed: bool, trace: Trace) -> None:
    """Takes in footprints (or, with `is_closed`, results), newest first; those of windows already met are skipped.

    Row i of `footprints` is a record, its key is row i of the batch. Records are hashed by key and start.
    """
    records = state.records
    mask = len(state.buckets) - 1
    for i in range(len(footprints)):
        key, key_at, start = batch.keys[i], batch.key_at[i], footprints[i, START]
        slot = state.buckets[bucket_of(key, start, mask)]
        while slot >= 0:
            if records[slot, START] == start and same_key(state, batch, word_key, slot, key, key_at):
                break
            slot = records[slot, LINK]
        if slot < 0:
            slot = loaded_record(state, trace, batch, footprints, i, is_closed)
            link(state, trace, slot, start)


@njit(cache=True, nogil=True, _nrt=False)
def load_sessions(
    word_key: bool, state: State, batch: Batch, footprints: Int64s, is_closed: bool, trace: Trace
) -> None:
    """Takes in footprints (or results) of sessions, all of them: `newest_of_sessions` chooses.

    A session may have begun later when it was saved than it did in the end, or as two: its start does not tell which
    session a footprint belongs to. OLDER says instead which record stands for the key.
    """
    for i in range(len(footprints)):
        first = newest_session(state, batch, word_key, batch.keys[i], batch.key_at[i])
        slot = loaded_record(state, trace, batch, footprints, i, is_closed)
        state.records[slot, OLDER] = first
        if first < 0:
            state.records[slot, OLDER], state.records[slot, NEWER] = slot, NONE
            link(state, trace, slot, NO_START)


@njit(_nrt=False)
def loaded_record(state: State, trace: Trace, batch: Batch, footprints: Int64s, i: int, is_closed: bool) -> int:
    """A record that says what a footprint or a result says."""
    slot = blank_record(state, trace, batch.keys[i], batch.key_at[i])
    copy_row(state.records, slot, footprints, i)
    state.records[slot, KEY], state.records[slot, KEY_AT] = batch.keys[i], batch.key_at[i]
    state.records[slot, TICKET] = NONE
    if is_closed:
        state.records[slot, OPENED] = CLOSED
    return slot


@njit(cache=True, nogil=True, _nrt=False)
def newest_of_sessions(records: Int64s, order: Int64s, newest: Bytes) -> None:
    """Marks the newest record of each session. `order` is by key, then start: what overlaps is one session.

    A session only grows: what was saved of it lies inside of what was saved of it later.
    """
    chosen, end = -1, 0
    for i in order:
        if chosen >= 0 and records[i, OLDER] == records[chosen, OLDER] and records[i, START] < end:
            end = max(end, records[i, END])
            if records[i, POS] > records[chosen, POS]:
                chosen = i
            continue
        if chosen >= 0:
            newest[chosen] = 1
        chosen, end = i, records[i, END]
    if chosen >= 0:
        newest[chosen] = 1


@njit(cache=True, nogil=True, _nrt=False)
def fill(
    is_timed: bool,
    is_session: bool,
    word_key: bool,
    state: State,
    batch: Batch,
    records: Int64s,
    by_start: Int64s,
    trace: Trace,
) -> None:
    """Fills an empty state with windows, in the order of their footprints; their keys are the batch's."""
    for i in range(len(records)):
        slot = blank_record(state, trace, batch.keys[i], batch.key_at[i])
        copy_row(state.records, slot, records, i)
        state.records[slot, TICKET] = i
        state.queue[i] = slot
        if is_session:
            state.records[slot, TIMER] = records[i, END]
        else:
            link(state, trace, slot, start_in_hash(state, slot))
        if is_timed:
            push_timer(state, trace, records[i, END], slot)
    if is_session:
        for i in by_start:  # every one is the newest so far; records of an empty state have the numbers of the rows
            put_session(state, trace, i, -1, newest_session(state, batch, word_key, batch.keys[i], batch.key_at[i]))
    state.header[N] = len(records)
    state.header[QUEUE_TAIL] = len(records)


@njit(inline="always", _nrt=False)
def replay_into(ops: Ops, state: State, batch: Batch, slot: int, row: int, trace: Trace) -> None:
    """Takes a tuple into a window, unless its footprint had it."""
    if batch.offsets[row] >= state.records[slot, T]:
        accumulate(ops, state, batch, slot, row, trace)
        state.records[slot, ROWS] += 1


def replaying_count_windows(ops: Ops, word_key: bool) -> Kernel:
    """Brings windows up to date: a tuple counts for those whose footprint did not have it yet. Nothing is emitted."""

    @njit(cache=True, nogil=True, _nrt=False)
    def replay(size: int, advance: int, state: State, batch: Batch, trace: Trace) -> None:
        mask = len(state.buckets) - 1
        for row in range(len(batch.keys)):
            look_ahead(state, batch, row, NO_START, mask)
            slot = state.buckets[bucket_of(batch.keys[row], NO_START, mask)]
            while slot >= 0:
                if same_key(state, batch, word_key, slot, batch.keys[row], batch.key_at[row]):
                    replay_into(ops, state, batch, slot, row, trace)
                slot = state.records[slot, LINK]

    return replay


def replaying_time_windows(ops: Ops, word_key: bool) -> Kernel:
    """The same for time windows."""

    @njit(cache=True, nogil=True, _nrt=False)
    def replay(size: int, advance: int, state: State, batch: Batch, trace: Trace) -> None:
        records = state.records
        mask = len(state.buckets) - 1
        rest = size % advance
        for row in range(len(batch.keys)):
            key, key_at, time = batch.keys[row], batch.key_at[row], batch.times[row]
            latest = time // advance * advance
            look_ahead(state, batch, row, latest, mask)
            start = first_start(time, latest, size, advance, rest)
            while start <= latest:
                slot = state.buckets[bucket_of(key, start, mask)]
                while slot >= 0:
                    if records[slot, START] == start and same_key(state, batch, word_key, slot, key, key_at):
                        replay_into(ops, state, batch, slot, row, trace)
                        break
                    slot = records[slot, LINK]
                start += advance

    return replay


def replaying_sessions(ops: Ops, word_key: bool) -> Kernel:
    """The same for sessions. Two of them never become one here: a joined session was saved anew."""

    @njit(cache=True, nogil=True, _nrt=False)
    def replay(gap: int, advance: int, state: State, batch: Batch, trace: Trace) -> None:
        records = state.records
        mask = len(state.buckets) - 1
        for row in range(len(batch.keys)):
            look_ahead(state, batch, row, NO_START, mask)
            time = batch.times[row]
            key, key_at = batch.keys[row], batch.key_at[row]
            slot, _ = sessions_around(state, trace, batch, word_key, key, key_at, time + gap)
            if slot >= 0 and time < records[slot, END] and batch.offsets[row] >= records[slot, T]:
                replay_into(ops, state, batch, slot, row, trace)
                records[slot, START] = min(records[slot, START], time)
                records[slot, END] = max(records[slot, END], time + gap)

    return replay


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
    is_list = state.header[LAYOUT] == BY_LIST
    for slot in range(used):
        copy_row(larger_state.records, slot, state.records, slot)
    mask = len(larger_state.buckets) - 1
    for slot in range(used):
        if larger_state.records[slot, OPENED] != FREE and not (is_list and larger_state.records[slot, NEWER] >= 0):
            bucket = bucket_of(larger_state.records[slot, KEY], start_in_hash(larger_state, slot), mask)
            larger_state.records[slot, LINK] = larger_state.buckets[bucket]
            larger_state.buckets[bucket] = slot
    for place in range(state.header[TIMER_COUNT]):
        copy_row(larger_state.timers, place, state.timers, place)
