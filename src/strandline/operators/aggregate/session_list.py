"""The sessions of a key: a list in the order of time, of which the newest is in the hash table.

A step along it is O(1) as long as tuples of a key come nearly in order, or in runs that do.
"""

# mypy: disable-error-code="call-overload,no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

from strandline.operators.kernels.kernel_cache import njit
from strandline.operators.open_windows.arrays import Batch, Key, State
from strandline.operators.open_windows.hash_table import NO_START, bucket_of, link, relink, same_key
from strandline.operators.open_windows.record import HINT, LINK, NEWER, OLDER, OPENED, SEED, START, N
from strandline.operators.open_windows.trace import Trace, touch_record
from strandline.operators.open_windows.window_records import free_record

_NEAR = 8
"""So many sessions of a key are looked at from the newest on, before the hint is asked."""


@njit(_nrt=False)
def newest_session(state: State, batch: Batch, word_key: bool, key: Key) -> int:
    """Returns the newest session of a key, or -1."""
    slot = state.buckets[bucket_of(key.word, NO_START, state.header[SEED], len(state.buckets) - 1)]
    while slot >= 0 and not same_key(state, batch, word_key, slot, key):
        slot = state.records[slot, LINK]
    return slot


@njit(_nrt=False)
def sessions_around(state: State, trace: Trace, batch: Batch, word_key: bool, key: Key, limit: int) -> tuple[int, int]:
    """Returns the newest session of a key that begins before `limit`, and the one after it; -1 where there is none.

    Tuples come nearly in order, so most are found at the newest session. What comes far behind it (an older day after a
    newer one) comes in order as well: it is found near to where the one before it was.
    """
    records = state.records
    newest = newest_session(state, batch, word_key, key)
    newer, slot = -1, newest
    for _ in range(_NEAR):
        if slot < 0 or records[slot, START] < limit:
            return slot, newer
        newer, slot = slot, records[slot, OLDER]
    hint = records[newest, HINT]
    is_older = slot >= 0 and records[hint, OPENED] >= 0 and records[hint, START] < records[slot, START]
    if is_older and same_key(state, batch, word_key, hint, key):
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
