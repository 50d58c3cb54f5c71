"""One append may have several blocks of one partition, one after the other: a large batch is cut into many."""

import json

import pytest

from strandline.clock import ManualClock
from strandline.errors import CorruptManifestError, FormatVersionError
from strandline.log.audit.history import History
from strandline.log.audit.stream_audit import verify
from strandline.log.index import index
from strandline.log.index.seek import offsets_at
from strandline.log.reading.merge import merged
from strandline.log.reading.summary import summary
from strandline.log.stream import commit_kinds, manifest
from strandline.log.stream.append_commit import Append, AppendCommit
from strandline.log.stream.block import Block
from strandline.log.stream.commit import Commit
from strandline.log.stream.log import Log
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.retention import collect, truncate
from strandline.testing import MemoryStorage
from tests.support.items import Item, append_items, item_spec, read_items, write_items

ITEMS: list[Item] = [(0, i, 10 * i) for i in range(9)]


@pytest.fixture
def log() -> Log:
    clock = ManualClock(1_000_000)
    return Log.create(MemoryStorage(clock), item_spec(2, lateness=5), clock)


def write_cut(log: Log, partition: int, rows: list[Item], cuts: int, name: str) -> list[Block]:
    """The rows as blocks of so many tuples each, not yet published."""
    first = log.state.ends[partition]
    return [
        write_items(log.storage, log.spec, partition, first + at, rows[at : at + cuts], f"{name}-{at}")
        for at in range(0, len(rows), cuts)
    ]


def append_cut(log: Log, rows: dict[int, list[Item]], cuts: int = 2) -> Commit:
    name = f"commit{log.state.seq + 1}"
    # Backwards: whoever appends need not know in which order tasks answer.
    return log.append(Append([b for p, r in rows.items() for b in reversed(write_cut(log, p, r, cuts, name))]))


def test_a_batch_of_several_blocks_a_partition_reads_as_one(log: Log) -> None:
    append_items(log, {0: [(0, 0, 1)]})
    append_cut(log, {0: ITEMS, 1: ITEMS[:1]})
    append_items(log, {0: [(0, 0, 90)]})
    assert log.state.ends == (11, 1, 0)
    for handle in (log, Log.open(log.storage, log.clock)):
        assert [(b.first, b.end) for b in handle.blocks(0)] == [
            (0, 1),
            (1, 3),
            (3, 5),
            (5, 7),
            (7, 9),
            (9, 10),
            (10, 11),
        ]
        assert [item for _, item in read_items(handle, 0)] == [(0, 0, 1), *ITEMS, (0, 0, 90)]
        assert [b.first for b in handle.blocks(0, 4, 6)] == [3, 5]
        assert [b.first for b in handle.blocks(0, time_from=45, time_until=70)] == [5, 7]
        assert offsets_at(handle, 50)[0] == 6
    assert verify(log).problems == ()
    assert (summary(log).tuples, summary(log).blocks) == (12, 8)
    assert sum(len(run.table) for run in merged(log, [0, 1])) == 12


def test_such_blocks_are_folded_compacted_truncated_and_collected(log: Log) -> None:
    append_cut(log, {0: ITEMS, 1: ITEMS, 2: []})
    log.fold()
    append_cut(log, {0: [(0, 9, 90), (0, 10, 100), (0, 11, 110)]}, cuts=1)
    everything = read_items(log, 0)
    assert Log.open(log.storage, log.clock).snapshot.children[0].entries == 10
    truncate(log, before_offset={0: 5})
    assert (log.state.starts[0], read_items(log, 0)) == (4, everything[4:])
    compact(log, blocks_min=3)
    assert [(b.first, b.end) for b in log.blocks(0)] == [(4, 12)]
    assert read_items(log, 0) == everything[4:]
    log.fold()
    assert verify(log).problems == ()
    for _ in range(3):
        assert isinstance(log.clock, ManualClock)
        log.clock.advance(10)
        collect(log, grace_us=1)
    assert verify(log).problems == ()
    assert read_items(Log.open(log.storage, log.clock), 0) == everything[4:]


