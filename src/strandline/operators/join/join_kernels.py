"""The loop over new tuples of both sides, in the serialised order: each meets the other side, then it is kept.

There are three such loops: over trails, over lists, and over stretches of places, where keys need not be equal. A new
tuple meets a whole stretch then: all that the other side keeps, of a band those with the times in it. A row of `Pairs`
is such a stretch: `sides` says which side is new, `left` and `right` are its place and where the stretch begins, `keys`
where that ends. Tuples that come out alone are rows as everywhere. `meeting_kernels` makes pairs of them.
"""

# mypy: disable-error-code="no-untyped-call,no-untyped-def"

from __future__ import annotations

from typing import Final

from strandline.operators.join.ring_kernels import (
    append,
    bucket_of,
    has_key,
    lay,
    let_head_go,
    let_oldest_go,
    next_record,
    number_in,
    oldest_of_key,
    record_of,
    skim,
)
from strandline.operators.join.settling_kernels import let_time_pass
from strandline.operators.join.tuple_record import (
    AHEAD,
    AHEAD_MAX,
    CHAIN,
    COUNT,
    DEAD,
    DONE,
    FIRST,
    FLAG_BITS,
    FOUND,
    FULL,
    GROW,
    HEAD,
    KEY,
    LIVE,
    MEETS,
    NEWER,
    NULL,
    OLDER,
    ORDINAL,
    ROW,
    SETTLED,
    TAIL,
    TIME,
    TOUCHED,
    WHO,
)
from strandline.operators.kernels.kernel_cache import njit

_DEEP: Final = 4
"""Tuples of a trail that are looked at ahead: fewer leave out many of a large window, more gain nothing."""


# ---------------------------------------------------------------------- the loop, the same however windows are kept


@njit(inline="always", _nrt=False)
def _take_next(meet, keep, left, right, mine, other, which, new, rules, pairs, progress):
    """Takes in the next tuple of a side: in a band time passes, `meet` writes its pairs, then `keep` keeps it.

    Returns DONE; or FULL or GROW, and then nothing was done with the tuple.
    """
    row = progress[ROW + which]
    if rules.is_band and let_time_pass(left, right, rules, new.times[row], pairs, progress) == FULL:
        return FULL
    if rules.keeps[which] and mine.header[TAIL] - mine.header[HEAD] == len(mine.records):
        progress[WHO] = which
        return GROW
    if (
        progress[MEETS]
        and new.nulls[row] == 0
        and rules.keeps[1 - which]
        and meet(mine, other, which, new, row, rules, pairs, progress) == FULL
    ):
        return FULL
    if rules.keeps[which]:
        keep(mine, which, new, row, rules)
    else:
        mine.header[TAIL] += 1
        mine.header[HEAD] = mine.header[SETTLED] = mine.header[TAIL]
    progress[ROW + which] = row + 1
    return DONE


@njit(inline="always", _nrt=False)
def _take_in(meet, keep, look_ahead, left, right, new_left, new_right, rules, pairs, progress):
    """Takes in new tuples of both sides; DONE, or FULL or GROW if it is to be called again.

    `look_ahead` touches what the next tuples of a side will ask for.
    """
    lefts, rights = len(new_left.ordinals), len(new_right.ordinals)
    seen_left, seen_right = progress[ROW], progress[ROW + 1]
    while True:
        i, j = progress[ROW], progress[ROW + 1]
        if i < lefts and (j >= rights or new_left.ordinals[i] < new_right.ordinals[j]):
            if i >= seen_left:
                seen_left = min(i + AHEAD_MAX, lefts)
                progress[TOUCHED] += look_ahead(left, right, new_left, i, seen_left, progress)
            code = _take_next(meet, keep, left, right, left, right, 0, new_left, rules, pairs, progress)
        elif j < rights:
            if j >= seen_right:
                seen_right = min(j + AHEAD_MAX, rights)
                progress[TOUCHED] += look_ahead(right, left, new_right, j, seen_right, progress)
            code = _take_next(meet, keep, left, right, right, left, 1, new_right, rules, pairs, progress)
        else:
            return DONE
        if code != DONE:
            return code


@njit(inline="always", _nrt=False)
def _touch_buckets(mine, other, new, first, end):
    """Reads the buckets of the next tuples of a side, all at once: memory answers such questions together.

    The number that is returned is of no use, but keeps the compiler from leaving it all out.
    """
    touched = 0
    for row in range(first, end):
        touched += mine.buckets[bucket_of(mine, new.keys[row])]
        touched += other.buckets[bucket_of(other, new.keys[row])]
    return touched


