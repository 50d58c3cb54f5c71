"""Where an operator stands in its input, said of one stream as of several.

A manifest says it of one stream by an offset, and by the boundary beside the standing; of several by their marks.
"""

from __future__ import annotations

from dataclasses import replace

from strandline.log.operator_state.beginning import Beginning
from strandline.log.operator_state.input_mark import InputMark, Marks, Position
from strandline.log.operator_state.standing import Standing


def closed_until(standing: Standing, boundary: int | None) -> int | None:
    """Returns the time up to which windows are closed; `boundary` is what the manifest says of the results."""
    return boundary if standing.marks is None else standing.marks.stands.bound


def after_silence(standing: Standing, until: int | None) -> Standing:
    """Returns the standing when no tuple came before this time in any of several inputs."""
    marks = standing.marks
    if marks is None or until is None:
        return standing
    stands = Position(marks.stands.ordinal, until)
    oldest = stands if marks.oldest.ordinal == stands.ordinal else marks.oldest
    return replace(standing, marks=replace(marks, stands=stands, oldest=oldest))


def beginning(standing: Standing, begins: Beginning | None, partition: int) -> Standing:
    """Returns where the operator stood before its first batch, if its inputs still hold all that they had."""
    if standing.marks is None:
        first = 0 if begins is None else begins.first(partition)
        return Standing(input=first, commit=-1, open=0, oldest=first, extent=0, replay=0)
    begin = Position(0, None if begins is None else begins.time(partition))
    numbers = range(len(standing.marks.inputs))
    firsts = [0 if begins is None else begins.first(partition, number) for number in numbers]
    marks = Marks(begin, begin, tuple(InputMark(first, first) for first in firsts))
    return Standing(input=0, commit=-1, open=0, oldest=0, extent=0, replay=0, marks=marks)
