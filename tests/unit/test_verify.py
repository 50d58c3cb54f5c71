"""Every kind of damage is found, named with its place, and does not hide other damage."""

import pickle
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from strandline.clock import ManualClock
from strandline.control_columns import KIND, OFFSET
from strandline.errors import NotAStreamError, StreamNotFoundError
from strandline.log.audit import history
from strandline.log.audit.problem import Problem
from strandline.log.audit.stream_audit import VerifyReport, verify
from strandline.log.index.index import ROOT_KEY, Index, Snapshot, load_snapshot
from strandline.log.stream import block as blocks_
from strandline.log.stream import commit_kinds
from strandline.log.stream.append_commit import Append, AppendCommit
from strandline.log.stream.block import Block
from strandline.log.stream.column_types import block_schema
from strandline.log.stream.commit_kinds import CompactCommit
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import commit_key, seal
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.consumer_registry import register
from strandline.log.upkeep.grace import GRACE_US
from strandline.log.upkeep.retention import collect, truncate
from strandline.testing import MemoryStorage
from tests.support.items import append_items, encode, item_spec, write_items

GRACE_S = GRACE_US / 1e6
COMMITS = 80
PER_BLOCK = 5


@pytest.fixture(scope="module")
def healthy() -> bytes:
    """Two partitions, commits for an index and a tail, some late tuples; written once, copied for each test."""
    clock = ManualClock(1_700_000_000_000_000)
    storage = MemoryStorage(clock)
    log = Log.create(storage, item_spec(2, lateness=1_000), clock)
    for i in range(COMMITS):
        batch = {p: [(k, i, 100 * i + 10 * k + p) for k in range(PER_BLOCK)] for p in (0, 1)}
        if i % 30 == 29:
            batch[2] = [(0, i, 7)]
        append_items(log, batch)
        clock.advance(1)
    return pickle.dumps((storage, clock))


@pytest.fixture
def copied(healthy: bytes) -> tuple[MemoryStorage, ManualClock]:
    storage, clock = pickle.loads(healthy)
    return storage, clock


@pytest.fixture
def storage(copied: tuple[MemoryStorage, ManualClock]) -> MemoryStorage:
    return copied[0]


@pytest.fixture
def clock(copied: tuple[MemoryStorage, ManualClock]) -> ManualClock:
    return copied[1]


@pytest.fixture
def log(storage: MemoryStorage, clock: ManualClock) -> Log:
    return Log.open(storage, clock)


def verified(storage: MemoryStorage, clock: ManualClock) -> VerifyReport:
    return verify(Log.unread(storage, clock))


def only_problem(storage: MemoryStorage, clock: ManualClock) -> Problem:
    report = verified(storage, clock)
    assert len(report.problems) == 1, report.problems
    assert not report.is_good
    assert report.problems[0].todo
    return report.problems[0]


def live_block(log: Log, partition: int, number: int) -> Block:
    return list(log.blocks(partition))[number]


def damage(storage: MemoryStorage, key: str, change: Callable[[bytes], bytes]) -> None:
    storage.put(key, change(storage.read(key)))


