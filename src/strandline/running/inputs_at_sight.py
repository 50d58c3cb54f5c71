"""A driver's look at its inputs: which can be read, how far each is complete, and up to which time it has tuples."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from strandline.errors import StorageError
from strandline.inputs.input_stream import blocks_between, guess_blocks
from strandline.log.operator_state.guesses import Guesses, guessed_until, passed_by, undone_until
from strandline.log.operator_state.input_mark import Marks
from strandline.log.stream.log import Log
from strandline.running.watch import Arrival, Sight, Watch
from strandline.units import END_OF_TIME, latest


def look(
    inputs: Sequence[Log], marks: Sequence[Marks], watch: Watch, but: Set[int] = frozenset()
) -> tuple[Watch, list[Sight]]:
    """Refreshes the inputs, except those in `but`; returns the watch, and what each input shows since the last look.

    An input that fails, and each of `but`, is not reachable. An input may be another replica than at the last look: the
    returned watch then has the arrivals of that replica.
    """
    known = watch.streams or ("",) * len(inputs)
    for number, (stream, log) in enumerate(zip(known, inputs, strict=True)):
        if number not in but and stream not in ("", log.spec.id):
            watch = watch.changed_over(number, _arrived(log, number, marks, watch.arrivals[number]))
    streams = (known[n] if n in but else log.spec.id for n, log in enumerate(inputs))
    watch = replace(watch, streams=tuple(streams))
    unseen = Sight(None, is_reachable=False)
    return watch, [unseen if n in but else _sight(log, n, marks, watch) for n, log in enumerate(inputs)]


def _arrived(log: Log, number: int, marks: Sequence[Marks], seen: tuple[Arrival, ...]) -> tuple[Arrival, ...]:
    """Returns the arrivals of a replica that the operator reads from now on.

    As far as the replica is complete, its results have arrived when those of the replica before did. Tuples beyond that
    arrive again.
    """
    boundary = log.state.boundary
    if boundary is None:
        return ()
    found = [one for one in seen if one.boundary <= boundary]
    beyond = next((one for one in seen if one.boundary > boundary), None)
    since = found[-1].boundary if found else None
    if beyond is not None and since != boundary:
        last = latest(*(_latest(log, number, p, m, since, boundary) for p, m in enumerate(marks)))
        found.append(replace(beyond, boundary=boundary, latest=last))
    return tuple(found)


def _sight(log: Log, number: int, marks: Sequence[Marks], watch: Watch) -> Sight:
    before = watch.boundary(number)
    try:
        log.refresh()
        boundary, undone = log.state.boundary, undone_until(log.state)
        sight = Sight(boundary, guessed=guessed_until(log.state), undone=undone, passed=passed_by(log.state))
        if boundary is not None and (before is None or boundary > before):
            found = [_latest(log, number, p, m, before, boundary) for p, m in enumerate(marks)]
            sight = replace(sight, latest=latest(*found))
        seen = watch.guessed(number, undone)
        if sight.guessed is not None and (seen is None or sight.guessed > seen):
            since = boundary if seen is None else seen
            every = [watch.guesses_of(number, log, p) for p in range(len(marks))]
            found = [_latest(log, number, p, m, since, sight.guessed) for p, m in enumerate(marks)]
            guesses = [_latest_guess(log, p, own, since, sight.guessed) for p, own in enumerate(every)]
            sight = replace(sight, latest_guess=latest(*found, *guesses))
    except StorageError:
        # The input may have moved on: the next look that can read it notes what has arrived.
        return Sight(None, is_reachable=False)
    return sight


def _latest(log: Log, number: int, partition: int, marks: Marks, before: int | None, boundary: int) -> int | None:
    """Returns the latest time that a tuple between the two boundaries can have; None if there is none.

    Tuples that the operator has taken in do not count.
    """
    since = latest(before, marks.stands.bound)
    found = blocks_between(log, partition, marks.inputs[number].first, since, boundary)
    return max((min(block.time_max, boundary - 1) for block in found), default=None)


def _latest_guess(log: Log, partition: int, guesses: Guesses | None, since: int | None, until: int) -> int | None:
    """Returns the latest time that a guess between two boundaries of guesses can have; None if there is none."""
    if guesses is None:
        return None
    before = None if until == END_OF_TIME else until
    # If a block has results too, its times are those of the results.
    times = [
        until - 1 if block.has_results else min(block.time_max, until - 1)
        for block in guess_blocks(log, partition, guesses, since, before)
    ]
    return latest(*times)
