"""What the driver notes of several inputs: where an operator stands in each, and what each has to keep for it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from strandline.errors import ConflictError
from strandline.log.input_mark import InputMark, Marks, Position
from strandline.log.log import Log
from strandline.processing.put_back import require_reached, require_seen
from strandline.units import END_OF_TIME


@dataclass(frozen=True, slots=True)
class Seen:
    """The last append of an input that was known when a batch was chosen."""

    commit: int
    checksum: str


def last_seen(log: Log) -> Seen:
    """The last append of the input as of its last refresh."""
    for m in log.before(log.state.seq + 1):
        if m.kind == "append":
            return Seen(m.seq, m.checksum)
    return Seen(-1, "")  # dropped, or there is none


def fresh_marks(inputs: Sequence[Log]) -> list[Marks]:
    """Where an operator stands that has never worked: at what each input still has, per partition."""
    begin = Position(0, None)
    return [
        Marks(begin, begin, tuple(InputMark(log.state.starts[p], log.state.starts[p]) for log in inputs))
        for p in range(inputs[0].spec.partitions)
    ]


def moved(
    before: Marks, inputs: Sequence[Log], partition: int, stands: Position, oldest: Position, seen: Sequence[Seen]
) -> Marks:
    """The marks after a step, with what each input has to keep from now on."""
    found = []
    for log, mark, last in zip(inputs, before.inputs, seen, strict=True):
        known = (last.commit, last.checksum) if last.commit >= 0 else (mark.seen, mark.seen_checksum)
        first = mark.first if stands == before.stands else first_needed(log, partition, stands.bound, mark.first)
        needs = mark.oldest if oldest == before.oldest else first_needed(log, partition, oldest.bound, mark.oldest)
        found.append(InputMark(first, min(first, needs), *known))
    return Marks(stands, oldest, tuple(found))


def first_needed(log: Log, partition: int, bound: int | None, at_least: int) -> int:
    """The first offset, not before `at_least`, that may hold a tuple which is not before the bound. Cheap.

    Compaction may put a block around it that begins earlier: what was not needed before is not needed again.
    """
    if bound is None:
        return at_least
    if bound == END_OF_TIME:
        return log.state.ends[partition]
    while True:
        try:
            blocks = log.blocks(partition, at_least, time_from=bound)
            found = next((b.first for b in blocks if b.has_results), log.state.ends[partition])
            return max(at_least, found)
        except ConflictError:
            continue  # compacted in this instant


def needs(marks: Sequence[Marks], number: int) -> list[int]:
    """What a consumer registers with one of the inputs, per partition."""
    return [m.inputs[number].oldest for m in marks]


def require_same_inputs(inputs: Sequence[Log], marks: Sequence[Marks], but: Set[int] = frozenset()) -> None:
    """Raises `InputWentBackError` if one of the inputs is not what the operator has seen: if it was put back.

    Those `but`, by their numbers, are not looked at.
    """
    for number, log in enumerate(inputs):
        if number not in but:
            require_same_input(log, number, marks)


def require_same_input(log: Log, number: int, marks: Sequence[Marks]) -> None:
    """The same of one of them."""
    mine = [m.inputs[number] for m in marks]
    require_reached(log, max(mark.seen for mark in mine), [mark.first for mark in mine])
    require_seen(log, mine[0].seen, mine[0].seen_checksum)
