"""A driver's look at its inputs: which can be read, how far each is complete, and until when there are tuples."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.availability.watch import Sight, Watch
from strandline.errors import StorageError
from strandline.log.input_mark import Marks
from strandline.log.log import Log
from strandline.processing.input_stream import blocks_between
from strandline.units import END_OF_TIME


def look(inputs: Sequence[Log], marks: Sequence[Marks], watch: Watch) -> list[Sight]:
    """Refreshes the inputs; what each of them shows since the last look. One that fails is not reachable."""
    return [_sight(log, number, marks, watch.boundary(number)) for number, log in enumerate(inputs)]


def _sight(log: Log, number: int, marks: Sequence[Marks], before: int | None) -> Sight:
    try:
        log.refresh()
        boundary = log.state.boundary
        if boundary is None or (before is not None and boundary <= before):
            return Sight(boundary)
        latest = [_latest(log, number, p, m, before, boundary) for p, m in enumerate(marks)]
    except StorageError:
        # Perhaps it has moved: what has arrived with that is noted when it can be seen.
        return Sight(None, is_reachable=False)
    return Sight(boundary, max((time for time in latest if time is not None), default=None))


def _latest(log: Log, number: int, partition: int, marks: Marks, before: int | None, boundary: int) -> int | None:
    """No tuple between the two boundaries that is not taken in is later than this; None if there is none."""
    known = [bound for bound in (before, marks.stands.bound) if bound is not None]
    until = None if boundary == END_OF_TIME else boundary
    since = max(known, default=None)
    found = blocks_between(log, partition, marks.inputs[number].first, since, until)
    return max((min(block.time_max, boundary - 1) for block in found), default=None)
