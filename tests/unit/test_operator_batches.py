"""Batches of an operator without Spark: what is taken in, who has to work for it, what becomes of idle batches."""

from pathlib import Path
from typing import Any

import pytest

from strandline.checkpoint.policy import Policy, cec, instant, none
from strandline.clock import ManualClock
from strandline.errors import CorruptBlockError, SecondWriterError
from strandline.inputs.one_stream import OneStream
from strandline.log.index import index
from strandline.log.stream import quiet
from strandline.log.stream.append_commit import Append
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.retention import collect
from strandline.operators.aggregate import aggregates as agg
from strandline.operators.aggregate.windows import Window, count_window, session_window, time_window
from strandline.recovery import eventual_checkpoint
from strandline.running.element import Element
from strandline.running.state.state_cache import StateCache
from strandline.running.tick import Operation, Worked
from strandline.running.watch import Watch
from strandline.units import END_OF_TIME
from tests.support.operator_streams import PLANS, Row, Streams, plan, uninterrupted


def rows(count: int, key: int = 1, time: int = 0) -> list[Row]:
    return [{"k": key, "s": str(key), "v": i, "x": float(i), "t": time + i} for i in range(count)]


@pytest.fixture
def make(tmp_path: Path) -> Any:
    def streams(name: str, partitions_: int = 2) -> Streams:
        return Streams(PLANS[name], lambda p: StateCache(tmp_path / str(p)), partitions_)

    return streams


@pytest.mark.parametrize("policy", [cec(extent=0), cec(replay=0), instant("1 us")], ids=["extent", "replay", "instant"])
@pytest.mark.parametrize("name", ["tumbling count", "sliding count"])
def test_a_partition_without_new_tuples_is_left_alone_whatever_the_policy_is_now(
    make: Any, name: str, policy: Policy
) -> None:
    streams: Streams = make(name)
    streams.append({0: rows(3), 1: rows(2, key=2)}, {0: [], 1: rows(1, key=3, time=5)})
    streams.drain(cec(extent=1000))
    streams.append({0: rows(3, time=1_000)})  # time goes on for both
    assert isinstance(streams.clock, ManualClock)
    streams.clock.advance(1.0)
    before = streams.output.state
    done = streams.batch(policy)
    assert [d.tuples for d in done] == [3, 0]
    assert done[1].blocks == ()
    assert streams.output.state.ends[1] == before.ends[1]
    assert streams.output.state.standings[1].extent == before.standings[1].extent
    assert streams.output.state.boundaries[1] == before.boundaries[1]


@pytest.mark.parametrize("name", ["tumbling time", "session"])
def test_time_that_goes_on_closes_windows_of_partitions_without_new_tuples(make: Any, name: str) -> None:
    streams: Streams = make(name)
    streams.append({0: rows(3), 1: rows(2, key=2)})
    streams.drain()
    assert [len(streams.results(p)) for p in range(2)] == [0, 0]
    streams.append({0: rows(1, time=1_000)})
    done = streams.batch()
    assert [d.results for d in done] == [1, 1]
    assert [len(streams.results(p)) for p in range(2)] == [1, 1]


@pytest.mark.parametrize("name", ["tumbling time", "sliding time", "session"])
def test_a_heartbeat_closes_windows_and_runs_steps_only_for_those_it_closes(make: Any, name: str) -> None:
    streams: Streams = make(name)
    streams.append({0: rows(3, time=100), 1: rows(2, key=2, time=113)})
    streams.drain()
    first = min(s.due for s in streams.output.state.standings if s.due is not None)
    closed = len(streams.results(0))
    quiet.pass_time(streams.input, first - 1, "run")
    done = streams.batch()
    assert [d.seconds for d in done] == [0.0, 0.0], "no window was due, and yet a step ran"
    assert streams.output.state.boundaries == (first - 1,) * 2, "whoever reads the results knows how far time is"
    assert streams.output.state.standings[0].commit == streams.input.state.seq
    quiet.pass_time(streams.input, first, "run")
    done = streams.batch()
    assert done[0].results == 1
    assert [d.seconds > 0 for d in done] == [True, False]
    assert len(streams.results(0)) == closed + 1


