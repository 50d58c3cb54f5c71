"""What an operator over several inputs takes in: the serialised input, as steps and recovery ask for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from strandline.inputs import serialised_input
from strandline.inputs.edges import Edges
from strandline.inputs.input_marks import oldest_in
from strandline.inputs.input_stream import InputStream
from strandline.inputs.intake import Intake, Piece, StreamIntake, Stretch
from strandline.log.operator_state.beginning import Beginning
from strandline.log.operator_state.guesses import Guesses
from strandline.log.operator_state.input_mark import Marks
from strandline.log.operator_state.standing import Standing, are_serialised
from strandline.log.stream.log import Log
from strandline.log.stream.partial_log import PartialLog
from strandline.operators.operator import Definition


def intake_of(
    definition: Definition, inputs: Sequence[Log], standings: Sequence[Standing], begins: Beginning | None = None
) -> StreamIntake | SerialisedIntake:
    """The intake of an operator over these inputs that stands so, in whichever partition, and began there."""
    if are_serialised(standings):
        return SerialisedIntake(definition, tuple(inputs))
    return StreamIntake(definition, inputs[0], begins)


@dataclass(frozen=True, slots=True)
class SerialisedIntake:
    """Several streams as one sequence of tuples."""

    definition: Definition
    logs: tuple[Log, ...]
    guesses: tuple[Guesses | None, ...] = ()
    """Of each input the tentative tuples that are taken in beside results; none, for all but forks."""

    def ahead(self, partition: int, marks: Marks, until: int | None, rows: int) -> Iterator[Piece]:
        """The tuples from where the marks stand on with a time before `until`; none if that is not known."""
        if until is None:
            return
        firsts = [_known(log, partition, mark.first) for log, mark in zip(self.logs, marks.inputs, strict=True)]
        yield from serialised_input.pieces(self._streams(firsts), partition, marks.stands, until, rows)

    def again(self, stretch: Stretch, rows: int) -> Iterator[Piece]:
        """Tuples that were taken in before."""
        pairs = zip(self.logs, stretch.needs, strict=True)
        streams = self._streams([oldest_in(log, stretch.partition, mark) for log, mark in pairs])
        return serialised_input.replayed(streams, stretch.partition, stretch.first, stretch.begin, stretch.end, rows)

    def _streams(self, firsts: Sequence[int]) -> list[InputStream]:
        guesses = self.guesses or (None,) * len(self.logs)
        wanted = zip(self.logs, self.definition.reads, firsts, guesses, strict=True)
        return [InputStream(log, columns, first, guess) for log, columns, first, guess in wanted]


@dataclass(frozen=True, slots=True)
class EdgeKeeping:
    """An intake that keeps the places at which a later replay can begin, as a recovery passes them."""

    intake: Intake
    edges: Edges

    def again(self, stretch: Stretch, rows: int) -> Iterator[Piece]:
        """Tuples that were taken in before."""
        self.edges.add(stretch.begin)
        for piece in self.intake.again(stretch, rows):
            yield piece
            self.edges.add_all(piece.edges)
            if piece.is_edge:
                self.edges.add(piece.position)


def _known(log: Log, partition: int, first: int) -> int:
    """The first offset to look at: a share knows no block before those that the driver has chosen."""
    return max(first, log.state.starts[partition]) if isinstance(log, PartialLog) else first
