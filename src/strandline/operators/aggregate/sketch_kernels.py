"""The compiled loops over sketches: sorted lists of values with or without counts, and the registers of a HyperLogLog.

`plain_sketches.py` says in plain Python what they compute. A sketch is a row of 64-bit words. The first one
says what it is; behind it are elements in ascending order, or the registers, eight a word. A sketch is a function of
the values it has taken, not of their order: lists are merged, counts added, registers take the larger.
"""

# mypy: disable-error-code="no-any-return,no-untyped-call,no-untyped-def,untyped-decorator"

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from strandline.operators.kernels.kernel_arrays import Bytes, Int64s
from strandline.operators.kernels.kernel_cache import njit
from strandline.operators.open_windows.record import LENGTH_BITS, LENGTH_MAX

EXACT, DENSE = 0, 1
"""The first word of what counts distinct values: a list of them, or registers."""
INDEX_BITS = 12
REGISTERS = 1 << INDEX_BITS
DENSE_WORDS = 1 + REGISTERS // 8
COARSE = 45
"""By how many bits the values of a percentile are cut first, when there are too many: 128 buckets from 1 to 2."""
BUCKETS_MAX = 2048
BITS_MAX = 53
"""They are never cut by more: so few bits are left of each that there are no more buckets than there may be."""
FNV_OFFSETS = (0xCBF29CE484222325, 0x84222325CBF29CE4)
FNV_PRIMES = (0x100000001B3, 0x9E3779B97F4A7C15)
MIX = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)

_OFFSET_1, _OFFSET_2 = (np.uint64(x) for x in FNV_OFFSETS)
_PRIME_1, _PRIME_2 = (np.uint64(x) for x in FNV_PRIMES)
_MIX_1, _MIX_2 = (np.uint64(x) for x in MIX)
_33, _1, _0 = np.uint64(33), np.uint64(1), np.uint64(0)
_KEY_MIN, _KEY_MAX = np.int64(-(1 << 63)), np.int64((1 << 63) - 1)
_INDEX_SHIFT, _RANK_BITS = np.uint64(64 - INDEX_BITS), 64 - INDEX_BITS


@njit(inline="always", _nrt=False)
def mixed(word):
    """Returns a hash of a word: every bit of it depends on every bit of the word."""
    h = np.uint64(word)
    h = (h ^ (h >> _33)) * _MIX_1
    h = (h ^ (h >> _33)) * _MIX_2
    return h ^ (h >> _33)


@njit(cache=True, nogil=True, _nrt=False)
def hash_bytes(refs, held, data, out):
    """Returns two hashes of the bytes of each reference into the batch."""
    for i in range(len(refs)):
        begin, length = (refs[i] >> LENGTH_BITS) - held, refs[i] & LENGTH_MAX
        one, two = _OFFSET_1, _OFFSET_2
        for j in range(begin, begin + length):
            byte = np.uint64(data[j])
            one = (one ^ byte) * _PRIME_1
            two = (two ^ byte) * _PRIME_2
        out[i, 0], out[i, 1] = np.int64(mixed(one)), np.int64(mixed(two))


@njit(inline="always", _nrt=False)
def add_to_registers(registers, word):
    h = mixed(word)
    index = np.int64(h >> _INDEX_SHIFT)
    rest = h << np.uint64(INDEX_BITS)
    rank = 1
    while rank <= _RANK_BITS and (rest >> np.uint64(63)) == _0:
        rest = rest << _1
        rank += 1
    if rank > registers[index]:
        registers[index] = rank


@njit(inline="always", _nrt=False)
def compare(a, i, b, j, key_words):
    for k in range(key_words):
        if a[i + k] != b[j + k]:
            return -1 if a[i + k] < b[j + k] else 1
    return 0


