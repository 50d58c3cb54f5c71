"""A batch over several inputs: in each partition the tuples before a time, up to which all inputs are known."""

from __future__ import annotations

import uuid
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from strandline.errors import StrandlineError
from strandline.inputs.input_marks import Seen, fresh_marks, in_logs, last_seen, moved
from strandline.inputs.input_stream import blocks_between
from strandline.inputs.next_bounds import next_bounds
from strandline.log.operator_state.beginning import Beginning
from strandline.log.operator_state.input_mark import Marks
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState
from strandline.running.element import Element
from strandline.running.step import Done, Step
from strandline.units import END_OF_TIME


def marks_of(
    inputs: Sequence[Log],
    output: LogState,
    replicas: Set[int] = frozenset(),
    but: Set[int] = frozenset(),
    begins: Beginning | None = None,
) -> list[Marks]:
    """Where the operator stands in its inputs, per partition; those with the numbers `replicas` are one of several.

    Of these, those `but` cannot be read: marks are as they are noted. A new output `begins` there.
    """
    found = [in_logs(s.marks, inputs, p, but) for p, s in enumerate(output.standings) if s.marks is not None]
    return found or fresh_marks(inputs, replicas, begins)


def next_slices(inputs: Sequence[Log], output: LogState, element: Element) -> TimeSlices | None:
    """The next tuples to take in, about as many as the element's `tuples_max`; None if nothing is new."""
    marks = marks_of(inputs, output, element.replicas, begins=element.begins)
    bounds = next_bounds(inputs, marks, element.tuples_max)
    if all(bound is None for bound in bounds):
        return None
    slices = TimeSlices(
        tuple(inputs),
        tuple(marks),
        tuple(bounds),
        tuple(_has_tuples(inputs, p, marks[p], bound) for p, bound in enumerate(bounds)),
        tuple(last_seen(log) for log in inputs),
    )
    # Where only tuples matter, time alone is no reason for a commit, but for the last one.
    is_news = any(slices.filled) or END_OF_TIME in bounds or slices.moves_results(element)
    return slices if is_news else None


def _has_tuples(inputs: Sequence[Log], partition: int, marks: Marks, until: int | None) -> bool:
    """Whether there may be tuples in a slice."""
    if until is None:
        return False
    before = None if until == END_OF_TIME else until
    return any(
        blocks_between(log, partition, mark.first, marks.stands.bound, before)
        for log, mark in zip(inputs, marks.inputs, strict=True)
    )


@dataclass(frozen=True, slots=True)
class TimeSlices:
    """What a batch takes in, per partition."""

    inputs: tuple[Log, ...]
    marks: tuple[Marks, ...]
    """Where the operator stands before."""
    bounds: tuple[int | None, ...]
    """The times up to which tuples are taken; None where nothing is."""
    filled: tuple[bool, ...]
    """Whether there may be tuples before those times."""
    seen: tuple[Seen, ...]

    def moves_results(self, element: Element) -> bool:
        """Whether time alone says something to those who read the results."""
        told = element.definition.result_boundary
        pairs = zip(self.marks, self.bounds, strict=True)
        return any(
            bound is not None and told(bound, m.stands.ordinal) != told(m.stands.bound, m.stands.ordinal)
            for m, bound in pairs
        )

    def steps(self, element: Element, output: Log, elapsed_us: int) -> list[Step]:
        """One step a partition."""
        state, name = output.state, uuid.uuid4().hex
        timed = element.definition.has_times
        return [
            Step(
                partition=p,
                before=state.standings[p] if state.standings else None,
                output_end=state.ends[p],
                output_boundary=state.boundaries[p],
                input_start=0,
                input_end=None if self.filled[p] else self.marks[p].stands.ordinal,
                tuples_max=element.tuples_max,
                boundary=until if timed else None,
                attempt=f"{name}-{p}",
                elapsed_us=elapsed_us,
                marks=self.marks[p],
                until=until,
            )
            for p, until in enumerate(self.bounds)
        ]

    def noted(self, done: Sequence[Done], steps: Sequence[Step]) -> list[Done]:
        """The same with what each input has to keep from now on."""
        found = []
        for p, d in enumerate(done):
            now = d.standing.marks
            assert now is not None
            marks = moved(self.marks[p], self.inputs, p, now.stands, now.oldest, self.seen)
            found.append(replace(d, standing=replace(d.standing, marks=marks)))
        if all(d.standing.stands.bound == m.stands.bound for d, m in zip(found, self.marks, strict=True)):
            raise StrandlineError(
                "a batch would take in nothing of its inputs, and neither would the next one",
                where=f"bounds {list(self.bounds)}, stands {[m.stands for m in self.marks]}",
                todo="this is a defect of Strandline; please report it",
            )
        return found

    def is_last(self, done: Sequence[Done]) -> bool:
        """Whether nothing will follow."""
        is_finished = all(log.state.finished for log in self.inputs)
        return is_finished and all(d.standing.stands.bound == END_OF_TIME for d in done)