def test_an_older_strandline_refuses_such_a_commit_and_reads_all_others(log: Log) -> None:
    append_items(log, {0: ITEMS[:1], 1: ITEMS[:1]})
    append_cut(log, {0: ITEMS[1:]})
    formats = [json.loads(log.storage.read(manifest.commit_key(seq)))["format"] for seq in range(2)]
    assert formats == [1, 2], "only what an older reader would misunderstand has the newer format"
    body = json.loads(log.storage.read(manifest.commit_key(1)))
    assert [b["first"] for b in body["partitions"][0]["blocks"]] == [1, 3, 5, 7]
    assert (body["partitions"][0]["first"], body["partitions"][0]["end"]) == (1, 9)
    body.pop("checksum")
    with pytest.raises(FormatVersionError):
        manifest.unseal(manifest.seal({**body, "format": 99}), "here")


def test_a_commit_of_either_format_is_encoded_to_the_same_bytes(log: Log) -> None:
    append_cut(log, {0: ITEMS, 2: ITEMS[:3]})
    data = log.storage.read(manifest.commit_key(0))
    assert commit_kinds.encode(commit_kinds.decode(data, "here")) == data


@pytest.mark.parametrize("keep", [(0, 2), (1, 2), (0, 0, 1), (0,)])
def test_blocks_of_one_partition_that_are_not_dense_are_refused(log: Log, keep: tuple[int, ...]) -> None:
    blocks = write_cut(log, 0, ITEMS[:6], 2, "a")
    # Of three blocks some are lost, one is there twice, or the ends do not fit.
    m = AppendCommit(
        seq=0,
        stream=log.spec.id,
        published_us=0,
        blocks=tuple(blocks[i] for i in keep),
        ends=(6, 0, 0),
        boundaries=(45, 45),
        time_max=50,
    )
    with pytest.raises(CorruptManifestError, match="not dense"):
        log.state.apply(m)
    if len(keep) > 1:  # of one block the manifest says the end only once
        with pytest.raises(CorruptManifestError, match="not dense"):
            log.publish(lambda _state, _seen: m, since=-1)


def test_a_block_with_a_tuple_before_the_boundary_is_found_wherever_it_stands(log: Log) -> None:
    append_items(log, {0: [(0, 0, 100)]})
    with pytest.raises(CorruptManifestError, match="before the boundary 95"):
        append_cut(log, {0: [(0, 0, 100), (0, 1, 101), (0, 2, 94), (0, 3, 102)]}, cuts=2)


def test_history_goes_on_behind_a_lost_commit_that_several_blocks_follow(log: Log) -> None:
    append_items(log, {0: ITEMS[:2]})
    append_items(log, {0: ITEMS[2:4]})
    append_cut(log, {0: ITEMS[4:]})
    history = History(log.spec)
    history.take(log.commit(0))
    history.skip()
    history.take(log.commit(2))
    assert history.holes == [(0, 2, 4)]
    assert [(b.first, b.end) for b in history.live[0]] == [(0, 2), (4, 6), (6, 8), (8, 9)]


def test_several_blocks_fill_the_index_as_many_commits_would(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "FOLD_EVERY", 2)
    monkeypatch.setattr(index, "FANOUT", 2)
    monkeypatch.setattr(index, "LEAF_ENTRIES_MAX", 7)
    for batch in range(6):
        append_cut(log, {p: [(0, i, 10 * batch + i) for i in range(5)] for p in (0, 1)})
    fresh = Log.open(log.storage, log.clock)
    assert [(b.first, b.end) for b in fresh.blocks(1)][-3:] == [(25, 27), (27, 29), (29, 30)]
    assert [item[1] for _, item in read_items(fresh, 0)] == list(range(5)) * 6
    assert verify(log).problems == ()