@njit(inline="always", _nrt=False)
def put(out, end, source, at, stride, key_words):
    """Appends an element, or adds its count to the last one if that has the same key; returns where the list ends."""
    if end > 0 and compare(out, end - stride, source, at, key_words) == 0:
        if stride > key_words:
            out[end - 1] += source[at + key_words]
        return end
    for k in range(stride):
        out[end + k] = source[at + k]
    return end + stride


@njit(_nrt=False)
def merge(a, a_end, b, b_end, out, stride, key_words):
    """Merges two lists, each element once; returns where it ends. Each may have an element several times, in a row."""
    i, j, end = 0, 0, 0
    while i < a_end or j < b_end:
        if j >= b_end or (i < a_end and compare(a, i, b, j, key_words) <= 0):
            end = put(out, end, a, i, stride, key_words)
            i += stride
        else:
            end = put(out, end, b, j, stride, key_words)
            j += stride
    return end


@njit(_nrt=False)
def cut(elements, end, bits):
    """Cuts the keys of a list of keys and counts by that many bits; returns where it ends then."""
    kept = 0
    for i in range(0, end, 2):
        key, count = elements[i] >> bits, elements[i + 1]
        if kept > 0 and elements[kept - 2] == key:
            elements[kept - 1] += count
        else:
            elements[kept], elements[kept + 1] = key, count
            kept += 2
    return kept


class Sketches(NamedTuple):
    """Sketch i is `words[starts[i]:starts[i + 1]]`; those of group g are `of_group[g]` to before `of_group[g + 1]`."""

    words: Int64s
    starts: Int64s
    of_group: Int64s


class Elements(NamedTuple):
    """Elements of groups, sorted in each; those of group g are `of_group[g]` to before `of_group[g + 1]`."""

    words: Int64s
    of_group: Int64s


class Folded(NamedTuple):
    """Room for the sketch of each group, which ends at `ends` then. `bytes` is `words` seen as bytes."""

    words: Int64s
    bytes: Bytes
    ends: Int64s


