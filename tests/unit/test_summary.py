"""What `inspect` shows, against streams whose every number is known."""

import json
import random

import pytest

from strandline.clock import ManualClock
from strandline.log.index.index import ROOT_KEY
from strandline.log.reading.summary import Summary, summary
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.consumer_registry import register
from strandline.log.upkeep.retention import truncate
from strandline.testing import MemoryStorage
from tests.support.items import append_items, item_spec

BEGAN_US = 1_700_000_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(BEGAN_US)


@pytest.fixture
def storage(clock: ManualClock) -> MemoryStorage:
    return MemoryStorage(clock)


@pytest.fixture
def log(storage: MemoryStorage, clock: ManualClock) -> Log:
    return Log.create(storage, item_spec(2, time_type="timestamp", lateness=5_000_000), clock)


def fill(log: Log, clock: ManualClock, commits: int, per_block: int = 10) -> None:
    """A batch a second; each block's tuples are spread over the second in which it is published."""
    for i in range(commits):
        now = clock.now_us()
        rows = [(k, i, now + k * 1_000_000 // per_block) for k in range(per_block)]
        append_items(log, {0: rows, 1: rows}, writer=Writer("query", "run", i))
        clock.advance(1)


def counted(s: Summary) -> tuple[int, int, int]:
    return s.tuples, s.blocks, s.size_bytes


def counted_by_walking(log: Log) -> tuple[int, int, int]:
    blocks = [b for p in range(log.spec.partitions + 1) for b in log.blocks(p)]
    tuples = sum(b.end - max(b.first, log.state.starts[b.partition]) for b in blocks if b.partition != log.spec.late)
    return tuples, len(blocks), sum(b.size_bytes for b in blocks)


def test_a_stream_without_tuples_has_a_summary(log: Log) -> None:
    s = summary(log)
    assert counted(s) == (0, 0, 0)
    assert (s.commits, s.time_min, s.time_max, s.published_us, s.rate, s.histogram) == (0, None, None, None, None, None)


def test_settings_and_schema_are_in_it(log: Log) -> None:
    s = summary(log)
    assert s.columns == {"k": "long", "v": "long", "t": "timestamp"}
    assert (s.id, s.key, s.time, s.time_is_timestamp) == ("items", ("k",), "t", True)
    assert (s.lateness, s.retention) == (5_000_000, None)


@pytest.mark.parametrize("commits", [1, 63, 64, 200])
def test_partitions_are_counted_over_index_and_tail(log: Log, clock: ManualClock, commits: int) -> None:
    fill(log, clock, commits)
    s = summary(log)
    assert counted(s) == counted_by_walking(log)
    for p in s.partitions:
        assert (p.start, p.end, p.tuples, p.blocks) == (0, 10 * commits, 10 * commits, commits)
        assert (p.time_min, p.time_max) == (BEGAN_US, BEGAN_US + (commits - 1) * 1_000_000 + 900_000)
        assert p.boundary == (s.time_max or 0) - 5_000_000
    assert s.writer == Writer("query", "run", commits - 1)
    assert s.published_us == BEGAN_US + (commits - 1) * 1_000_000


@pytest.mark.parametrize("is_folded", [False, True])
def test_compacted_and_truncated_blocks_are_counted_once_or_not_at_all(
    log: Log, clock: ManualClock, is_folded: bool
) -> None:
    fill(log, clock, 100)
    compact(log, target_bytes=12_000, blocks_min=4)
    truncate(log, before_offset={0: 400, 1: 0})
    fill(log, clock, 3)
    if is_folded:
        log.fold()
    s = summary(log)
    assert counted(s) == counted_by_walking(log)
    assert s.partitions[0].start > 0
    assert s.partitions[1].tuples == 1_030


@pytest.mark.parametrize("seed", range(3))
def test_whatever_was_done_to_it_the_count_is_that_of_a_walk_over_the_blocks(seed: int) -> None:
    rng = random.Random(seed)
    clock = ManualClock(BEGAN_US)
    log = Log.create(MemoryStorage(clock), item_spec(2, time_type="timestamp"), clock)
    for _ in range(20):
        fill(log, clock, rng.randrange(8), per_block=2)
        match rng.randrange(4):
            case 0:
                compact(log, target_bytes=rng.choice([2_000, 1 << 20]), blocks_min=2)
            case 1:
                truncate(log, before_offset=rng.randrange(log.state.ends[0] + 1))
            case 2:
                log.fold()
        assert counted(summary(log)) == counted_by_walking(log)


def test_rates_are_of_the_last_minute_and_of_the_whole_life(log: Log, clock: ManualClock) -> None:
    fill(log, clock, 100, per_block=10)
    clock.advance(100)
    fill(log, clock, 100, per_block=50)
    s = summary(log)
    assert s.rate == pytest.approx(100)
    assert s.rate_seconds == pytest.approx(60)
    assert s.rate_overall == pytest.approx((12_000 - 20) / 299)


def test_rates_do_not_mind_commits_of_other_kinds(log: Log, clock: ManualClock) -> None:
    fill(log, clock, 90)
    for i in range(40):
        register(log, f"consumer{i}", [0, 0])
    assert summary(log).rate == pytest.approx(20)


def test_a_young_stream_has_the_rate_of_its_whole_life_and_one_batch_has_none(log: Log, clock: ManualClock) -> None:
    fill(log, clock, 1)
    assert summary(log).rate is None
    fill(log, clock, 10)
    s = summary(log)
    assert s.rate == s.rate_overall == pytest.approx(20)
    assert s.rate_seconds == pytest.approx(10)


def test_few_manifests_are_read_however_long_the_stream_is(
    storage: MemoryStorage, log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, clock, 300, per_block=1)
    log = Log.open(storage, clock)
    keys: list[str] = []
    read = storage.read

    def counted_read(key: str) -> bytes:
        keys.append(key)
        return read(key)

    monkeypatch.setattr(storage, "read", counted_read)
    summary(log)
    assert len([k for k in keys if k.startswith("commits/")]) < 20
    assert [k for k in keys if k.startswith("blocks/")] == []


def test_the_histogram_spreads_a_blocks_tuples_over_its_times(log: Log, clock: ManualClock) -> None:
    fill(log, clock, 100)
    clock.advance(100)
    fill(log, clock, 100)
    h = summary(log, buckets=30).histogram
    assert h is not None
    assert sum(h.tuples) == 4_000
    assert len(h.edges) == 31
    assert h.tuples[:9] == pytest.approx([200] * 9, abs=10)
    assert h.tuples[11:19] == (0,) * 8
    assert h.tuples[-9:] == pytest.approx([200] * 9, abs=10)


def test_the_histogram_bears_the_largest_integers_as_times(clock: ManualClock) -> None:
    log = Log.create(MemoryStorage(clock), item_spec(1, lateness=0), clock)
    append_items(log, {0: [(0, 0, -(2**63)), (0, 0, 2**63 - 1)]})
    h = summary(log, buckets=4).histogram
    assert h is not None
    assert sum(h.tuples) == 2


def test_late_tuples_are_counted_apart(log: Log, clock: ManualClock) -> None:
    fill(log, clock, 20)
    append_items(log, {2: [(0, 0, BEGAN_US), (1, 0, BEGAN_US)]})
    s = summary(log)
    assert (s.tuples, s.late.tuples, s.late.blocks) == (400, 2, 1)
    assert s.histogram is not None
    assert sum(s.histogram.tuples) == 400


def test_consumers_are_shown_with_their_lag(log: Log, clock: ManualClock) -> None:
    fill(log, clock, 10)
    register(log, "average", [100, 60])
    (c,) = summary(log).consumers
    assert (c.name, c.needs, c.lag, c.lag_tuples, c.updated_us) == ("average", (100, 60), (0, 40), 40, clock.now_us())


def test_a_lost_index_does_not_change_the_summary(storage: MemoryStorage, log: Log, clock: ManualClock) -> None:
    fill(log, clock, 100)
    before = counted(summary(log))
    reader = Log.open(storage, clock)
    storage.delete(reader.snapshot.children[0].file)
    assert counted(summary(reader)) == before
    storage.delete(ROOT_KEY)
    assert counted(summary(Log.open(storage, clock))) == before


def test_it_is_json(log: Log, clock: ManualClock) -> None:
    fill(log, clock, 3)
    register(log, "average", [0, 0])
    body = json.loads(json.dumps(summary(log).to_json()))
    assert body["partitions"][1]["end"] == 30
    assert body["writer"] == {"query": "query", "run": "run", "batch": 2}
