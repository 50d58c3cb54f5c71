"""What users count and read of an operator's stream is its results: footprints leak into no number and no table."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from typer.testing import CliRunner

import strandline as sl
from strandline.checkpoint.policy import cec
from strandline.cli.app import app
from strandline.clock import ManualClock
from strandline.log.index.entries import tuples_kept
from strandline.log.index.index import FOLD_EVERY, ROOT_KEY, Index
from strandline.log.reading.summary import summary
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream import block as blocks_
from strandline.log.stream.append_commit import Append, AppendCommit
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import seal, unseal
from strandline.log.stream.spec import StreamSpec
from strandline.log.upkeep import consumer_registry
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.retention import truncate
from strandline.running.state.state_cache import StateCache
from tests.support.operator_streams import AT_ONCE, COLUMNS, PLANS, Streams, Tuples, struct

SAVING = cec(extent=0)
"""Every window is saved in every step: as many footprints as there can be."""


def made(tmp_path: Path, name: str, batches: int = 12) -> Streams:
    clock = ManualClock(1_000_000)
    storages = tuple(LocalStorage(str(tmp_path / part), "os") for part in ("input", "output"))
    streams = Streams(PLANS[name], lambda p: StateCache(tmp_path / f"cache{p}"), 2, storages, clock)  # type: ignore
    tuples = Tuples(Random(7))
    for _ in range(batches):
        streams.append(tuples.batch(60, 2))
        streams.batch(SAVING, AT_ONCE)
        clock.advance(1)
    return streams


@pytest.fixture(params=["tumbling time", "tumbling count", "session"])
def streams(request: pytest.FixtureRequest, tmp_path: Path) -> Streams:
    return made(tmp_path, request.param)


def raw(log: Log) -> list[pa.Table]:
    return [table for p in range(log.spec.partitions) for table in log.read(p)]


def results(log: Log, partition: int | None = None) -> pa.Table:
    """Counted a second way: every tuple is looked at."""
    chosen = range(log.spec.partitions) if partition is None else [partition]
    tables = [log.spec.block.empty_table(), *(t for p in chosen for t in log.read(p))]
    table = pa.concat_tables(tables)
    return table.filter(pc.equal(table.column("_kind"), 0))


def after(streams: Streams, what: str) -> Log:
    log = streams.output
    if what == "compacted":
        compact(log, blocks_min=2)
    elif what == "truncated":
        blocks = [list(log.blocks(p)) for p in range(2)]
        truncate(log, before_offset={p: found[len(found) // 2].first for p, found in enumerate(blocks)})
    return log


@pytest.mark.parametrize("what", ["written", "compacted", "truncated"])
def test_a_summary_counts_results_and_knows_their_times_only(streams: Streams, what: str) -> None:
    log = after(streams, what)
    found = results(log)
    ends = found.column("window_end").cast(pa.int64())
    s = summary(log)
    assert len(found) < sum(map(len, raw(log))), "there are footprints"
    assert s.tuples == len(found)
    assert (s.time_min, s.time_max) == tuple(pc.min_max(ends).as_py().values())
    assert s.histogram is not None
    assert sum(s.histogram.tuples) == len(found)
    for p in s.partitions:
        own = results(log, p.partition)
        assert p.tuples == len(own)
        assert p.end - p.start > p.tuples
        if len(own):
            assert p.time_max == pc.max(own.column("window_end").cast(pa.int64())).as_py()


def test_the_newest_time_of_a_stream_of_before_is_no_end_of_an_open_window(tmp_path: Path) -> None:
    """Early versions noted the times of footprints, too."""
    streams = made(tmp_path, "tumbling time", batches=3)
    log = streams.output
    (boundary, _), first = log.state.boundaries, log.state.ends[0]
    columns = [pa.array([boundary if f.name == "window_end" else None], f.type) for f in log.spec.arrow]
    data = blocks_.encode_parts([(Kind.RESULT, columns)], log.spec, first)
    file = log.spec.file(0, first, "old")
    log.storage.create(file, data)
    block = replace(blocks_.describe(data, log.spec, 0, first, file), time_max=10**9)
    of_before = [replace(standing, results=None) for standing in log.state.standings]
    log.append(Append([block], standings=of_before, boundaries=log.state.boundaries))
    assert summary(log).time_max == boundary


def test_rates_are_of_results(streams: Streams) -> None:
    log = streams.output
    s = summary(log)
    first = next(m for m in log.after(-1) if isinstance(m, AppendCommit))
    later = len(results(log)) - sum(b.results for b in first.blocks)
    assert s.rate_seconds is not None
    assert s.rate == pytest.approx(later / s.rate_seconds)
    assert s.rate_overall == s.rate


def test_what_a_consumer_waits_for_is_counted_in_results(streams: Streams) -> None:
    log = streams.output
    blocks = [list(log.blocks(p)) for p in range(2)]
    needs = [found[1].first for found in blocks]
    consumer_registry.register(log, "reader", needs)
    (c,) = summary(log).consumers
    assert c.lag == tuple(sum(b.results for b in found[1:]) for found in blocks)
    assert (c.lag_tuples, c.held_tuples) == (sum(c.lag), sum(c.lag))
    consumer_registry.register(log, "reader", log.state.ends[:2])
    assert summary(log).consumers[0].lag == (0, 0)


def test_a_stream_shows_and_gives_results_only_unless_asked_for_more(streams: Streams) -> None:
    log = streams.output
    stream = sl.stream(log.storage.url)
    assert f"{len(results(log)):,} tuples" in repr(stream)
    for p in range(2):
        table = pa.concat_tables([log.spec.arrow.empty_table(), *stream.tables(p)])
        assert table.schema == log.spec.arrow
        assert table == results(log, p).select(table.column_names)
        everything = pa.concat_tables(stream.tables(p, control=True))
        assert everything.schema == log.spec.block
        assert len(everything) == log.state.ends[p]
        assert [row["_offset"] for row in stream.log(p)] == list(range(log.state.ends[p]))
        assert {row["_kind"] for row in stream.log(p)} > {0}


def test_tables_cut_by_offset_whatever_stands_between_the_results(streams: Streams) -> None:
    log = streams.output
    stream = sl.stream(log.storage.url)
    first, end = log.state.ends[0] // 3, 2 * log.state.ends[0] // 3
    offsets = [o for o in results(log, 0).column("_offset").to_pylist() if first <= o < end]
    assert sum(map(len, stream.tables(0, first=first, end=end))) == len(offsets)
    assert sum(map(len, stream.tables(0, first=first, end=end, control=True))) == end - first


def test_input_tuples_are_results_of_the_operator_before(tmp_path: Path) -> None:
    plan = PLANS["tumbling count"]
    streams = Streams(plan, lambda p: StateCache(tmp_path / f"cache{p}"))
    operator = {"window": {"kind": "time", "size": 10, "advance": 10}, "aggregates": {}, "footprints": []}
    spec = StreamSpec("before", struct([*COLUMNS.items()]), ("k",), "t", 1, 0, operator=operator)
    streams.input = Log.create(LocalStorage(str(tmp_path / "before"), "os"), spec, streams.clock)
    rows = Tuples(Random(1)).rows(50)
    columns = [pa.array([r[f.name] for r in rows], f.type) for f in spec.arrow]
    data = blocks_.encode_parts([(Kind.RESULT, columns), (Kind.G_OPEN, [c.slice(0, 30) for c in columns])], spec, 0)
    file = spec.file(0, 0, "block")
    streams.input.storage.create(file, data)
    streams.input.append(Append([blocks_.describe(data, spec, 0, 0, file)]))
    (done,) = streams.batch(tuples_max=AT_ONCE)
    assert (done.standing.input, done.taken) == (80, 50)


def long_stream(tmp_path: Path, commits: int) -> Log:
    """An operator's stream of small commits in two partitions: of every block of five tuples three are results."""
    operator = {"window": {"kind": "time", "size": 10, "advance": 10}, "aggregates": {}, "footprints": []}
    spec = StreamSpec("long", struct([*COLUMNS.items()]), ("k",), "t", 2, 0, operator=operator)
    log = Log.create(LocalStorage(str(tmp_path / "long"), "os"), spec, ManualClock(1_000_000))
    for c in range(commits):
        columns = [pa.array([c] * 3, f.type) if f.name == "t" else pa.nulls(3, f.type) for f in spec.arrow]
        made = []
        for p in range(2):
            first = log.state.ends[p]
            parts = [(Kind.RESULT, columns), (Kind.G_OPEN, [column.slice(0, 2) for column in columns])]
            data = blocks_.encode_parts(parts, spec, first)
            file = spec.file(p, first, f"c{c}")
            log.storage.create(file, data)
            made.append(blocks_.describe(data, spec, p, first, file))
        if c % 10 == 0:  # something was set aside
            first = log.state.ends[2]
            data = blocks_.encode_parts([(Kind.RESULT, columns)], spec, first)
            file = spec.file(2, first, f"c{c}")
            log.storage.create(file, data)
            made.append(blocks_.describe(data, spec, 2, first, file))
        log.append(Append(made))
    return log


