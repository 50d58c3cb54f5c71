"""The side log keeps reasons apart, and lets go of the past although some of its times are of the future."""

import pytest

from strandline.clock import ManualClock
from strandline.log.audit.stream_audit import verify
from strandline.log.reading.summary import summary
from strandline.log.stream.append_commit import Append
from strandline.log.stream.block import Block
from strandline.log.stream.commit_kinds import CompactCommit
from strandline.log.stream.log import Log
from strandline.log.stream.reason import AHEAD, KEY, LATE, TIME, reason_of
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.retention import apply_retention
from strandline.testing import MemoryStorage
from tests.support.items import Item, append_items, item_spec, read_items, write_items

SIDE = 2
FAR = 1 << 60
SECOND = 1_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100 * SECOND)


@pytest.fixture
def log(clock: ManualClock) -> Log:
    return Log.create(MemoryStorage(clock), item_spec(2, time_type="timestamp", lateness=5 * SECOND), clock)


def set_aside(log: Log, *groups: tuple[str, list[Item]]) -> None:
    """Publishes blocks of the side log, each with its reason."""
    first, blocks = log.state.ends[SIDE], list[Block]()
    for reason, rows in groups:
        name = log.spec.file(SIDE, first, f"commit{log.state.seq + 1}", reason)
        unique = name.removeprefix(f"late/{first:020d}-").removesuffix(".parquet")
        blocks.append(write_items(log.storage, log.spec, SIDE, first, rows, unique))
        assert blocks[-1].file == name
        first = blocks[-1].end
    log.append(Append(blocks))


def test_the_name_of_a_block_says_why_its_tuples_are_there(log: Log) -> None:
    assert log.spec.file(SIDE, 7, "u") == "late/00000000000000000007-u.parquet"
    assert log.spec.file(SIDE, 7, "u", LATE) == "late/00000000000000000007-u.parquet"
    assert log.spec.file(SIDE, 7, "u", AHEAD) == "late/00000000000000000007-u.ahead.parquet"
    for reason in (LATE, AHEAD, TIME, KEY):
        assert reason_of(log.spec.file(SIDE, 7, "000000000001-2e2f3623-d2f42ee0c078", reason)) == reason


def test_compaction_keeps_reasons_apart(log: Log) -> None:
    append_items(log, {0: [(0, 0, 90 * SECOND)]})
    for i in range(3):
        set_aside(log, (LATE, [(0, i, i)]), (AHEAD, [(1, i, FAR + i)]))
    for i in range(3):
        set_aside(log, (AHEAD, [(2, i, FAR + i)]))
    set_aside(log, (LATE, [(3, 0, 3)]), (LATE, [(3, 1, 4)]))
    before = read_items(log, SIDE)
    compact(log, blocks_min=2)
    # Neighbours of one reason are joined.
    assert [(b.tuples, b.reason) for b in log.blocks(SIDE)] == [
        (1, LATE),
        (1, AHEAD),
        (1, LATE),
        (1, AHEAD),
        (1, LATE),
        (4, AHEAD),
        (2, LATE),
    ]
    assert read_items(log, SIDE) == before
    assert verify(log).problems == ()
    assert summary(log).set_aside == {LATE: 5, AHEAD: 6}
    log.fold()
    assert summary(Log.open(log.storage, log.clock)).set_aside == {LATE: 5, AHEAD: 6}


def test_a_compaction_that_mixes_reasons_is_found(log: Log) -> None:
    append_items(log, {0: [(0, 0, 90 * SECOND)]})
    set_aside(log, (LATE, [(0, 0, 1)]), (AHEAD, [(1, 1, FAR)]))
    joined = write_items(log.storage, log.spec, SIDE, 0, [(0, 0, 1), (1, 1, FAR)], "joined")
    log.publish(lambda state, _seen: CompactCommit(state.seq + 1, log.spec.id, 0, blocks=(joined,)), since=-1)
    (problem,) = verify(log).problems
    assert problem.what.endswith("in the side log for other reasons, too")


def test_what_is_ahead_does_not_keep_the_side_log_for_ever(log: Log, clock: ManualClock) -> None:
    append_items(log, {0: [(0, 0, 90 * SECOND)]})
    set_aside(log, (LATE, [(0, 0, 1)]), (AHEAD, [(1, 1, FAR)]), (LATE, [(0, 2, 80 * SECOND)]))
    apply_retention(log, 20 * SECOND)
    assert log.state.starts == (0, 0, 1), "what came a moment ago is kept, whatever its time"
    clock.advance(100)
    append_items(log, {0: [(0, 0, 190 * SECOND)]})
    set_aside(log, (TIME, [(1, 1, (1 << 63) - 1)]))
    apply_retention(log, 20 * SECOND)
    assert log.state.starts[SIDE] == 3
    assert summary(log).set_aside == {TIME: 1}


@pytest.mark.parametrize("times", [0, 1_700_000_000 * SECOND], ids=["today", "backfill"])
@pytest.mark.parametrize(
    ("reason", "time"),
    [(TIME, -63_000_000_000_000_000), (TIME, (1 << 63) - 1), (AHEAD, FAR)],
    ids=["early", "far", "ahead"],
)
def test_what_is_aside_for_its_time_goes_when_its_publication_is_old(
    log: Log, clock: ManualClock, reason: str, time: int, times: int
) -> None:
    clock.advance(times / SECOND)
    append_items(log, {0: [(0, 0, 90 * SECOND)]})
    set_aside(log, (reason, [(0, 1, time)]), (LATE, [(0, 2, 1)]))
    for _ in range(2):
        apply_retention(log, 3_600 * SECOND)
        assert log.state.starts[SIDE] == 0, "it came a moment ago"
        clock.advance(1_800)
        append_items(log, {0: [(0, 0, 190 * SECOND)]})
    clock.advance(1)
    apply_retention(log, 3_600 * SECOND)
    assert log.state.starts[SIDE] == 1
    append_items(log, {0: [(0, 0, 9_000 * SECOND)]})
    apply_retention(log, 3_600 * SECOND)
    assert log.state.starts == (2 + 1, 0, 2)


@pytest.mark.parametrize("time", [-(1 << 63), (1 << 63) - 1])
def test_with_numbers_as_times_it_goes_with_what_was_published_before_it(clock: ManualClock, time: int) -> None:
    log = Log.create(MemoryStorage(clock), item_spec(2, lateness=5), clock)
    for n in range(6):
        append_items(log, {p: [(p, n, 10 * n)] for p in range(2)})
        if n == 2:
            set_aside(log, (TIME, [(0, 1, time)]), (LATE, [(0, 1, 1)]))
        clock.advance(1)
        apply_retention(log, 25)
        starts = max(0, n - 2)
        assert log.state.starts == (starts, starts, 0 if n < 5 else 2)


def test_a_boundary_never_leaves_64_bits(clock: ManualClock) -> None:
    forever = item_spec(1, lateness=(1 << 63) - 1)
    log = Log.create(MemoryStorage(clock), forever, clock)
    append_items(log, {0: [(0, 0, -(1 << 62))]})
    assert log.state.boundary == -(1 << 63)
    append_items(log, {0: [(0, 0, 5)]})
    assert log.state.boundary == 6 - (1 << 63)
    apply_retention(log, (1 << 63) - 1)
    assert log.state.starts == (0, 0)