@njit(inline="always", _nrt=False)
def _new_record(side, new, row, rules):
    """Returns the record of a new tuple, with its time and its key."""
    record = next_record(side)
    side.records[record, TIME] = new.times[row]
    side.records[record, KEY] = new.keys[row]
    if not rules.fits_word:
        side.records[record, side.records.shape[1] - 1] = new.key_at[row]
    return record


# ---------------------------------------------------------------------- pairs: who met whom, by places, times and key


@njit(inline="always", _nrt=False)
def _write_pair(mine, other, which, record, number, pairs, n):
    """Writes the places and times of a kept tuple of the other side and of the new one, whose time is known there."""
    place, met = mine.header[TAIL] - mine.header[FIRST], number - other.header[FIRST]
    if which == 1:
        pairs.left[n], pairs.right[n] = met, place
        pairs.left_times[n] = other.records[record, TIME]
    else:
        pairs.left[n], pairs.right[n] = place, met
        pairs.right_times[n] = other.records[record, TIME]


@njit(inline="always", _nrt=False)
def _name_pairs(which, new, row, rules, pairs, first, end):
    """Writes time and key of the new tuple into its pairs."""
    at = 0 if rules.fits_word else new.key_at[row]
    for n in range(first, end):
        if which == 1:
            pairs.right_times[n] = new.times[row]
        else:
            pairs.left_times[n] = new.times[row]
        pairs.keys[n], pairs.key_at[n], pairs.sides[n] = new.keys[row], at, which


@njit(inline="always", _nrt=False)
def _turn(some, first, end):
    """Reverses a stretch of an array."""
    i, j = first, end - 1
    while i < j:
        some[i], some[j] = some[j], some[i]
        i, j = i + 1, j - 1


# ---------------------------------------------------------------------- trails: bands, windows of the partition


@njit(inline="always", _nrt=False)
def _meet_trail(mine, other, which, new, row, rules, pairs, progress):
    """Writes the pairs of a new tuple with those of a trail, oldest first; without room none, and returns FULL."""
    fits_word, is_band = rules.fits_word, rules.is_band
    word, at, time = new.keys[row], new.key_at[row], new.times[row]
    # In a band the other time lies between these, whichever side is the new one.
    earliest = time - rules.high if which == 1 else time + rules.low
    latest = time - rules.low if which == 1 else time + rules.high
    head, room, ordinal = other.header[HEAD], len(pairs.left), new.ordinals[row]
    first = n = progress[FOUND]
    number = other.buckets[bucket_of(other, word)]
    while number >= head:
        record = record_of(other, number)
        if has_key(other, record, word, fits_word, at, mine.bytes):
            met = other.records[record, TIME]
            # Joined with itself, a stream has each tuple on both sides: it does not meet itself.
            if (not is_band or earliest <= met <= latest) and other.records[record, ORDINAL] != ordinal:
                if n == room:
                    return FULL
                _write_pair(mine, other, which, record, number, pairs, n)
                n += 1
        number = other.records[record, OLDER] >> FLAG_BITS
    if n > first:
        if n > first + 1:
            _turn(pairs.left, first, n)
            _turn(pairs.right, first, n)
            _turn(pairs.right_times if which == 0 else pairs.left_times, first, n)
        _name_pairs(which, new, row, rules, pairs, first, n)
        progress[FOUND] = n
    return DONE


@njit(inline="always", _nrt=False)
def _keep_in_order(mine, which, new, row, rules):
    """Keeps a new tuple, on a trail if it is to be found by its key, and drops the one whose place it takes."""
    number = mine.header[TAIL]
    record = _new_record(mine, new, row, rules)
    if rules.meets_any or (new.nulls[row] and rules.keeps_null[which]):
        mine.records[record, OLDER] = NULL
    elif new.nulls[row]:
        mine.records[record, ORDINAL] = DEAD
        skim(mine)
        return
    else:
        lay(mine, record, number)
    mine.records[record, ORDINAL] = new.ordinals[row]
    mine.header[LIVE] += 1
    if rules.is_partition and mine.header[LIVE] > rules.sizes[which]:
        let_head_go(mine)


@njit(inline="always", _nrt=False)
def _look_along_trails(mine, other, new, first, end, progress):
    """Reads the buckets of the next tuples, then the newest tuple of each trail, then the one before it, and so on.

    Each tuple of a trail says where the one before it lies. Along one trail memory answers one question at a time, and
    the records of a large window are in no near cache; along all trails at once it answers many.
    """
    head = other.header[HEAD]
    touched, looking = 0, AHEAD + end - first
    for row in range(first, end):
        touched += mine.buckets[bucket_of(mine, new.keys[row])]
        progress[AHEAD + row - first] = other.buckets[bucket_of(other, new.keys[row])]
    for _ in range(_DEEP):
        for at in range(AHEAD, looking):
            number = progress[at]
            if number >= head:
                progress[at] = other.records[record_of(other, number), OLDER] >> FLAG_BITS
    return touched