def test_a_heartbeat_before_the_first_tuple_moves_the_boundary_of_the_results(make: Any) -> None:
    streams: Streams = make("tumbling time")
    quiet.pass_time(streams.input, 1_000, "run")
    streams.drain()
    assert streams.output.state.boundaries == (1_000, 1_000)
    streams.append({0: rows(3, time=1_000)})
    quiet.pass_time(streams.input, 1_010, "run")
    streams.drain()
    assert len(streams.results(0)) == 1


@pytest.mark.parametrize("policy", [cec(), instant("1 us"), none()], ids=["cec", "instant", "none"])
@pytest.mark.parametrize("name", [*PLANS])
def test_the_end_of_the_input_closes_every_window_of_time_and_finishes_the_results(
    make: Any, name: str, policy: Policy
) -> None:
    streams: Streams = make(name)
    streams.append({0: rows(5), 1: rows(3, key=2)}, {0: rows(5, key=7, time=3)})
    quiet.finish(streams.input, "run")
    streams.drain(policy)
    state = Log.open(streams.output_storage).state
    assert state.finished
    assert state.boundary == END_OF_TIME
    assert streams.batch(policy) == [], "nothing is left to do, nothing is published"
    for p, given in enumerate([[*rows(5), *rows(5, key=7, time=3)], rows(3, key=2)]):
        assert streams.results(p).equals(uninterrupted(streams.plan, given, END_OF_TIME))
    if streams.plan.window.has_times:
        assert [s.open for s in state.standings] == [0, 0]


def test_the_extent_stays_bounded_when_time_alone_closes_windows(make: Any) -> None:
    streams: Streams = make("sliding time")
    streams.append({0: rows(1, time=1_000), 1: [{**rows(1, time=1_000)[0], "k": key} for key in range(50)]})
    streams.drain(cec(extent="2x"))
    for time in (1_012, 1_016, 1_019):
        streams.append({0: rows(1, time=time)})
        streams.drain(cec(extent="2x"))
        standing = streams.output.state.standings[1]
        assert standing.extent <= 2 * standing.open, f"for {standing.open} open windows"


@pytest.mark.parametrize("window", [count_window(3), count_window(4, advance=2), time_window(5), session_window(3)])
def test_counting_alone_is_an_aggregation(window: Window, tmp_path: Path) -> None:
    counting = plan(window, ["k"], n=agg.count_all())
    streams = Streams(counting, lambda p: StateCache(tmp_path / str(p)))
    streams.append(rows(9), rows(1, time=100))
    streams.drain()
    assert streams.results().column("n").to_pylist()


def test_commits_are_taken_in_whole_and_as_many_as_fit(make: Any) -> None:
    streams: Streams = make("tumbling count", 1)
    streams.append(*(rows(10, time=i) for i in range(6)))
    assert [[d.tuples for d in done] for done in streams.drain(tuples_max=25)] == [[20], [20], [20]]
    streams.append(rows(100, time=100), rows(1, time=300))
    assert [[d.tuples for d in done] for done in streams.drain(tuples_max=25)] == [[100], [1]]
    assert streams.batch() == []


def test_commits_of_the_input_that_bring_no_tuples_are_passed_over(make: Any) -> None:
    streams: Streams = make("tumbling count", 1)
    streams.append(rows(3))
    streams.drain()
    compact(streams.input, blocks_min=2)
    streams.input.append(Append())
    done = streams.batch()
    assert [(d.tuples, d.blocks) for d in done] == [(0, ())]
    assert streams.output.state.standings[0].commit == streams.input.state.seq
    assert streams.batch() == []


