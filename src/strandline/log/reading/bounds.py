"""From where to where a stream is read: times, or offsets by partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from strandline.errors import OptionError
from strandline.log.stream.block import Block
from strandline.log.stream.log import END, Log
from strandline.times import Time, Zone, time_value
from strandline.units import whole_number

Bound = Time | Mapping[int, int]
"""A point in the stream: a time, or an offset for each partition."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """A part of a stream: of some partitions the offsets, of all tuples the times, the ends excluded."""

    firsts: Mapping[int, int]
    ends: Mapping[int, int]
    time_from: int | None
    time_until: int | None

    @classmethod
    def of(cls, log: Log, since: Bound | None, until: Bound | None, zone: Zone, *, late: bool) -> Bounds:
        """Returns the bounds that a caller asked for; raises `TruncatedError` if some of the offsets were dropped."""
        time_from, firsts = _split(log, since, "since", zone)
        time_until, ends = _split(log, until, "until", zone)
        if late and (firsts or ends):
            raise OptionError(
                "late=True with offsets: offsets are places in partitions, and the side log has none",
                todo="give times instead",
            )
        for p, first in firsts.items():
            log.require_kept(p, first)
        return cls(firsts, ends, time_from, time_until)

    def blocks(self, log: Log, partition: int) -> Iterator[Block]:
        """Yields the blocks of a partition that may hold some of the part."""
        first, end = self.firsts.get(partition, 0), self.ends.get(partition, END)
        return log.blocks(partition, first, end, self.time_from, self.time_until)


def log_time(log: Log, value: Time, option: str, zone: Zone) -> int:
    """Returns the stream's integer for a time; one without a zone is on the clock of `zone`, or else the machine's."""
    return time_value(value, option, log.spec.time_kind, zone)


def _split(log: Log, bound: Bound | None, name: str, zone: Zone) -> tuple[int | None, dict[int, int]]:
    """Returns a bound as a time or as offsets."""
    if bound is None:
        return None, {}
    if not isinstance(bound, Mapping):
        return log_time(log, bound, name, zone), {}
    offsets = {p: whole_number(offset) for p, offset in bound.items()}
    known = {p: offset for p, offset in offsets.items() if p in range(log.spec.partitions) and offset is not None}
    if len(known) < len(offsets):
        raise OptionError(
            f"{name}={dict(bound)!r} has a number that is no partition, or a value that is no offset",
            where=f"{log.storage.url}, partitions 0 to {log.spec.partitions - 1}",
            todo="pass partitions and their offsets, as offsets() of the stream returns them",
        )
    return None, known