@njit(cache=True, nogil=True, _nrt=False)
def take_in_trails(left, right, new_left, new_right, rules, pairs, progress):
    """Takes in new tuples of both sides in the serialised order; DONE, or FULL or GROW if it is to be called again."""
    return _take_in(
        _meet_trail, _keep_in_order, _look_along_trails, left, right, new_left, new_right, rules, pairs, progress
    )


# ---------------------------------------------------------------------- lists: windows of n tuples a key


@njit(inline="always", _nrt=False)
def _meet_list(mine, other, which, new, row, rules, pairs, progress):
    """Writes the pairs of a new tuple with those of a list, oldest first; without room writes none and returns FULL."""
    fits_word = rules.fits_word
    record = oldest_of_key(other, new.keys[row], fits_word, new.key_at[row], mine.bytes)
    if record < 0:
        return DONE
    first = n = progress[FOUND]
    if n + other.links[record, COUNT] > len(pairs.left):
        return FULL
    while record >= 0:
        _write_pair(mine, other, which, record, number_in(other, record), pairs, n)
        n += 1
        record = other.links[record, NEWER]
    _name_pairs(which, new, row, rules, pairs, first, n)
    progress[FOUND] = n
    return DONE


@njit(inline="always", _nrt=False)
def _keep_in_list(mine, which, new, row, rules):
    """Keeps a new tuple, and drops the one of the same key whose place it takes."""
    record = _new_record(mine, new, row, rules)
    if new.nulls[row]:
        mine.records[record, ORDINAL] = DEAD
        skim(mine)
        return
    mine.records[record, ORDINAL] = new.ordinals[row]
    mine.header[LIVE] += 1
    many, oldest = append(mine, record, rules.fits_word)
    if many > rules.sizes[which]:
        let_oldest_go(mine, oldest)
        skim(mine)


@njit(inline="always", _nrt=False)
def _look_along_lists(mine, other, new, first, end, progress):
    touched = _touch_buckets(mine, other, new, first, end)
    for row in range(first, end):
        found = other.buckets[bucket_of(other, new.keys[row])]
        if found >= 0:
            touched += other.links[found, CHAIN]
        found = mine.buckets[bucket_of(mine, new.keys[row])]
        if found >= 0:
            touched += mine.links[found, CHAIN]
    return touched


@njit(cache=True, nogil=True, _nrt=False)
def take_in_lists(left, right, new_left, new_right, rules, pairs, progress):
    """Takes in new tuples as `take_in_trails`, for windows of n tuples a key."""
    return _take_in(
        _meet_list, _keep_in_list, _look_along_lists, left, right, new_left, new_right, rules, pairs, progress
    )


# ---------------------------------------------------------------------- stretches: keys need not be equal


@njit(inline="always", _nrt=False)
def _first_from(side, time):
    """Returns the number of the first kept tuple that is not before this time: tuples came in the order of time."""
    low, high = side.header[HEAD], side.header[TAIL]
    while low < high:
        middle = (low + high) // 2
        if side.records[record_of(side, middle), TIME] < time:
            low = middle + 1
        else:
            high = middle
    return low


@njit(inline="always", _nrt=False)
def _meet_stretch(mine, other, which, new, row, rules, pairs, progress):
    """Writes the stretch that a new tuple meets; without room writes none and returns FULL."""
    begin, end = other.header[HEAD], other.header[TAIL]
    if rules.is_band:
        time = new.times[row]
        begin = _first_from(other, time - rules.high if which == 1 else time + rules.low)
        end = _first_from(other, (time - rules.low if which == 1 else time + rules.high) + 1)
    if begin < end and other.records[record_of(other, end - 1), ORDINAL] == new.ordinals[row]:
        end -= 1  # the tuple itself, see `_meet_trail`: the other side took it in right before
    if begin >= end:
        return DONE
    n = progress[FOUND]
    if n == len(pairs.left):
        return FULL
    place, first = mine.header[TAIL] - mine.header[FIRST], other.header[FIRST]
    pairs.left[n], pairs.right[n] = (begin - first, place) if which == 1 else (place, begin - first)
    pairs.keys[n], pairs.sides[n] = end - first, which
    progress[FOUND] = n + 1
    return DONE


@njit(inline="always", _nrt=False)
def _look_nowhere(mine, other, new, first, end, progress):
    return 0  # records are read in their order


@njit(cache=True, nogil=True, _nrt=False)
def take_in_stretches(left, right, new_left, new_right, rules, pairs, progress):
    """Takes in new tuples as `take_in_trails`, where keys need not be equal."""
    return _take_in(
        _meet_stretch, _keep_in_order, _look_nowhere, left, right, new_left, new_right, rules, pairs, progress
    )