def flipped(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


# ---------------------------------------------------------------------- nothing is wrong


def test_a_healthy_stream_is_all_good_and_counted(log: Log, storage: MemoryStorage, clock: ManualClock) -> None:
    register(log, "average", [10, 20])
    seen: list[tuple[int, int, int]] = []
    report = verify(Log.unread(storage, clock), lambda *progress: seen.append(progress))
    assert report.is_good
    assert report.problems == ()
    assert (report.commits, report.blocks, report.tuples, report.late_tuples) == (COMMITS + 1, 162, 800, 2)
    assert report.consumers == 1
    assert report.unreferenced is not None
    assert seen[0] == (0, 0, 0)
    assert seen[-1] == (162, 162, report.size_bytes)
    assert report.to_json()["is_good"] is True


def test_a_stream_without_commits_is_all_good(clock: ManualClock) -> None:
    storage = MemoryStorage(clock)
    Log.create(storage, item_spec(1), clock)
    assert verified(storage, clock).is_good


def test_compaction_truncation_and_collection_leave_a_good_stream(
    log: Log, storage: MemoryStorage, clock: ManualClock
) -> None:
    compact(log, target_bytes=20_000, blocks_min=4)
    truncate(log, before_offset={0: 100, 1: 60})
    log.fold()
    clock.advance(2 * GRACE_S)
    collect(log)
    clock.advance(2 * GRACE_S)
    assert collect(log)
    append_items(log, {0: [(1, 1, 20_000)]})
    compact(log, target_bytes=100_000, blocks_min=2)
    report = verified(storage, clock)
    assert report.problems == ()
    assert report.tuples == sum(log.state.ends[:2]) - sum(log.state.starts[:2])


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_done_to_a_stream_in_whatever_order_it_stays_good(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_SEAL_AT", 1 + seed % 5)
    rng = random.Random(seed)
    clock = ManualClock(1_700_000_000_000_000)
    storage = MemoryStorage(clock)
    log = Log.create(storage, item_spec(2, lateness=500), clock)
    time = 1_000
    for _ in range(100):
        time += rng.randrange(100)
        match rng.choices(["append", "compact", "truncate", "collect", "fold"], [20, 1, 1, 1, 2])[0]:
            case "append":
                rows = {p: sorted((0, 0, time + rng.randrange(400)) for _ in range(rng.randrange(4))) for p in (0, 1)}
                append_items(log, rows)
            case "compact":
                compact(log, target_bytes=rng.choice([3_000, 1 << 20]), blocks_min=2)
            case "truncate":
                truncate(log, before_offset=rng.randrange(sum(log.state.ends[:2]) // 2 + 1))
            case "collect":
                clock.advance(1.1 * GRACE_S)
                collect(log)
            case "fold":
                log.fold()
    assert verified(storage, clock).problems == ()


def test_files_that_nothing_refers_to_are_told_but_are_no_problem(
    log: Log, storage: MemoryStorage, clock: ManualClock
) -> None:
    orphan = write_items(storage, log.spec, 0, 7, [(1, 2, 3)], "crashed")
    storage.put("staging/x/part-0.parquet", b"half")
    report = verified(storage, clock)
    assert report.is_good
    assert report.unreferenced is not None
    assert {orphan.file, "staging/x/part-0.parquet"} <= set(report.unreferenced.names)
    assert report.unreferenced.size_bytes >= orphan.size_bytes


# ---------------------------------------------------------------------- blocks


def test_a_flipped_bit_in_a_block_is_named_with_file_partition_and_offsets(
    log: Log, storage: MemoryStorage, clock: ManualClock
) -> None:
    block = live_block(log, 1, 20)
    damage(storage, block.file, flipped)
    problem = only_problem(storage, clock)
    assert (problem.part, problem.file) == ("block", block.file)
    assert (problem.partition, problem.first, problem.end) == (1, block.first, block.end)
    assert block.checksum in problem.what
    assert "restore" in problem.todo


def test_a_missing_block_is_named(log: Log, storage: MemoryStorage, clock: ManualClock) -> None:
    block = live_block(log, 0, 3)
    storage.delete(block.file)
    problem = only_problem(storage, clock)
    assert "missing" in problem.what
    assert (problem.file, problem.partition, problem.first) == (block.file, 0, block.first)


def test_a_truncated_block_file_is_named(log: Log, storage: MemoryStorage, clock: ManualClock) -> None:
    block = live_block(log, 0, 3)
    damage(storage, block.file, lambda data: data[:-10])
    assert "bytes" in only_problem(storage, clock).what


def test_a_rotten_block_of_the_late_side_log_is_named(log: Log, storage: MemoryStorage, clock: ManualClock) -> None:
    block = live_block(log, log.spec.late, 1)
    damage(storage, block.file, flipped)
    problem = only_problem(storage, clock)
    assert (problem.file, problem.partition) == (block.file, 2)


def test_every_damaged_block_is_named_not_only_the_first(log: Log, storage: MemoryStorage, clock: ManualClock) -> None:
    for number in (1, 50, 79):
        damage(storage, live_block(log, 0, number).file, flipped)
    storage.delete(live_block(log, 1, 5).file)
    damage(storage, commit_key(40), flipped)
    report = verified(storage, clock)
    assert [p.part for p in report.problems] == ["manifest", "block", "block", "block", "block"]


def test_a_block_that_was_compacted_and_deleted_meanwhile_is_no_problem(
    log: Log, storage: MemoryStorage, clock: ManualClock
) -> None:
    gone = live_block(log, 0, 3)

    def compact_meanwhile(_done: int, total: int, _bytes: int) -> None:
        if total and storage.exists(gone.file):
            compact(Log.open(storage, clock), blocks_min=2)
            for block in log.blocks(1):
                storage.delete(block.file)
            storage.delete(gone.file)

    assert verify(Log.unread(storage, clock), compact_meanwhile).is_good


def published_block(log: Log, table: pa.Table, **claims: object) -> Block:
    """A block whose manifest claims something else than is in it."""
    data = encode(table, log.spec)
    first = log.state.ends[0]
    block = Block(
        partition=0,
        file=log.spec.file(0, first, "odd"),
        first=first,
        end=first + len(table),
        rows={"result": len(table)},
        time_min=50_000,
        time_max=50_002,
        size_bytes=len(data),
        checksum=blocks_.checksum(data),
    )
    log.storage.create(block.file, data)
    block = replace(block, **claims)  # type: ignore[arg-type]
    log.append(Append([block]))
    return block


def three_tuples(log: Log, **columns: list[int | None]) -> pa.Table:
    first = log.state.ends[0]
    values: dict[str, list[int | None]] = {
        "k": [1, 2, 3],
        "v": [1, 2, 3],
        "t": [50_000, 50_001, 50_002],
        OFFSET: [first, first + 1, first + 2],
        KIND: [0, 0, 0],
    }
    values |= columns
    return pa.table(values, schema=block_schema(log.spec.arrow))


def test_a_block_with_other_offsets_than_its_manifest_says_is_named(
    log: Log, storage: MemoryStorage, clock: ManualClock
) -> None:
    published_block(log, three_tuples(log), end=log.state.ends[0] + 4, rows={"result": 4})
    assert [problem.what for problem in verified(storage, clock).problems] == [
        "it holds {'result': 3}, the manifest says {'result': 4}",
        "its offsets are not 400 to 403, one after the other: there are 3",
    ]


def test_a_block_with_offsets_of_its_own_is_held_to_them() -> None:
    """As the files of operators and of format 1 have them."""
    clock = ManualClock(1_700_000_000_000_000)
    storage = MemoryStorage(clock)
    log = Log.create(storage, replace(item_spec(2, lateness=1_000), format=1), clock)
    append_items(log, {0: [(1, i, 100 * i) for i in range(400)]})
    published_block(log, three_tuples(log, _offset=[400, 402, 401]))
    assert "where 401 should be stands 402" in only_problem(storage, clock).what


def test_a_block_whose_name_says_another_offset_is_named(log: Log, storage: MemoryStorage, clock: ManualClock) -> None:
    """Spark counts the tuples' offsets from there."""
    data = encode(three_tuples(log), log.spec)
    file = log.spec.file(0, log.state.ends[0] + 1, "odd")
    published_block(log, three_tuples(log), file=file)
    storage.create(file, data)
    assert "does not begin with its first offset, 00000000000000000400" in only_problem(storage, clock).what


def test_a_block_with_times_outside_of_its_manifests_range_is_named(
    log: Log, storage: MemoryStorage, clock: ManualClock
) -> None:
    published_block(log, three_tuples(log, t=[50_000, 50_001, 50_003]))
    assert "50003" in only_problem(storage, clock).what


def test_a_block_with_tuples_out_of_order_is_named(log: Log, storage: MemoryStorage, clock: ManualClock) -> None:
    published_block(log, three_tuples(log, t=[50_001, 50_000, 50_002]))
    assert "not in the order of t" in only_problem(storage, clock).what


def test_a_block_with_null_times_is_named(log: Log, storage: MemoryStorage, clock: ManualClock) -> None:
    published_block(log, three_tuples(log, t=[50_000, None, 50_002]))
    assert "1 tuple without a time" in only_problem(storage, clock).what


def test_a_block_with_other_kinds_than_its_manifest_says_is_named(
    log: Log, storage: MemoryStorage, clock: ManualClock
) -> None:
    published_block(log, three_tuples(log), rows={"footprint": 3})
    assert "{'result': 3}" in only_problem(storage, clock).what


def test_a_block_that_is_no_parquet_file_is_named(log: Log, storage: MemoryStorage, clock: ManualClock) -> None:
    data = b"not a Parquet file at all"
    block = published_block(
        log, three_tuples(log), size_bytes=len(data), checksum=blocks_.checksum(data), file="blocks/p00000/text.parquet"
    )
    storage.create(block.file, data)
    assert "cannot be decoded" in only_problem(storage, clock).what


# ---------------------------------------------------------------------- manifests


@pytest.mark.parametrize("seq", [0, 30, 70, COMMITS - 1], ids=["first", "indexed", "in the tail", "last"])
def test_a_rotten_manifest_is_named_and_the_rest_is_still_read(
    log: Log, storage: MemoryStorage, clock: ManualClock, seq: int
) -> None:
    damage(storage, commit_key(seq), flipped)
    storage.delete(live_block(log, 0, 75).file)
    report = verified(storage, clock)
    assert (report.problems[0].part, report.problems[0].file) == ("manifest", commit_key(seq))
    assert report.problems[0].what.startswith(f"commit {seq}:")
    gone = live_block(log, 0, 75).file
    if seq == COMMITS - 1:  # what it said is not known: it may have been a compaction
        (problem,) = report.problems
        assert problem.follows[0] == f"1 block not there, perhaps replaced by what is lost: {gone}"
    else:
        first, second = report.problems
        lost = "partition 0, offsets 350 to 354; partition 1, offsets 350 to 354"
        told = [f"10 tuples cannot be read, their blocks are most likely there: {lost}"] if seq == 70 else []
        assert [*first.follows][:-1] == told
        assert (second.what, second.file) == ("the file of this block is missing", gone)
    assert report.unreferenced is None, "what a lost manifest names must not be taken for garbage"
    # The index still knows the blocks of a commit that it has folded.
    assert report.blocks == (162 if seq < 64 else 160)


def test_missing_manifests_are_named_as_one_row(log: Log, storage: MemoryStorage, clock: ManualClock) -> None:
    for seq in (70, 71, 72):
        storage.delete(commit_key(seq))
    problem = only_problem(storage, clock)
    assert "commits 70 to 72 are missing" in problem.what
    assert "30 tuples cannot be read" in problem.follows[0]
    assert problem.follows[0].endswith(": partition 0, offsets 350 to 364; partition 1, offsets 350 to 364")


def long_lived(clock: ManualClock, partitions: int) -> Log:
    """Returns a stream of 60 appends that was compacted, truncated and collected on its way."""
    log = Log.create(MemoryStorage(clock), item_spec(partitions), clock)
    for batch in range(60):
        append_items(log, {p: [(p, 3 * batch + i, batch) for i in range(3)] for p in range(partitions)}, f"{batch}")
        clock.advance(1)
        if batch % 7 == 6:
            compact(log, target_bytes=20_000, blocks_min=4)
        if batch == 40:
            truncate(log, before_offset=110)
        if batch % 20 == 19:
            collect(log, grace_us=0)
    return log


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("has_index", [True, False], ids=["index", "no index"])
def test_one_lost_commit_is_one_problem_whatever_happened_after_it(
    clock: ManualClock, partitions: int, has_index: bool
) -> None:
    log = long_lived(clock, partitions)
    storage = log.storage
    assert isinstance(storage, MemoryStorage)
    if not has_index:
        for listed in list(storage.list("snapshots")):
            storage.delete(listed.key)
    kinds = Counter[str]()
    for seq in range(log.state.seq):
        key = commit_key(seq)
        kinds[log.commit(seq).kind] += 1
        data = storage.read(key)
        storage.delete(key)
        problem = only_problem(storage, clock)
        assert (problem.part, problem.what, problem.file) == ("manifest", f"commit {seq} is missing", key)
        storage.create(key, data)
    assert kinds.keys() == {"append", "compact", "truncate", "collect"}
    assert verified(storage, clock).is_good


def test_blocks_that_a_lost_compaction_replaced_are_no_problems_of_their_own(clock: ManualClock) -> None:
    log = long_lived(clock, 1)
    storage, compaction = log.storage, next(m for m in log.before(log.state.seq + 1) if isinstance(m, CompactCommit))
    assert isinstance(storage, MemoryStorage)
    for key in [commit_key(compaction.seq), *(listed.key for listed in storage.list("snapshots"))]:
        storage.delete(key)
    problem = only_problem(storage, clock)
    assert problem.file == commit_key(compaction.seq)
    assert re.match(r"\d blocks not there, perhaps replaced by what is lost: blocks/p00000/", problem.follows[0])


def test_a_rotten_block_behind_a_lost_commit_is_a_problem_of_its_own(
    log: Log, storage: MemoryStorage, clock: ManualClock
) -> None:
    storage.delete(commit_key(70))
    rotten = live_block(log, 1, 5).file
    damage(storage, rotten, flipped)
    lost, other = verified(storage, clock).problems
    assert (lost.file, other.file) == (commit_key(70), rotten)


def test_what_happens_behind_a_lost_manifest_is_followed_as_far_as_possible(
    log: Log, storage: MemoryStorage, clock: ManualClock
) -> None:
    truncate(log, before_offset=100)
    compact(log, target_bytes=20_000, blocks_min=4)
    register(log, "average", [100, 100])
    append_items(log, {0: [(1, 1, 50_000)]})
    clock.advance(2 * GRACE_S)
    collect(log)
    clock.advance(2 * GRACE_S)
    collect(log)
    storage.delete(ROOT_KEY)
    damage(storage, commit_key(COMMITS - 1), flipped)
    report = verified(storage, clock)
    # The compacted blocks hold the tuples of the lost commit, so nothing else is missing.
    assert [(p.part, p.file) for p in report.problems] == [("manifest", commit_key(COMMITS - 1))]
    assert report.consumers == 1


def test_manifests_that_are_gone_at_the_end_are_missed_if_the_index_knows_them(
    log: Log, storage: MemoryStorage, clock: ManualClock
) -> None:
    log.fold()
    storage.delete(commit_key(COMMITS - 1))
    assert f"commit {COMMITS - 1} is missing" in only_problem(storage, clock).what


def test_a_manifest_that_breaks_an_invariant_is_named(log: Log, storage: MemoryStorage, clock: ManualClock) -> None:
    last = log.commit(COMMITS - 1)
    wrong = replace(last, blocks=(replace(last.blocks[0], first=last.blocks[0].first - 1), *last.blocks[1:]))
    storage.put(commit_key(COMMITS - 1), commit_kinds.encode(wrong))
    assert "not dense" in only_problem(storage, clock).what


def test_a_manifest_in_the_place_of_another_is_named(log: Log, storage: MemoryStorage, clock: ManualClock) -> None:
    storage.put(commit_key(COMMITS - 1), storage.read(commit_key(3)))
    assert "it says that it is commit 3" in only_problem(storage, clock).what


def test_a_manifest_of_another_stream_is_named(log: Log, storage: MemoryStorage, clock: ManualClock) -> None:
    storage.put(commit_key(COMMITS - 1), commit_kinds.encode(replace(log.commit(COMMITS - 1), stream="other")))
    assert "another stream" in only_problem(storage, clock).what


def test_a_manifest_that_names_an_announced_file_is_named(log: Log, storage: MemoryStorage, clock: ManualClock) -> None:
    orphan = write_items(storage, log.spec, 0, log.state.ends[0], [(1, 1, 60_000)], "slow")
    clock.advance(2 * GRACE_S)
    collect(log)
    state = log.state
    m = AppendCommit(
        seq=state.seq + 1,
        stream=log.spec.id,
        published_us=clock.now_us(),
        blocks=(orphan,),
        ends=(orphan.end, *state.ends[1:]),
        boundaries=state.boundaries,
        time_max=60_000,
    )
    storage.create(commit_key(m.seq), commit_kinds.encode(m))
    problem = only_problem(storage, clock)
    assert orphan.file in problem.what
    assert "announced" in problem.what


def test_a_compaction_that_does_not_stand_for_whole_blocks_is_named(
    log: Log, storage: MemoryStorage, clock: ManualClock
) -> None:
    odd = write_items(storage, log.spec, 0, 2, [(1, 1, 50), (1, 1, 60)], "odd")
    m = CompactCommit(seq=COMMITS, stream=log.spec.id, published_us=clock.now_us(), blocks=(odd,))
    storage.create(commit_key(COMMITS), commit_kinds.encode(m))
    assert "whole blocks" in only_problem(storage, clock).what


# ---------------------------------------------------------------------- the index


def with_other_index(storage: MemoryStorage, log: Log, change: Callable[[Snapshot], Snapshot]) -> None:
    snapshot = load_snapshot(storage, log.spec.id)
    assert snapshot is not None
    storage.put(ROOT_KEY, change(snapshot).encode())


def test_an_index_that_lacks_a_leaf_is_named(log: Log, storage: MemoryStorage, clock: ManualClock) -> None:
    with_other_index(storage, log, lambda s: replace(s, children=()))
    report = verified(storage, clock)
    assert {p.part for p in report.problems} == {"index"}
    assert "does not know the block" in report.problems[0].what
    assert "63 further blocks" in report.problems[0].what
    assert ROOT_KEY in report.problems[0].todo


def test_an_index_with_a_wrong_entry_is_named(log: Log, storage: MemoryStorage, clock: ManualClock) -> None:
    def wrong(snapshot: Snapshot) -> Snapshot:
        state = replace(
            snapshot.state, seq=-1, starts=(0, 0, 0), ends=(0, 0, 0), boundaries=(None, None), time_max=None
        )
        tail = [log.commit(seq) for seq in range(64)]
        blocks = tail[5].blocks
        tail[5] = replace(tail[5], blocks=(replace(blocks[0], file="blocks/p00000/elsewhere.parquet"), *blocks[1:]))
        return Index(storage).fold(replace(snapshot, state=state, children=()), tail)

    with_other_index(storage, log, wrong)
    problem = only_problem(storage, clock)
    assert (problem.part, problem.partition, problem.first) == ("index", 0, 25)
    assert "elsewhere.parquet" in problem.what


def test_an_index_with_another_state_is_named(log: Log, storage: MemoryStorage, clock: ManualClock) -> None:
    with_other_index(storage, log, lambda s: replace(s, state=replace(s.state, time_max=1)))
    assert "time_max" in only_problem(storage, clock).what


def test_an_index_in_which_a_search_by_time_goes_wrong_is_named(
    log: Log, storage: MemoryStorage, clock: ManualClock
) -> None:
    with_other_index(storage, log, lambda s: replace(s, children=tuple(replace(c, time_max=5) for c in s.children)))
    report = verified(storage, clock)
    assert {p.partition for p in report.problems} == {0, 1}
    assert all("search in the index by time does not find" in p.what for p in report.problems)


@pytest.mark.parametrize("change", [flipped, lambda data: data[: len(data) // 2]], ids=["flipped", "torn"])
def test_a_rotten_leaf_of_the_index_is_named(
    log: Log, storage: MemoryStorage, clock: ManualClock, change: Callable[[bytes], bytes]
) -> None:
    leaf = log.snapshot.children[0].file
    damage(storage, leaf, change)
    problem = only_problem(storage, clock)
    assert (problem.part, problem.file) == ("index", leaf)


def test_a_missing_leaf_and_a_rotten_root_of_the_index_are_named(
    log: Log, storage: MemoryStorage, clock: ManualClock
) -> None:
    storage.delete(log.snapshot.children[0].file)
    assert "missing" in only_problem(storage, clock).what
    damage(storage, ROOT_KEY, flipped)
    assert only_problem(storage, clock).file == ROOT_KEY


def test_an_index_that_was_written_anew_meanwhile_is_no_problem(
    log: Log, storage: MemoryStorage, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = log.snapshot.children[0].file
    read = storage.read

    def fold_meanwhile(key: str) -> bytes:
        if key == old:
            monkeypatch.undo()
            truncate(log, before_offset=50)
            log.fold()
            storage.delete(old)
        return read(key)

    reader = Log.unread(storage, clock)
    monkeypatch.setattr(storage, "read", fold_meanwhile)
    report = verify(reader)
    assert report.problems == ()
    assert report.commits == COMMITS + 1


def test_a_stream_whose_index_is_lost_is_good(log: Log, storage: MemoryStorage, clock: ManualClock) -> None:
    storage.delete(ROOT_KEY)
    assert verified(storage, clock).is_good


# ---------------------------------------------------------------------- consumers


def test_a_consumer_that_cannot_be_read_is_named(log: Log, storage: MemoryStorage, clock: ManualClock) -> None:
    register(log, "average", [10, 20])
    damage(storage, "consumers/average.json", flipped)
    problem = only_problem(storage, clock)
    assert (problem.part, problem.file) == ("consumer", "consumers/average.json")
    assert "'average'" in problem.what


def test_a_consumer_that_has_read_what_is_not_there_is_named(
    log: Log, storage: MemoryStorage, clock: ManualClock
) -> None:
    register(log, "average", [10, 9_999])
    problem = only_problem(storage, clock)
    assert (problem.partition, problem.first, problem.end) == (1, 400, 9_999)


def test_a_consumer_that_needs_what_was_dropped_is_named(log: Log, storage: MemoryStorage, clock: ManualClock) -> None:
    register(log, "average", [300, 300])
    truncate(log, before_offset=200)
    body = {"format": 1, "name": "average", "needs": [300, 100], "updated_us": 0, "seq": COMMITS}
    storage.put("consumers/average.json", seal(body))
    problem = only_problem(storage, clock)
    assert (problem.partition, problem.first, problem.end) == (1, 100, 200)
    assert "unregister" in problem.todo


# ---------------------------------------------------------------------- no stream


def test_what_is_not_a_stream_cannot_be_verified(clock: ManualClock) -> None:
    storage = MemoryStorage(clock)
    with pytest.raises(StreamNotFoundError):
        Log.unread(storage)
    storage.put("something", b"else")
    with pytest.raises(NotAStreamError):
        Log.unread(storage)
