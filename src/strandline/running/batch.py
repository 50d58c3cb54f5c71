"""Batches of an operator without Spark: what to take in next, a step a partition, one manifest.

Spark's driver uses the same parts; there the steps run as tasks. Tests and simulations use this as it is.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from strandline.clock import Clock
from strandline.control_columns import KIND, OFFSET
from strandline.errors import StrandlineError
from strandline.failpoint import failpoint
from strandline.inputs import input_marks
from strandline.inputs.put_back import require_reached, require_seen
from strandline.log.operator_state.beginning import Beginning, firsts_of
from strandline.log.operator_state.standing import are_serialised
from strandline.log.storage.storage import create_once
from strandline.log.stream.append_commit import Append, AppendCommit
from strandline.log.stream.appends import appends_after, before_append_at
from strandline.log.stream.block import Block
from strandline.log.stream.block_sequence import BlockSequence
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.log_errors import second_writer
from strandline.log.stream.log_state import LogState
from strandline.log.stream.manifest import Writer
from strandline.log.stream.spec import StreamSpec
from strandline.operators.operator import version_in
from strandline.running.element import Element
from strandline.running.overdue_save import OverdueSave, overdue
from strandline.running.step import Done, Step, unchanged
from strandline.running.time_slices import marks_of, next_slices


@dataclass(frozen=True, slots=True)
class Taken:
    """How far into the input a batch may go: whole commits, because boundaries are known after whole commits."""

    commit: int
    checksum: str
    ends: tuple[int, ...]
    boundaries: tuple[int | None, ...]
    finished: bool
    """Nothing will follow."""
    time: int | None = None
    """The largest time in the input."""


def next_commits(input_: Log, output: LogState, tuples_max: int, begins: Beginning | None = None) -> Taken | None:
    """The next commits to take in, so many that about `tuples_max` tuples come together; None if there are none."""
    before = tuple(s.input for s in output.standings) or firsts_of(
        begins, input_.state.starts[: input_.spec.partitions]
    )
    if output.standings:
        done = output.standings[0].commit
    else:
        done = -1 if begins is None else before_append_at(input_, before)
    taken: Taken | None = None
    for m in appends_after(input_, done):
        found = Taken(m.seq, m.checksum, m.ends[: input_.spec.partitions], m.boundaries, m.finished, m.time_max)
        is_enough = taken is not None and all(e >= b for e, b in zip(taken.ends, before, strict=True))
        if is_enough and sum(found.ends) - sum(before) > tuples_max:
            break  # at least as far as any partition has come already, part of a commit as it may be
        taken = found
    return taken


def steps_of(
    taken: Taken, element: Element, input_: Log, output: Log, elapsed_us: int, attempt: str = ""
) -> list[Step]:
    """One step a partition."""
    state, tuples_max = output.state, element.tuples_max
    name = attempt or uuid.uuid4().hex
    firsts = firsts_of(element.begins, input_.state.starts[: input_.spec.partitions])
    stands = [s.input for s in state.standings] or firsts
    waiting = [max(0, end - stand) for end, stand in zip(taken.ends, stands, strict=True)]
    # Windows that go by count know no time: it is no reason to run a step, nor may it stand beside their offsets.
    timed = element.definition.has_times
    return [
        Step(
            partition=p,
            before=state.standings[p] if state.standings else None,
            output_end=state.ends[p],
            output_boundary=state.boundaries[p],
            input_start=firsts[p],
            input_end=max(taken.ends[p], input_.state.starts[p] if state.standings else firsts[p]),
            # In proportion to what waits, so that all get through together.
            tuples_max=max(1, -(-tuples_max * waiting[p] // max(1, sum(waiting)))),
            boundary=taken.boundaries[p] if timed else None,
            attempt=f"{name}-{p}",
            elapsed_us=elapsed_us,
            time=taken.time,
        )
        for p in range(input_.spec.partitions)
    ]


def noted(done: Sequence[Done], steps: Sequence[Step], taken: Taken) -> list[Done]:
    """The same with how far into the input all of them came: a commit is done when every partition has all of it."""
    is_whole = all(d.standing.input >= (s.input_end or 0) for d, s in zip(done, steps, strict=True))
    if not is_whole and not any(d.tuples for d in done):
        raise StrandlineError(
            f"a batch would take in nothing of commit {taken.commit} of the input, and neither would the next one",
            where=f"standings {[d.standing.input for d in done]}, ends {list(taken.ends)}",
            todo="this is a defect of Strandline; please report it",
        )
    seen: dict[str, Any] = {"seen": taken.commit, "seen_checksum": taken.checksum}
    if is_whole:
        seen["commit"] = taken.commit
    return [replace(d, standing=replace(d.standing, **seen)) for d in done]


def require_same_input(input_: Log, output: LogState) -> None:
    """Raises if the input is not the one that the operator has taken in: if it was put back, and perhaps goes on."""
    standings = output.standings
    newest = max(max(s.commit, s.seen) for s in standings)
    require_reached(input_, newest, [s.input for s in standings])
    require_seen(input_, standings[0].seen, standings[0].seen_checksum)  # an early version has noted none


def publish(output: Log, base: LogState, done: Sequence[Done], said: Append) -> AppendCommit:
    """Publishes what the steps made of one batch; `said` is the rest of the commit, without blocks and standings.

    Where the operator had an outage once, and nothing is tentative, that outage stays on record.
    """
    failpoint("before-output")
    if base.writer is not None and output.state.writer != base.writer:
        raise second_writer(output.state.seq, output.state.writer, output.storage.url)
    boundaries = [
        d.boundary if b is None else b if d.boundary is None else max(b, d.boundary)
        for d, b in zip(done, base.boundaries, strict=True)
    ]
    batch = replace(
        said,
        blocks=[*(b for d in done for b in d.blocks), *_set_aside(output, base, done)],
        standings=[d.standing for d in done],
        boundaries=boundaries,
        outage=said.outage or (base.outage if base.outage and base.outage.state == "STABLE" else None),
    )
    return output.append(batch, base)


_PADDED_ROWS = 1 << 14
"""So many tuples that were set aside get the columns that they lack at once."""


def _set_aside(output: Log, base: LogState, done: Sequence[Done]) -> Iterator[Block]:
    """Writes what the steps have set aside: the side log is one for all partitions, so its offsets are given here."""
    spec, create = output.spec, partial(create_once, output.storage)
    first, schema = base.ends[spec.late], _aside_schema(spec)
    for reason in sorted({reason for d in done for reason in d.aside}):
        tables = [table for d in done for table in d.aside.get(reason, ())]
        parts = ((Kind.RESULT, columns) for table in tables for columns in _padded(table, schema))
        unique = next(d.standing.attempt for d in done if reason in d.aside)
        for block in BlockSequence(spec, spec.late, first, unique, create, reason=reason).write(parts):
            yield block
            first = block.end


def _padded(table: pa.Table, schema: pa.Schema) -> Iterator[list[pa.Array]]:
    """The columns of the schema, some tuples at a time; those that the table does not have are null."""
    known = set(table.column_names)
    for batch in table.to_batches(max_chunksize=_PADDED_ROWS):
        yield [batch.column(f.name).cast(f.type) if f.name in known else pa.nulls(len(batch), f.type) for f in schema]


def _aside_schema(spec: StreamSpec) -> pa.Schema:
    return pa.schema([f for f in spec.block if f.name not in (OFFSET, KIND)])


class NextBatch(Protocol):
    """What a batch takes in of the inputs."""

    def steps(self, element: Element, output: Log, elapsed_us: int) -> list[Step]:
        """One step a partition."""

    def noted(self, done: Sequence[Done], steps: Sequence[Step]) -> list[Done]:
        """What the steps have done, with how far into the inputs all of them came."""

    def is_last(self, done: Sequence[Done]) -> bool:
        """Whether nothing will follow."""


@dataclass(frozen=True, slots=True)
class WholeCommits:
    """What a batch takes in of one stream."""

    input: Log
    taken: Taken

    def steps(self, element: Element, output: Log, elapsed_us: int) -> list[Step]:
        """One step a partition."""
        return steps_of(self.taken, element, self.input, output, elapsed_us)

    def noted(self, done: Sequence[Done], steps: Sequence[Step]) -> list[Done]:
        """The same with how far into the input all of them came."""
        return noted(done, steps, self.taken)

    def is_last(self, done: Sequence[Done]) -> bool:
        """Whether nothing will follow."""
        return self.taken.finished and done[0].standing.commit == self.taken.commit


def next_batch(element: Element, inputs: Sequence[Log], output: LogState) -> NextBatch | None:
    """What to take in next; None if nothing is new."""
    if element.is_serialised:
        return next_slices(inputs, output, element)
    taken = next_commits(inputs[0], output, element.tuples_max, element.begins)
    return None if taken is None else WholeCommits(inputs[0], taken)


def require_same_inputs(inputs: Sequence[Log], output: LogState, but: Set[int] = frozenset()) -> None:
    """Raises if an input, `but` for some by their numbers, is not what was taken in: if it was put back."""
    if are_serialised(output.standings):
        input_marks.require_same_inputs(inputs, marks_of(inputs, output, but=but), but)
    elif output.standings:
        require_same_input(inputs[0], output)


def run_batch(
    element: Element,
    inputs: Sequence[Log],
    output: Log,
    run_steps: Callable[[Sequence[Step]], Sequence[Done]],
    writer: Writer,
    clock: Clock,
) -> list[Done]:
    """Takes in some of what is new in the inputs and publishes the results; empty if nothing is new.

    Nor is there anything to save by now, see `overdue_save`.
    """
    base = output.state
    must_save = overdue(element.policy, base, clock.now_us())
    batch = next_batch(element, inputs, base) or (OverdueSave(tuple(inputs)) if must_save else None)
    if batch is None:
        return []
    elapsed_us = max(0, clock.now_us() - base.published_us) if base.published_us else 0
    steps = batch.steps(element, output, elapsed_us)
    revised = element.definition.revised
    # The first batch of a later version is one of all partitions: none of them goes back behind it.
    is_revision = version_in(revised) != version_in(base.revised)
    resting = [] if is_revision else [s for s in steps if s.partition not in must_save]
    idle = {s.partition: d for s in resting if (d := unchanged(s, element)) is not None}
    ran = iter(run_steps([s for s in steps if s.partition not in idle]))
    done = batch.noted([idle[s.partition] if s.partition in idle else next(ran) for s in steps], steps)
    said = Append(writer=writer, revised=revised, finished=batch.is_last(done), durability=element.durability)
    publish(output, base, done, said)
    return done