@njit(cache=True, nogil=True)
def fold_distinct(bound, key_words, old_sketches, elements, folded):
    """Fills `folded`: of each group, the old sketches of distinct values and the elements as one sketch."""
    olds, starts, of_group = old_sketches
    added, added_of_group = elements
    out, out_bytes, ends = folded
    cursor = 0
    for group in range(len(of_group) - 1):
        first, last = of_group[group], of_group[group + 1]
        news = added[added_of_group[group] * key_words : added_of_group[group + 1] * key_words]
        room, is_dense = len(news), False
        for i in range(first, last):
            if starts[i + 1] > starts[i]:
                is_dense = is_dense or olds[starts[i]] == DENSE
                room += starts[i + 1] - starts[i]
        if not is_dense:
            one, other = np.empty(room, np.int64), np.empty(room, np.int64)
            end = merge(news, len(news), news, 0, one, key_words, key_words)
            for i in range(first, last):
                if starts[i + 1] > starts[i]:
                    old = olds[starts[i] + 1 : starts[i + 1]]
                    end = merge(old, len(old), one, end, other, key_words, key_words)
                    one, other = other, one
            if end // key_words <= bound:
                if end > 0:
                    out[cursor] = EXACT
                    out[cursor + 1 : cursor + 1 + end] = one[:end]
                    cursor += 1 + end
                ends[group] = cursor
                continue
        out[cursor] = DENSE
        out[cursor + 1 : cursor + DENSE_WORDS] = 0
        registers = out_bytes[8 * (cursor + 1) : 8 * (cursor + DENSE_WORDS)]
        for i in range(first, last):
            if starts[i + 1] > starts[i] and olds[starts[i]] == DENSE:
                for r in range(REGISTERS):
                    rank = (olds[starts[i] + 1 + r // 8] >> (8 * (r % 8))) & 255
                    if rank > registers[r]:
                        registers[r] = rank
            else:
                for at in range(starts[i] + 1, starts[i + 1], key_words):
                    add_to_registers(registers, olds[at])
        for at in range(0, len(news), key_words):
            add_to_registers(registers, news[at])
        cursor += DENSE_WORDS
        ends[group] = cursor


@njit(cache=True, nogil=True)
def fold_counts(bound, old_sketches, elements, folded):
    """Fills `folded` for values and how often each was met; the first word is by how many bits values are cut."""
    olds, starts, of_group = old_sketches
    added, added_of_group = elements
    out, _, ends = folded
    cursor = 0
    for group in range(len(of_group) - 1):
        first, last = of_group[group], of_group[group + 1]
        news = added[added_of_group[group] * 2 : added_of_group[group + 1] * 2].copy()
        room, bits = len(news), 0
        for i in range(first, last):
            if starts[i + 1] > starts[i]:
                bits = max(bits, olds[starts[i]])
                room += starts[i + 1] - starts[i]
        one, other = np.empty(room, np.int64), np.empty(room, np.int64)
        end = merge(news, cut(news, len(news), bits), news, 0, one, 2, 1)
        for i in range(first, last):
            if starts[i + 1] > starts[i]:
                old = olds[starts[i] + 1 : starts[i + 1]].copy()
                end = merge(old, cut(old, len(old), bits - olds[starts[i]]), one, end, other, 2, 1)
                one, other = other, one
        while end // 2 > (bound if bits == 0 else BUCKETS_MAX):
            more = COARSE if bits == 0 else 1
            end = cut(one, end, more)
            bits += more
        if end > 0:
            out[cursor] = bits
            out[cursor + 1 : cursor + 1 + end] = one[:end]
            cursor += 1 + end
        ends[group] = cursor


@njit(cache=True, nogil=True, _nrt=False)
def first_unsound(bound, key_words, has_counts, words, starts, rows):
    """Returns the number of the first sketch that no values can have made, -1 if there is none.

    The sketches are of windows with so many rows. All that the other loops rely on is checked: what the first word
    says, the length, the order of elements, counts, by how many bits values are cut, and the registers.
    """
    stride = 2 if has_counts else key_words
    for i in range(len(starts) - 1):
        first, end = starts[i], starts[i + 1]
        if end == first:
            continue
        head = words[first]
        if not has_counts and head == DENSE:
            if end - first != DENSE_WORDS:
                return i
            for at in range(first + 1, end):
                for b in range(8):
                    if (words[at] >> (8 * b)) & 255 > _RANK_BITS + 1:
                        return i
            continue
        if head != EXACT and not (has_counts and COARSE <= head <= BITS_MAX):
            return i
        many = (end - first - 1) // stride
        if many == 0 or many * stride != end - first - 1 or many > (bound if head == EXACT else BUCKETS_MAX):
            return i
        left = rows[i]
        for at in range(first + 1, end, stride):
            if at > first + 1 and compare(words, at - stride, words, at, key_words) >= 0:
                return i
            count = words[at + 1] if has_counts else 1
            if count < 1 or count > left or (head > 0 and not _KEY_MIN >> head <= words[at] <= _KEY_MAX >> head):
                return i
            left -= count
    return -1


@njit(cache=True, nogil=True, _nrt=False)
def at_rank(p, words, starts, keys, position):
    """Returns for each list of values and counts, the two values between which the percentile lies, and where.

    If values are cut, it is the nearest one twice.
    """
    for i in range(len(starts) - 1):
        first, end = starts[i] + 1, starts[i + 1]
        total = 0
        for at in range(first, end, 2):
            total += words[at + 1]
        if total == 0:
            continue
        position[i] = (total - 1) * p
        lower, higher = math.floor(position[i]), math.ceil(position[i])
        if words[first - 1] > 0:
            lower = higher = math.floor(position[i] + 0.5)
        met = 0
        for at in range(first, end, 2):
            before, met = met, met + words[at + 1]
            if before <= lower < met:
                keys[i, 0] = words[at]
            if before <= higher < met:
                keys[i, 1] = words[at]
