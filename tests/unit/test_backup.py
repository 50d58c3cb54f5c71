"""Backups of streams that are written meanwhile, and streams that are restored from them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pytest

from strandline.clock import ManualClock
from strandline.errors import ConflictError, NotAStreamError, OptionError, StreamMismatchError, StreamNotFoundError
from strandline.log.audit.stream_audit import verify
from strandline.log.operator_state.loss_record import loss_table
from strandline.log.reading.summary import summary
from strandline.log.storage.fsspec_storage import FsspecStorage
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.storage.storage import Storage
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import seal
from strandline.log.stream.milestone import mark_key
from strandline.log.upkeep.backup import BACKUP_KEY, Copied, backup, restore
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.consumer_registry import register
from strandline.log.upkeep.dropping import drop_commits
from strandline.log.upkeep.retention import collect, truncate
from strandline.testing import MemoryStorage
from strandline.testing.faulty_storage import Crash, flipped
from tests.support.items import append_items, item_spec

GOLDEN = Path(__file__).parents[1] / "golden"
STREAMS = sorted(path.parent for path in GOLDEN.rglob("stream.json"))


def contents(log: Log) -> list[list[dict[str, Any]]]:
    return [[row for table in log.read(p) for row in table.to_pylist()] for p in range(log.spec.partitions + 1)]


@pytest.mark.parametrize("stream", STREAMS, ids=lambda path: str(path.relative_to(GOLDEN)))
def test_every_golden_stream_is_restored_as_it_was(stream: Path, tmp_path: Path) -> None:
    shutil.copytree(stream, tmp_path / "stream")
    source, kept, target = (LocalStorage(tmp_path / name, "os") for name in ("stream", "backup", "restored"))
    done = backup(source, kept)
    assert backup(source, kept).files == 0, "nothing is new"
    restore(kept, target)
    before, after = Log.open(source), Log.open(target)
    assert (after.state, after.state.seq) == (before.state, done.commit)
    assert contents(after) == contents(before)
    assert loss_table(after) == loss_table(before)
    assert verify(before).problems == verify(after).problems == verify(Log.open(kept)).problems == ()
    assert not target.exists(BACKUP_KEY)
    assert not target.exists("restore.json")


def memory(name: str, clock: ManualClock | None = None) -> MemoryStorage:
    storage = MemoryStorage(clock or ManualClock(1_000_000))
    storage.url = name  # type: ignore[misc]
    return storage


class Between:
    """A storage that lets something happen before every call, unless that something makes the call."""

    def __init__(self, storage: Storage, act: Callable[[], None]) -> None:
        self._storage, self._act, self._is_acting = storage, act, False
        self.url = storage.url

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        if not callable(found):
            return found

        def call(*arguments: Any) -> Any:
            if not self._is_acting:
                self._is_acting = True
                try:
                    self._act()
                finally:
                    self._is_acting = False
            return found(*arguments)

        return call


class Writer:
    """Writes, compacts, truncates, drops and collects, as one seed decides."""

    def __init__(self, seed: int, name: str = "stream") -> None:
        self.rng, self.clock = Random(seed), ManualClock(1_000_000)
        self.storage = memory(name, self.clock)
        self.log = Log.create(self.storage, item_spec(2, name=name), self.clock)
        self.written = 0
        for _ in range(12):
            self.append()

    def append(self) -> None:
        rows = [(self.written + i, i, self.written + i) for i in range(self.rng.randrange(1, 4))]
        append_items(self.log, {self.rng.randrange(2): rows})
        self.written += len(rows)

    def act(self) -> None:
        if self.rng.random() < 0.7:
            return
        self.clock.advance(1)
        self.log = Log.open(self.storage, self.clock)
        choice = self.rng.randrange(6)
        if choice <= 1:
            self.append()
        elif choice == 2:
            compact(self.log, blocks_min=2)
        elif choice == 3:
            truncate(self.log, before_offset=self.rng.randrange(1 + max(self.log.state.ends)), yield_to_consumers=True)
        elif choice == 4:
            self.log.fold()
            drop_commits(self.log, keep_commits=2, keep_us=0, every=3)
        else:
            collect(self.log, grace_us=0)
            collect(self.log, grace_us=0)
        if self.rng.random() < 0.2:
            needs = [self.rng.randrange(s, e + 1) for s, e in zip(*self.bounds, strict=True)]
            register(self.log, "reader", needs)

    @property
    def bounds(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.log.state.starts[:2], self.log.state.ends[:2]


def require_restorable(kept: Storage, writer: Writer, done: Copied | None) -> None:
    target = memory("restored")
    restored = restore(kept, target)
    assert done is None or restored.commit == done.commit
    log = Log.open(target)
    assert verify(log).problems == ()
    found, now = contents(log), Log.open(writer.storage)
    for p, rows in enumerate(found[:2]):
        first, start = log.state.starts[p], now.state.starts[p]
        truth = [row for table in now.read(p) for row in table.to_pylist()]
        both = (
            [row for row in rows if row["_offset"] >= start] if rows and "_offset" in rows[0] else rows[start - first :]
        )
        if start >= first:
            assert both == truth[: len(both)], "the same tuples in the same order"


@pytest.mark.parametrize("seed", [*range(12), 111])
def test_a_backup_is_whole_whatever_a_writer_does_between_any_two_calls(seed: int) -> None:
    writer, kept = Writer(seed), memory("backup")
    for _ in range(3):
        done = backup(Between(writer.storage, writer.act), kept)  # type: ignore[arg-type]
        assert done.damaged == ()
        require_restorable(kept, writer, done)
        for _ in range(10):
            writer.act()


@pytest.mark.parametrize("seed", range(6))
def test_a_backup_that_was_killed_leaves_the_last_one_and_goes_on(seed: int) -> None:
    writer, kept, rng = Writer(seed), memory("backup"), Random(seed)
    backup(writer.storage, kept)
    for _ in range(6):
        for _ in range(6):
            writer.act()
        calls = rng.randrange(1, 40)

        def die() -> None:
            nonlocal calls
            calls -= 1
            if calls < 0:
                raise Crash

        try:
            backup(Between(writer.storage, writer.act), Between(kept, die))  # type: ignore[arg-type]
        except Crash:
            require_restorable(kept, writer, None)
    require_restorable(kept, writer, backup(writer.storage, kept))


def test_a_restore_that_was_killed_at_any_call_is_no_stream_until_it_is_done() -> None:
    writer, kept = Writer(1), memory("backup")
    backup(writer.storage, kept)
    for number in range(1, 500):
        target, calls = memory("restored"), number

        def die() -> None:
            nonlocal calls
            calls -= 1
            if not calls:
                raise Crash

        try:
            restore(kept, Between(target, die))  # type: ignore[arg-type]
            break
        except Crash:
            if target.exists("stream.json"):
                assert verify(Log.open(target)).is_good
            elif target.exists("restore.json"):
                with pytest.raises(NotAStreamError, match="has not finished here"):
                    Log.create(target, item_spec(2))
            restore(kept, target)
            assert contents(Log.open(target)) == contents(Log.open(writer.storage))
    else:
        pytest.fail("it never ended")


def test_a_second_run_copies_only_what_is_new_and_deletes_what_the_stream_no_longer_has() -> None:
    writer, kept = Writer(3), memory("backup")
    backup(writer.storage, kept)
    writer.append()
    assert backup(writer.storage, kept).files == 2, "a block and a commit"
    compact(writer.log, blocks_min=2)
    done = backup(writer.storage, kept)
    assert done.deleted > 10
    assert len(list(kept.list("blocks"))) == sum(len(list(writer.log.blocks(p))) for p in range(2))


def test_what_is_no_place_for_a_backup_or_a_stream_is_refused() -> None:
    writer, other, kept = Writer(1), Writer(2, "other"), memory("backup")
    with pytest.raises(StreamNotFoundError):
        backup(memory("nothing"), kept)
    with pytest.raises(NotAStreamError, match="no backup here"):
        restore(writer.storage, memory("restored"))
    full = memory("full")
    full.put("notes.txt", b"mine")
    with pytest.raises(OptionError, match=r"not empty: it has notes\.txt"):
        backup(writer.storage, full)
    with pytest.raises(OptionError, match="the target is a stream"):
        backup(writer.storage, other.storage)
    with pytest.raises(OptionError, match="must not lie in one another"):
        backup(writer.storage, memory("stream/backup"))
    backup(writer.storage, kept)
    with pytest.raises(OptionError, match="the target is a stream"):
        restore(kept, other.storage)
    with pytest.raises(StreamMismatchError, match="another stream"):
        backup(other.storage, kept)


def test_a_stream_that_has_gone_back_does_not_overwrite_its_backup() -> None:
    writer, old, kept = Writer(1), memory("old"), memory("backup")
    backup(writer.storage, old)
    writer.append()
    backup(writer.storage, kept)
    back = memory("restored")
    restore(old, back)
    with pytest.raises(StreamMismatchError, match="the stream has lost commits"):
        backup(back, kept)
    append_items(Log.open(back, writer.clock), {0: [(7, 7, 10_000)]})
    with pytest.raises(StreamMismatchError, match="has another commit"):
        backup(back, kept)


@pytest.mark.parametrize("damage", ["gone", "rotten"])
def test_a_damaged_block_is_named_and_all_else_is_copied(damage: str) -> None:
    writer, kept = Writer(1), memory("backup")
    block = next(writer.log.blocks(0))
    if damage == "gone":
        writer.storage.delete(block.file)
    else:
        writer.storage.put(block.file, flipped(writer.storage.read(block.file), 10))
    assert backup(writer.storage, kept).damaged == (block.file,)
    assert restore(kept, memory("restored")).damaged == (block.file,)


def test_a_spark_checkpoint_that_grows_at_every_call_does_not_keep_a_backup_from_ending() -> None:
    writer, kept, batches = Writer(1), memory("backup"), 0

    def plan_a_batch() -> None:
        nonlocal batches
        writer.storage.put(f"spark_checkpoint/offsets/{batches}", b"v1")
        batches += 1
        assert batches < 10_000, "it never ends"

    plan_a_batch()
    backup(Between(writer.storage, plan_a_batch), kept)  # type: ignore[arg-type]
    assert kept.exists("spark_checkpoint/offsets/0")


def test_the_newest_files_of_a_spark_checkpoint_are_copied_before_spark_deletes_the_oldest() -> None:
    writer, kept = Writer(1), memory("backup")
    for batch in range(100):
        writer.clock.advance(1)
        writer.storage.put(f"spark_checkpoint/offsets/{batch}", b"v1")
    purged = iter(range(100))

    def purge() -> None:
        writer.storage.delete(f"spark_checkpoint/offsets/{next(purged, 0)}")

    backup(Between(writer.storage, purge), kept)  # type: ignore[arg-type]
    assert kept.exists("spark_checkpoint/offsets/99")


def test_links_do_not_hide_that_a_target_lies_in_the_stream(tmp_path: Path) -> None:
    Log.create(LocalStorage(tmp_path / "stream", "os"), item_spec(1))
    (tmp_path / "link").symlink_to(tmp_path / "stream")
    with pytest.raises(OptionError, match="must not lie in one another"):
        backup(LocalStorage(tmp_path / "link", "os"), LocalStorage(tmp_path / "stream" / "inside", "os"))


def test_tuples_are_what_readers_get() -> None:
    writer, kept = Writer(1), memory("backup")
    append_items(writer.log, {2: [(1, 1, 0)]})
    assert backup(writer.storage, kept).tuples == writer.written, "without the side log"
    assert restore(kept, memory("restored")).tuples == writer.written
    counted = {stream.name: backup(LocalStorage(stream, "os"), memory("backup")).tuples for stream in STREAMS}
    shown = {stream.name: summary(Log.open(LocalStorage(stream, "os"))).tuples for stream in STREAMS}
    assert counted == shown, "footprints are no tuples"


def test_a_run_that_ends_after_a_newer_one_does_not_take_its_place() -> None:
    writer, kept, newer = Writer(1), memory("backup"), False

    def run_another() -> None:
        nonlocal newer
        if newer or not kept.exists("stream.json"):
            return
        newer = True
        compact(writer.log, blocks_min=2)
        writer.append()
        backup(writer.storage, kept)

    with pytest.raises(ConflictError, match="another run of this backup has finished"):
        backup(writer.storage, Between(kept, run_another))  # type: ignore[arg-type]
    assert newer
    target = memory("restored")
    assert restore(kept, target).damaged == ()
    assert contents(Log.open(target)) == contents(Log.open(writer.storage))


@pytest.mark.parametrize("call", range(1, 44, 3))
def test_a_backup_that_finishes_while_it_is_restored_costs_nothing(call: int) -> None:
    writer, kept, target, calls = Writer(1), memory("backup"), memory("restored"), call
    backup(writer.storage, kept)

    def go_on() -> None:
        nonlocal calls
        calls -= 1
        if calls == 0:
            compact(writer.log, blocks_min=2)
            writer.log.fold()
            drop_commits(writer.log, keep_commits=2, keep_us=0, every=3)
            backup(writer.storage, kept)

    assert restore(Between(kept, go_on), target).damaged == ()  # type: ignore[arg-type]
    assert calls <= 0, "the backup went on meanwhile"
    log = Log.open(target)
    assert verify(log).problems == ()
    assert contents(log) == contents(Log.open(writer.storage))


def test_an_interrupted_restore_goes_on_with_a_newer_backup() -> None:
    writer, kept, target, calls = Writer(1), memory("backup"), memory("restored"), 20
    backup(writer.storage, kept)

    def die() -> None:
        nonlocal calls
        calls -= 1
        if calls < 0:
            raise Crash

    with pytest.raises(Crash):
        restore(kept, Between(target, die))  # type: ignore[arg-type]
    writer.append()
    compact(writer.log, blocks_min=2)
    done = backup(writer.storage, kept)
    assert restore(kept, target).commit == done.commit
    log = Log.open(target)
    assert contents(log) == contents(Log.open(writer.storage))
    assert verify(log).unreferenced.files == 0, "nothing is left of the older state"


def test_a_restore_that_only_lacked_its_end_does_not_touch_what_a_writer_has_done_since() -> None:
    writer, kept, target = Writer(1), memory("backup"), memory("restored")
    writer.storage.put("spark_checkpoint/offsets/0", b"v1")
    backup(writer.storage, kept)
    restore(kept, target)
    target.put("restore.json", seal({"format": 1, "stream": writer.log.spec.id}))
    target.put("spark_checkpoint/offsets/0", b"v1 wound back")
    append_items(Log.open(target, writer.clock), {0: [(7, 7, 10_000)]})
    assert restore(kept, target).commit == writer.log.state.seq + 1
    assert target.read("spark_checkpoint/offsets/0") == b"v1 wound back"
    assert not target.exists("restore.json")


def test_another_milestone_of_the_same_number_shows_that_the_stream_has_gone_back() -> None:
    writer, old, kept, back = Writer(1), memory("old"), memory("backup"), memory("restored")
    backup(writer.storage, old)
    writer.append()
    writer.log.fold()
    drop_commits(writer.log, keep_commits=2, keep_us=0, every=3)
    assert backup(writer.storage, kept).commit > 0
    assert kept.exists(mark_key(0))
    restore(old, back)
    log = Log.open(back, writer.clock)
    for time in range(8):
        append_items(log, {0: [(7, 7, 10_000 + time)]})
    log.fold()
    drop_commits(log, keep_commits=2, keep_us=0, every=3)
    with pytest.raises(StreamMismatchError, match="another milestone 0"):
        backup(back, kept)


def test_a_stream_goes_to_an_object_store_and_back(s3_endpoint: str, tmp_path: Path) -> None:
    source, target = LocalStorage(tmp_path / "stream", "os"), LocalStorage(tmp_path / "restored", "os")
    kept = FsspecStorage(f"s3://tests/{uuid4().hex}", endpoint_url=s3_endpoint)
    clock = ManualClock(1_000_000)
    log = Log.create(source, item_spec(2), clock)
    for i in range(6):
        append_items(log, {i % 2: [(i, i, i)]})
    log.fold()
    drop_commits(log, keep_commits=2, keep_us=0, every=3)
    assert backup(source, kept).tuples == 6
    compact(log, blocks_min=2)
    assert backup(source, kept).deleted == 6, "the small blocks"
    restore(kept, target)
    assert contents(Log.open(target)) == contents(log)
    assert verify(Log.open(target)).problems == ()