@pytest.mark.parametrize("has_times", [False, True])
def test_commits_without_tuples_are_news_if_time_matters_and_passes_or_if_there_are_many(
    make: Any, has_times: bool
) -> None:
    streams: Streams = make("tumbling time" if has_times else "tumbling count", 1)
    input_ = OneStream(streams.plan, streams.input)
    streams.append(rows(3))
    assert input_.has_news(streams.output.state)
    streams.drain()
    assert not input_.has_news(streams.output.state)
    quiet.pass_time(streams.input, 1_000, "run")
    assert input_.has_news(streams.output.state) is has_times
    streams.drain()
    for _ in range(index.FOLD_EVERY - 1):
        streams.input.append(Append())
        assert not input_.has_news(streams.output.state)
    streams.input.append(Append())
    assert input_.has_news(streams.output.state) is not has_times
    streams.append(rows(1, time=2_000))
    assert input_.has_news(streams.output.state)
    streams.drain()
    quiet.finish(streams.input, "run")
    assert input_.has_news(streams.output.state)
    streams.drain()
    assert not input_.has_news(streams.output.state)


def test_a_driver_that_comes_second_publishes_nothing(make: Any) -> None:
    streams: Streams = make("tumbling count", 1)
    streams.append(rows(3))
    streams.drain()
    streams.append(rows(5))
    other = Log.open(streams.output_storage)
    streams.batch()
    element = Element(streams.plan, cec(), tuples_max=1)
    _, late = Operation(element, None, OneStream(streams.plan, streams.input), other, streams.clock).next(
        Watch.fresh(0)
    )
    assert late is not None
    late.run(lambda works: [Worked(d, None) for w in works if w.stable for d in streams.run_steps([w.stable], cec())])
    with pytest.raises(SecondWriterError):
        late.publish(Writer("query", "other", 1))
    assert [d.tuples for d in late.done] == [5]
    assert streams.output.state.standings == Log.open(streams.output_storage).state.standings


# ---------------------------------------------------------------------- files that go while a recovery reads them


def test_recovery_finds_what_was_compacted_and_collected_behind_its_back(make: Any) -> None:
    streams: Streams = make("sliding count", 1)
    for i in range(4):
        streams.append(rows(5, key=i))
        streams.drain(cec(extent=1000))
    behind = Log.open(streams.output_storage)
    assert isinstance(streams.clock, ManualClock)
    compact(streams.output, blocks_min=2)
    for _ in range(2):
        streams.clock.advance(1.0)
        collect(streams.output, grace_us=0)
    standing, end = behind.state.standings[0], behind.state.ends[0]
    loaded = eventual_checkpoint.load(behind, streams.plan, 0, standing, end)
    assert loaded.open_windows == standing.open > 0


def test_recovery_names_the_block_that_is_lost(make: Any) -> None:
    streams: Streams = make("sliding count", 1)
    for i in range(3):
        streams.append(rows(5, key=i))
        streams.drain(cec(extent=1000))
    block = next(iter(streams.output.blocks(0)))
    streams.output_storage.delete(block.file)
    standing, end = streams.output.state.standings[0], streams.output.state.ends[0]
    with pytest.raises(CorruptBlockError, match="a published block is gone") as raised:
        eventual_checkpoint.load(streams.output, streams.plan, 0, standing, end)
    assert block.file in raised.value.where


def test_a_batch_reads_the_commits_it_takes_in_and_not_all_that_wait(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catching up with a long history would otherwise cost as much as the square of its length."""
    streams: Streams = make("tumbling count", 1)
    streams.append(*(rows(1, time=i) for i in range(300)))
    streams.input = Log.open(streams.input_storage, streams.clock)
    read: list[int] = []
    commit = Log.commit
    monkeypatch.setattr(Log, "commit", lambda log, seq: (read.append(seq), commit(log, seq))[1])
    for _ in range(3):
        read.clear()
        assert [d.tuples for d in streams.batch(tuples_max=10)] == [10]
        assert len(read) <= 12