def test_how_many_tuples_are_kept_is_known_without_the_leaves_of_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = long_stream(tmp_path, 3 * FOLD_EVERY + 5)
    read: list[str] = []
    monkeypatch.setattr(Index, "read", lambda self, child, of=Index.read: read.append(child.file) or of(self, child))
    fresh = Log.open(log.storage)
    assert (tuples_kept(fresh), read) == (6 * (3 * FOLD_EVERY + 5), [])
    truncate(fresh, before_offset=5 * (FOLD_EVERY + 3))
    read.clear()
    assert tuples_kept(fresh) == 6 * (2 * FOLD_EVERY + 2)
    assert len(read) == 2, "of what was just dropped"
    fresh.fold()
    compact(fresh, blocks_min=2)
    fresh.fold()
    read.clear()
    again = Log.open(log.storage)
    assert (tuples_kept(again), read) == (6 * (2 * FOLD_EVERY + 2), [])
    assert summary(again).tuples == tuples_kept(again)


@pytest.mark.parametrize("commits", [FOLD_EVERY, 3 * FOLD_EVERY + 5])
def test_an_index_that_does_not_count_results_is_read_for_them(tmp_path: Path, commits: int) -> None:
    log = long_stream(tmp_path, commits)
    body = unseal(log.storage.read(ROOT_KEY), "root")
    del body["results"]
    log.storage.put(ROOT_KEY, seal(body))
    old = Log.open(log.storage)
    assert [c.results for c in old.snapshot.children] == [None] * (commits // FOLD_EVERY)
    assert tuples_kept(old) == summary(old).tuples == 6 * commits
    assert old.snapshot.children == log.snapshot.children, "for whoever compares them"


def test_a_truncation_says_how_many_results_it_drops(tmp_path: Path) -> None:
    log = long_stream(tmp_path, 10)
    found = CliRunner().invoke(app, ["truncate", log.storage.url, "--before-offset", "25", "--json"])
    body = json.loads(found.output)
    assert [(d["start"], d["end"], d["tuples"], d["unneeded"], d["blocks"]) for d in body["dropped"]] == [
        (0, 25, 15, 15, 5),
        (0, 25, 15, 15, 5),
    ]
    assert body["starts"][:2] == [25, 25]
