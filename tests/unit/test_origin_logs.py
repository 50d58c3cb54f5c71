"""The inputs that stream.json names, opened: a stream by its id, of replicas one that is there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.clock import ManualClock
from strandline.errors import StorageError, StreamMismatchError
from strandline.inputs.stream_definition import require_inputs
from strandline.log.operator_state.input_mark import InputMark, Marks, Position, ReplicaMark
from strandline.log.operator_state.origin_logs import is_of, opened_origins
from strandline.log.operator_state.standing import Standing
from strandline.log.operator_state.upstream import Origin, group_of, origins_of, upstream_of
from strandline.log.stream.append_commit import Append
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.spec import REPLICAS_FORMAT
from strandline.testing import MemoryStorage
from tests.support.written_replicas import SPEC, Written

BEGIN = Position(0, None)


def test_what_an_operator_over_replicas_is_made_of_is_told_and_read_back() -> None:
    origin = Origin("group", "a", ("a", "b"))
    assert upstream_of([origin]) == {"streams": [{"stream": "group", "path": "a", "replicas": ["a", "b"]}]}
    assert origins_of(upstream_of([origin])) == [origin]
    assert origins_of(upstream_of([Origin("c", "c"), origin])) == [Origin("c", "c"), origin]
    assert str(origin) == "a or b (group)"


def output_over(origin: Origin, stream: str = "") -> Log:
    """The stream of an operator that has read this replica last."""
    spec = replace(SPEC, id="output", upstream=upstream_of([origin]), format=REPLICAS_FORMAT)
    log = Log.create(MemoryStorage(ManualClock(1)), spec, ManualClock(1))
    if stream:
        marks = Marks(BEGIN, BEGIN, (InputMark(0, 0, replica=ReplicaMark(stream, 0, 0)),))
        log.append(Append(standings=[Standing(0, -1, 0, 0, 0, 0, marks=marks)]))
    return Log.open(log.storage, ManualClock(1))


def test_of_replicas_the_one_that_was_read_last_is_opened_or_else_the_one_that_is_ahead() -> None:
    one = Written("one").append([(Kind.RESULT, 10)], boundary=11)
    other = Written("other").append([(Kind.RESULT, 10), (Kind.RESULT, 20)], boundary=21)
    there = {"a": one, "b": other}
    origin = Origin(group_of(SPEC), "a", ("a", "b"))

    def opened(log: Log) -> str:
        (found,) = opened_origins(log, lambda path: there[path].open())
        require_inputs(log, [found])
        return found.spec.id

    assert opened(output_over(origin)) == "other"
    assert opened(output_over(origin, "one")) == "one"
    one.is_reachable = False
    assert opened(output_over(origin, "one")) == "other"
    other.is_reachable = False
    with pytest.raises(StorageError):
        opened(output_over(origin, "one"))


def test_a_stream_of_another_operator_is_no_replica() -> None:
    one, stranger = Written("one"), Written("stranger", upstream={"stream": "x", "path": "x"})
    output = output_over(Origin(group_of(SPEC), "a", ("a", "b")))
    (origin,) = origins_of(output.spec.upstream)
    assert is_of(origin, one.log)
    with pytest.raises(StreamMismatchError, match="another id"):
        require_inputs(output, [stranger.log])


def test_marks_of_a_replica_are_noted_and_those_of_a_stream_say_nothing_more() -> None:
    plain, of_replica = InputMark(3, 1, 7, "sum"), InputMark(3, 1, 7, "sum", ReplicaMark("one", 2, 1))
    assert plain.to_json() == {"first": 3, "oldest": 1, "seen": 7, "seen_checksum": "sum"}
    marks = Marks(Position(5, 9), BEGIN, (plain, of_replica))
    assert Marks.from_json(marks.to_json()) == marks
