"""An operator notices that its input is not the one it has taken in."""

from random import Random

import pytest

from strandline.errors import InputWentBackError
from strandline.inputs.one_stream import OneStream
from strandline.log.storage.storage import Storage
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import commit_key
from strandline.running.state.state_cache import StateCache
from strandline.testing import MemoryStorage
from tests.simulation.machines import KeptStates
from tests.support.operator_streams import PLANS, Row, Streams, Tuples, append_rows


def copy_of(storage: Storage) -> MemoryStorage:
    copy = MemoryStorage()
    for listed in storage.list(""):
        copy.create(listed.key, storage.read(listed.key))
    return copy


def others(commit: int) -> dict[int, list[Row]]:
    """Tuples that the input never had."""
    return {p: [{"k": p, "s": None, "v": i, "x": None, "t": 1_000 + commit} for i in range(60)] for p in range(2)}


class Case(Streams):
    """An operator over an input of which there is an old copy."""

    def __init__(self) -> None:
        kept = KeptStates()

        def cache(_partition: int) -> StateCache:
            return kept  # type: ignore[return-value]

        super().__init__(PLANS["tumbling count"], cache, partitions_=2)
        self.tuples = Tuples(Random(1))
        self.append(self.tuples.batch(30, 2), self.tuples.batch(30, 2))
        self.drain()
        self.copy = Log.open(copy_of(self.input_storage), self.clock)

    def go_on(self) -> None:
        """Two commits that the copy does not have."""
        self.append(self.tuples.batch(30, 2), self.tuples.batch(30, 2))
        self.drain()


def require_same_input(case: Case, log: Log) -> None:
    OneStream(case.plan, log).require_same(case.output.state.standings)


def test_an_input_that_is_as_it_was_or_has_grown_is_taken() -> None:
    case = Case()
    require_same_input(case, case.input)
    require_same_input(case, case.copy)
    case.append(case.tuples.batch(30, 2))
    require_same_input(case, case.input)


def test_an_input_that_was_put_back_is_refused_with_what_to_do() -> None:
    case = Case()
    case.go_on()
    with pytest.raises(InputWentBackError, match="it ends at commit 1, ") as raised:
        require_same_input(case, case.copy)
    assert "restore a newer copy" in raised.value.todo


def test_an_input_that_was_put_back_and_went_on_is_refused() -> None:
    case = Case()
    case.go_on()
    for i in range(3):  # as many commits and more, other tuples
        append_rows(case.copy, others(i))
    with pytest.raises(InputWentBackError, match="its commit 3 is not the one"):
        require_same_input(case, case.copy)


def test_an_input_that_was_put_back_in_the_middle_of_a_commit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step may stop half-way into a commit: then it has seen a commit that it is not done with."""
    case = Case()
    monkeypatch.setattr("strandline.operators.aggregate.aggregate_operator._ROWS_MAX", 4)
    case.append(case.tuples.batch(60, 2))
    case.batch(tuples_max=8)
    standing = case.output.state.standings[0]
    assert standing.commit == 1
    assert standing.seen == 2
    append_rows(case.copy, others(0))
    with pytest.raises(InputWentBackError, match="its commit 2 is not the one"):
        require_same_input(case, case.copy)


def test_streams_from_before_checksums_were_kept_are_still_compared_by_their_ends() -> None:
    case = Case()
    case.go_on()
    from dataclasses import replace

    old = replace(
        case.output.state,
        standings=tuple(replace(s, seen=-1, seen_checksum="") for s in case.output.state.standings),
    )
    OneStream(case.plan, case.input).require_same(old.standings)
    with pytest.raises(InputWentBackError):
        OneStream(case.plan, case.copy).require_same(old.standings)


def test_the_standing_survives_the_manifest() -> None:
    case = Case()
    standing = case.output.state.standings[0]
    assert standing.seen_checksum == case.input.commit(1).checksum != ""
    assert case.input.storage.read(commit_key(1)).decode().endswith(f'"checksum":"{standing.seen_checksum}"}}\n')
    assert Log.open(case.output_storage).state.standings[0].seen_checksum == standing.seen_checksum
