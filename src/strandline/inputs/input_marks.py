"""Marks of several inputs: where an operator stands in each, and what each has to keep for it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from weakref import WeakKeyDictionary

from strandline.inputs.put_back import require_not_put_back
from strandline.log.operator_state.beginning import Beginning
from strandline.log.operator_state.input_mark import InputMark, Marks, Position, ReplicaMark
from strandline.log.reading.result_ordinals import first_kept_result, offset_of_result, results_between
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.listing import undisturbed
from strandline.log.stream.log import Log
from strandline.units import END_OF_TIME

_PLACES: WeakKeyDictionary[Log, dict[tuple[int, str], tuple[int, int]]] = WeakKeyDictionary()
"""By replica, for each partition and end of a mark: a number of results, and its offset, which is that for ever."""


def last_seen(log: Log) -> AppendCommit | None:
    """Returns the last append of the input as of its last refresh; None if it was dropped, or there is none."""
    return next((m for m in log.before(log.state.seq + 1) if isinstance(m, AppendCommit)), None)


def fresh_marks(
    inputs: Sequence[Log], replicas: Set[int] = frozenset(), begins: Beginning | None = None
) -> list[Marks]:
    """Returns the marks of a new operator: the oldest tuples that each input keeps, or where the operator `begins`.

    `replicas` are the numbers of inputs that are several replicas, of which these are chosen.
    """
    found = []
    for p in range(inputs[0].spec.partitions):
        begin = Position(0, None if begins is None else begins.time(p))
        marks = (_fresh(log, p, begin.bound, is_replica=n in replicas) for n, log in enumerate(inputs))
        found.append(Marks(begin, begin, tuple(marks)))
    return found


def _fresh(log: Log, partition: int, bound: int | None, *, is_replica: bool) -> InputMark:
    start = log.state.starts[partition]
    first = first_needed(log, partition, bound, start)
    if not is_replica:
        return InputMark(first, first)
    results = (first_kept_result(log, partition) if start else 0) + results_between(log, partition, start, first)
    return InputMark(first, first, replica=ReplicaMark(log.spec.id, results, results))


def in_logs(marks: Marks, inputs: Sequence[Log], partition: int, but: Set[int] = frozenset()) -> Marks:
    """Translates marks into the replicas that are read now, whichever were read when the marks were made.

    Those `but`, by their numbers, cannot be read, and are left as they are noted. Raises `TruncatedError` if one of
    the others does not keep what a replay needs.
    """
    if all(mark.replica is None or mark.replica.stream == log.spec.id for mark, log in _pairs(marks, inputs)):
        return marks
    found = enumerate(_pairs(marks, inputs))
    return replace(marks, inputs=tuple(m if n in but else _in_log(m, log, partition) for n, (m, log) in found))


def _in_log(mark: InputMark, log: Log, partition: int) -> InputMark:
    """Translates one mark; what was seen of another replica is unknown here, because its commits are cut otherwise."""
    if mark.replica is None or mark.replica.stream == log.spec.id:
        return mark
    first = _offset(log, partition, "first", mark.replica.first)
    oldest = _offset(log, partition, "oldest", mark.replica.oldest)
    return InputMark(first, oldest, replica=replace(mark.replica, stream=log.spec.id))


def _offset(log: Log, partition: int, end: str, results: int) -> int:
    """Returns the offset at which so many results end in a replica. Every tick asks for it until the operator moves,
    and it may lie far back: so it is looked for once."""
    known = _PLACES.setdefault(log, {})
    ordinal, offset = known.get((partition, end), (-1, 0))
    if ordinal != results:
        offset = offset_of_result(log, partition, results)
        if offset < log.state.ends[partition]:  # else it is the place of one that is to come
            known[partition, end] = results, offset
    log.require_kept(partition, offset)
    return offset


def oldest_in(log: Log, partition: int, mark: InputMark) -> int:
    """Returns the first offset that a replay needs, in any replica; raises `TruncatedError` if it was dropped there."""
    if mark.replica is None or mark.replica.stream == log.spec.id:
        return mark.oldest
    return offset_of_result(log, partition, mark.replica.oldest)


def _pairs(marks: Marks, inputs: Sequence[Log]) -> list[tuple[InputMark, Log]]:
    return list(zip(marks.inputs, inputs, strict=True))


def moved(
    before: Marks,
    inputs: Sequence[Log],
    partition: int,
    stands: Position,
    oldest: Position,
    seen: Sequence[AppendCommit | None],
) -> Marks:
    """Returns the marks after a step, with what each input has to keep from now on; `before` is in these logs, see
    `in_logs`."""
    found = []
    for log, mark, last in zip(inputs, before.inputs, seen, strict=True):
        known = (last.seq, last.checksum) if last is not None else (mark.seen, mark.seen_checksum)
        first = mark.first if stands == before.stands else first_needed(log, partition, stands.bound, mark.first)
        needs = mark.oldest if oldest == before.oldest else first_needed(log, partition, oldest.bound, mark.oldest)
        now = InputMark(first, min(first, needs), *known)
        found.append(replace(now, replica=_counted(log, partition, mark, now)))
    return Marks(stands, oldest, tuple(found))


def _counted(log: Log, partition: int, before: InputMark, now: InputMark) -> ReplicaMark | None:
    """Returns a mark for other replicas: its offsets as numbers of results, counted on from those before."""
    if before.replica is None:
        return None
    first = before.replica.first + results_between(log, partition, before.first, now.first)
    oldest = before.replica.oldest + results_between(log, partition, before.oldest, now.oldest)
    return ReplicaMark(log.spec.id, first, oldest)


def first_needed(log: Log, partition: int, bound: int | None, at_least: int) -> int:
    """Returns the first offset from `at_least` on that may hold a tuple which is not before the bound. Cheap.

    Compaction may put a block around it that begins earlier: what was not needed before is not needed again.
    """
    if bound is None:
        return at_least
    if bound == END_OF_TIME:
        return log.state.ends[partition]

    def first_offset() -> int:
        blocks = log.blocks(partition, at_least, time_from=bound)
        return next((b.first for b in blocks if b.has_results), log.state.ends[partition])

    return max(at_least, undisturbed(first_offset))


def needs(marks: Sequence[Marks], number: int) -> list[int]:
    """Returns the offsets that a consumer registers with one of the inputs, per partition."""
    return [m.inputs[number].oldest for m in marks]


def needs_of_replica(log: Log, marks: Sequence[Marks], number: int) -> list[int]:
    """Returns them for one of the replicas of an input; raises `TruncatedError` if it does not keep those tuples."""
    return [oldest_in(log, p, m.inputs[number]) for p, m in enumerate(marks)]


def require_same_inputs(inputs: Sequence[Log], marks: Sequence[Marks], but: Set[int] = frozenset()) -> None:
    """Raises `InputWentBackError` if one of the inputs is not what the operator has seen: if it was put back.

    Those `but`, by their numbers, are not looked at.
    """
    for number, log in enumerate(inputs):
        if number not in but:
            require_same_input(log, number, marks)


def require_same_input(log: Log, number: int, marks: Sequence[Marks]) -> None:
    """Raises if one of the inputs is not the one that was taken in."""
    mine = [m.inputs[number] for m in marks]
    newest = max(mark.seen for mark in mine)
    require_not_put_back(log, newest, [mark.first for mark in mine], mine[0].seen, mine[0].seen_checksum)
