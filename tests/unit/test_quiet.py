"""Appends without tuples: time passes although nothing comes, or the stream is finished."""

from dataclasses import replace

import pytest

from strandline.clock import ManualClock
from strandline.errors import CorruptManifestError, SecondWriterError, StreamFinishedError
from strandline.log.audit.stream_audit import verify
from strandline.log.stream import manifest, quiet
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.upkeep import consumer_registry
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.retention import truncate
from strandline.testing import MemoryStorage
from strandline.units import END_OF_TIME, time_text
from tests.support.items import append_items, item_spec, read_items

A, B, C = (1, 10, 100), (2, 20, 101), (3, 30, 102)
WRITER = Writer("query", "run", 7)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def log(clock: ManualClock) -> Log:
    return Log.create(MemoryStorage(clock), item_spec(lateness=5), clock)


# ---------------------------------------------------------------------- time passes


def test_time_passes_without_tuples_and_speaks_for_the_batch_before(log: Log) -> None:
    append_items(log, {0: [A], 1: [B]}, writer=WRITER)
    before = log.state
    assert before.boundary == 96
    published = quiet.pass_time(log, 150, "another run")
    assert published is not None
    assert published.blocks == ()
    state = Log.open(log.storage).state
    assert (state.boundaries, state.ends, state.time_max) == ((150, 150), before.ends, 101)
    assert state.writer == Writer("query", "another run", 7)
    assert state.source == before.source


def test_a_boundary_that_is_known_is_not_published_again(log: Log) -> None:
    append_items(log, {0: [A], 1: [B]}, writer=WRITER)
    assert quiet.pass_time(log, 96, "run") is None
    assert quiet.pass_time(log, 10, "run") is None, "a clock that is behind says nothing new"
    assert log.state.seq == 0


def test_before_the_first_batch_time_passes_in_nobodys_name(log: Log) -> None:
    quiet.pass_time(log, 50, "run")
    assert (log.state.boundary, log.state.writer, log.state.time_max) == (50, None, None)
    append_items(log, {}, writer=Writer("query", "run", 0))
    assert log.state.boundary == 50, "a batch without tuples does not know better"


def test_a_batch_after_time_has_passed_does_not_move_the_boundary_back(log: Log) -> None:
    append_items(log, {0: [A]}, writer=WRITER)
    quiet.pass_time(log, 150, "run")
    append_items(log, {1: [(4, 40, 152)]}, writer=replace(WRITER, batch=8))
    assert log.state.boundaries == (150, 150), "152 - 5 is less than what was promised"
    append_items(log, {1: [(4, 40, 160)]}, writer=replace(WRITER, batch=9))
    assert log.state.boundaries == (155, 155)
    assert verify(Log.open(log.storage)).problems == ()


def test_a_batch_that_was_made_before_time_passed_is_not_published_after_it(log: Log) -> None:
    """Its tuples were told from late ones by an older boundary."""
    append_items(log, {0: [A]}, writer=WRITER)
    planned = Log.open(log.storage)
    quiet.pass_time(log, 150, "run")
    with pytest.raises(SecondWriterError):
        append_items(planned, {0: [B]}, "slow", WRITER)


# ---------------------------------------------------------------------- the end


def test_a_finished_stream_says_so_and_its_boundary_is_past_everything(log: Log) -> None:
    append_items(log, {0: [A], 1: [B]}, writer=WRITER)
    assert not log.state.finished
    assert quiet.finish(log, "run") is not None
    assert quiet.finish(log, "run") is None, "once is enough"
    for handle in (log, Log.open(log.storage)):
        assert handle.state.finished
        assert handle.state.boundary == END_OF_TIME
        assert handle.state.writer == WRITER
    log.fold()
    reopened = Log.open(log.storage)
    assert not reopened.tail
    assert reopened.state.finished, "the snapshot knows it, too"
    assert [item for _, item in read_items(reopened, 0)] == [A]
    assert verify(reopened).problems == ()


def test_nothing_is_added_to_a_finished_stream(log: Log) -> None:
    append_items(log, {0: [A]}, writer=WRITER)
    behind = Log.open(log.storage)
    quiet.finish(log, "run")
    for handle in (log, Log.open(log.storage)):
        with pytest.raises(StreamFinishedError) as refused:
            append_items(handle, {0: [C]}, f"attempt-{id(handle)}", WRITER)
        assert refused.value.where == log.storage.url
        assert "new stream" in refused.value.todo
    with pytest.raises(SecondWriterError):  # it was not the one who finished it
        append_items(behind, {0: [C]}, "behind", WRITER)
    assert quiet.pass_time(log, 10_000, "run") is None
    assert log.state.seq == 1


def test_a_stream_without_tuples_or_lateness_can_be_finished(clock: ManualClock) -> None:
    spec = replace(item_spec(), lateness=None)
    log = Log.create(MemoryStorage(clock), spec, clock)
    quiet.finish(log, "run")
    state = Log.open(log.storage).state
    assert (state.finished, state.boundary, state.writer) == (True, END_OF_TIME, None)


def test_a_finished_stream_is_looked_after_as_ever(log: Log) -> None:
    for i in range(3):
        append_items(log, {0: [(1, i, 100 + i)]}, writer=replace(WRITER, batch=i))
    quiet.finish(log, "run")
    consumer_registry.register(log, "report", [1, 0])
    compact(log, blocks_min=2)
    consumer_registry.unregister(log, "report")
    truncate(log, before_offset={0: 3})
    state = Log.open(log.storage).state
    assert state.finished
    assert state.starts[0] == 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"finished": False}, "the stream is finished"),
        ({"finished": True, "boundaries": (0, 0)}, "the stream is finished"),
    ],
)
def test_a_manifest_cannot_follow_the_end(log: Log, change: dict[str, object], says: str) -> None:
    quiet.finish(log, "run")
    m = AppendCommit(seq=1, stream=log.spec.id, published_us=1, ends=(0, 0, 0), boundaries=(END_OF_TIME,) * 2)
    with pytest.raises(CorruptManifestError) as refused:
        log.state.apply(replace(m, **change))  # type: ignore[arg-type]
    assert says in refused.value.what


def test_a_manifest_that_finishes_has_the_end_of_time_as_its_boundary(log: Log) -> None:
    m = AppendCommit(seq=0, stream=log.spec.id, published_us=1, ends=(0, 0, 0), boundaries=(5, 5), finished=True)
    with pytest.raises(CorruptManifestError, match="not the end of time"):
        log.state.apply(m)


def test_manifests_of_streams_that_go_on_say_nothing_of_an_end(log: Log) -> None:
    append_items(log, {0: [A]}, writer=WRITER)
    assert b"finished" not in log.storage.read(manifest.commit_key(0))
    assert "finished" not in log.state.to_json()


def test_the_end_of_time_has_a_name() -> None:
    assert time_text(END_OF_TIME, is_timestamp=True) == time_text(END_OF_TIME, is_timestamp=False) == "the end"
