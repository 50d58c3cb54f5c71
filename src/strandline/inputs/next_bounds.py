"""How far a batch goes into several inputs: a time for each partition, so that about so many tuples come together.

Whatever is chosen, results are the same. A month that waits must not be listed block by block to take in its first
minute; so blocks are counted in the order of time until there are enough of them, and no further.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence

from strandline.log.operator_state.input_mark import Marks
from strandline.log.stream.block import Block
from strandline.log.stream.listing import undisturbed
from strandline.log.stream.log import END, Log
from strandline.units import END_OF_TIME, first_of_all, is_before

_Ahead = tuple[int, int]
"""Of a block, its least time that is not taken in, and about how many tuples of it are not."""


def reachable(inputs: Sequence[Log], partition: int) -> int | None:
    """Returns the time before which all tuples of all inputs are there; None if one of them has no such time yet."""
    return first_of_all(log.state.boundaries[partition] for log in inputs)


def next_bounds(inputs: Sequence[Log], marks: Sequence[Marks], tuples_max: int) -> list[int | None]:
    """Returns for each partition the time up to which the next batch takes in tuples; None if it does not move.

    They go forward together. A batch goes at least up to the least time of a block that was not begun yet, so there
    are no more batches than blocks, however small `tuples_max` is.
    """
    reach = [reachable(inputs, p) for p in range(len(marks))]
    ahead = [p for p, mark in enumerate(marks) if is_before(mark.stands.bound, reach[p])]
    common = undisturbed(
        lambda: _common([w for p in ahead for w in _waiting(inputs, p, marks[p], reach[p])], tuples_max)
    )
    found: list[int | None] = [None] * len(marks)
    for p in ahead:
        until = reach[p]
        assert until is not None
        if common is not None:
            until = min(until, common)
        found[p] = until if is_before(marks[p].stands.bound, until) else None
    return found


def _waiting(inputs: Sequence[Log], partition: int, marks: Marks, until: int | None) -> Iterator[Iterator[_Ahead]]:
    """Yields the blocks of each input that hold tuples to be taken in, in the order of their offsets."""
    before = None if until == END_OF_TIME else until
    since = marks.stands.bound
    for log, mark in zip(inputs, marks.inputs, strict=True):
        yield _ahead(log.blocks(partition, mark.first, END, since, before), since)


def _ahead(blocks: Iterator[Block], since: int | None) -> Iterator[_Ahead]:
    for block in blocks:
        if block.has_results:
            least = block.time_min if since is None else max(block.time_min, since)
            share = (block.time_max - least + 1) / (block.time_max - block.time_min + 1)
            yield least, max(1, round(block.results * share))


def _common(waiting: Iterable[Iterator[_Ahead]], tuples_max: int) -> int | None:
    """Returns the time before which about so many tuples wait; None if there are not so many."""
    first, tuples = None, 0
    for least, count in heapq.merge(*waiting):  # one block ahead of each
        first = least if first is None else first
        if tuples >= tuples_max and least > first:
            return least
        tuples += count
    return None
