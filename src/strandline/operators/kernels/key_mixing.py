"""Where a key goes in a hash table: a mix of all its bits and of a number that the state drew for itself.

Keys come from outside. Without the number, a sender could choose keys that all go to one bucket, and a step would cost
the square of its tuples. Nothing but the time that a search takes follows from it: results, footprints and partitions
are the same whatever the number is.
"""

# mypy: disable-error-code="no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

import secrets

import numpy as np

from strandline.operators.kernels.kernel_cache import njit

_FIRST, _SECOND = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_HALF = np.uint64(33)


def new_seed() -> int:
    """Returns a number that no sender of keys can know."""
    return secrets.randbits(64) - (1 << 63)


@njit(inline="always", _nrt=False)
def mixed(word: int, seed: int) -> np.uint64:
    """Returns a number in whose halves every bit of the word and of the seed takes part.

    The second product is what the seed is for: with one alone, keys that meet for one seed meet for all. A third step,
    as in MurmurHash3, would cost a nanosecond a tuple more.
    """
    h = (np.uint64(word) ^ np.uint64(seed)) * _FIRST
    h = (h ^ (h >> _HALF)) * _SECOND
    return h ^ (h >> _HALF)
