"""What a writer does beside its batches: they do not wait for it, and nothing that goes wrong with it stops them."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from strandline.clock import SYSTEM_CLOCK, stopwatch_s
from strandline.errors import CorruptionError, DroppedError, OptionError, StorageError, StrandlineError
from strandline.log.index import index
from strandline.log.stream.log import Log
from strandline.log.upkeep import dropping, levels, retention
from strandline.log.upkeep.compaction import Compacted
from strandline.spark.operator import housekeeping
from strandline.spark.operator.housekeeping import Housekeeping
from strandline.spark.session.place import Place
from tests.support.items import append_items, item_spec, read_items
from tests.support.machine import patience

EVERY = 16


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "FOLD_EVERY", EVERY)
    monkeypatch.setattr(housekeeping, "_REST", 0.0)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "stream"), "os")


@pytest.fixture
def log(place: Place) -> Log:
    return Log.create(place.storage(), item_spec(2, lateness=1_000_000))


@pytest.fixture
def keep_house(place: Place) -> Iterator[Callable[..., Housekeeping]]:
    made: list[Housekeeping] = []

    def make(keep: int | None = None, compaction: str = "auto") -> Housekeeping:
        made.append(Housekeeping(place, keep, compaction))
        return made[-1]

    yield make
    for house in made:
        house.stop()


def grow(log: Log, house: Housekeeping, batches: int) -> None:
    for _ in range(batches):
        before = log.state.seq
        n = before + 1
        append_items(log, {p: [(p, n, n)] for p in range(2)}, f"batch{n}")
        house.after_batch(log, before)


def wait_until(holds: Callable[[], bool]) -> None:
    began_s = stopwatch_s()
    while not holds():
        assert stopwatch_s() - began_s < 20, "it never happened"
        SYSTEM_CLOCK.sleep(0.01)


def settle(log: Log, house: Housekeeping) -> None:
    """Grows on until the next call, and waits for what it starts."""
    for _ in range(2):
        if house._thread is not None:
            house._thread.join(patience(20))
        grow(log, house, EVERY)
    assert house._thread is not None
    house._thread.join(patience(20))


def blocks(log: Log) -> int:
    log.refresh()
    return sum(1 for p in range(2) for _ in log.blocks(p))


def test_small_blocks_become_large_ones_by_themselves(log: Log, keep_house: Callable[..., Housekeeping]) -> None:
    house = keep_house()
    grow(log, house, 4 * EVERY)
    settle(log, house)
    assert blocks(log) < 4 * EVERY < 2 * log.state.ends[0]
    assert [offset for offset, _ in read_items(log, 0)] == list(range(log.state.ends[0]))
    done = house.report["housekeeping"]
    assert done["blocks_before"] > done["blocks_after"] > 0
    assert done["tuples"] > 0


def test_it_can_be_switched_off(log: Log, keep_house: Callable[..., Housekeeping]) -> None:
    house = keep_house(compaction="off")
    grow(log, house, 4 * EVERY)
    house.stop()
    assert blocks(log) == 8 * EVERY
    assert house.report == {}
    with pytest.raises(OptionError, match="compaction='sometimes'"):
        keep_house(compaction="sometimes")


def test_batches_do_not_wait_for_it_and_it_stops_with_them(
    log: Log, keep_house: Callable[..., Housekeeping], monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go_on = threading.Event(), threading.Event()
    steps: list[int] = []
    step = levels.Levels.step

    def slow_step(self: Any) -> Any:
        steps.append(1)
        entered.set()
        go_on.wait(patience(20))
        return step(self)

    monkeypatch.setattr(levels.Levels, "step", slow_step)
    house = keep_house()
    grow(log, house, EVERY)
    assert entered.wait(patience(20))
    grow(log, house, 3 * EVERY)
    assert steps == [1], "one at a time"
    assert blocks(log) == 8 * EVERY
    threading.Timer(0.2, go_on.set).start()
    house.stop()
    assert blocks(log) < 8 * EVERY, "the piece that it was at is done"
    assert len(steps) == 1
    grow(log, house, EVERY)
    assert len(steps) == 1, "and no other begins"


@pytest.mark.parametrize("problem", [StorageError("the disk is gone"), ZeroDivisionError("a defect")])
def test_what_goes_wrong_stops_nothing_and_is_seen(
    problem: Exception, log: Log, keep_house: Callable[..., Housekeeping], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Any) -> None:
        raise problem

    house = keep_house()
    with monkeypatch.context() as patch:
        patch.setattr(levels.Levels, "step", fail)
        grow(log, house, EVERY)
        wait_until(lambda: "failure" in house.report.get("housekeeping", {}))
    assert str(problem) in house.report["housekeeping"]["failure"]
    settle(log, house)
    assert blocks(log) < 4 * EVERY < 2 * log.state.ends[0]
    assert "failure" not in house.report["housekeeping"]


def test_dead_files_are_deleted_beside_the_batches(
    log: Log, keep_house: Callable[..., Housekeeping], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "_COLLECT_EVERY", 2 * EVERY)
    monkeypatch.setattr(housekeeping, "GRACE_US", 200_000)
    house = keep_house()
    for _ in range(8):
        grow(log, house, EVERY)
        SYSTEM_CLOCK.sleep(0.3)
    settle(log, house)
    assert house.report["housekeeping"]["files_deleted"] > 0
    live = blocks(log)
    assert live < 4 * EVERY
    assert len(list(log.storage.list("blocks"))) < log.state.ends[0], "fewer files than there were batches"
    assert len(read_items(log, 1)) == 10 * EVERY


def test_commits_do_not_pile_up(
    log: Log, keep_house: Callable[..., Housekeeping], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = partial(dropping.drop_commits, keep_commits=EVERY, keep_us=0, every=2 * EVERY)
    monkeypatch.setattr(dropping, "drop_commits", few)
    monkeypatch.setattr(housekeeping, "_COLLECT_EVERY", 2 * EVERY)
    house = keep_house(compaction="off")
    for _ in range(12):
        grow(log, house, EVERY)
        wait_until(lambda: house._thread is None or not house._thread.is_alive())
    commits = len(list(log.storage.list("commits")))
    assert commits < 5 * EVERY < log.state.seq
    assert house.report["housekeeping"]["commits_dropped"] > 5 * EVERY
    assert len(read_items(log, 1)) == 12 * EVERY


def test_a_lost_block_stops_nothing_else_and_is_named(
    log: Log, keep_house: Callable[..., Housekeeping], monkeypatch: pytest.MonkeyPatch
) -> None:
    collected = called(monkeypatch, dropping, "drop_commits")
    monkeypatch.setattr(housekeeping, "_COLLECT_EVERY", EVERY)
    house = keep_house()
    grow(log, house, EVERY - 1)
    lost = next(log.blocks(0))
    log.storage.delete(lost.file)
    grow(log, house, 1)
    wait_until(lambda: house._thread is not None and not house._thread.is_alive())
    assert lost.file in house.report["housekeeping"]["failure"]
    assert collected
    assert blocks(log) == EVERY + 1, "the other partition's are joined"
    settle(log, house)
    assert "failure" not in house.report["housekeeping"], "only of the last try"


def test_compaction_without_end_leaves_room_for_collection(
    log: Log, keep_house: Callable[..., Housekeeping], monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(self: Any) -> Compacted:
        SYSTEM_CLOCK.sleep(0.001)
        return Compacted(8, 1, 8, 8, 8)

    monkeypatch.setattr(levels.Levels, "step", endless)
    monkeypatch.setattr(housekeeping, "_COLLECT_EVERY", 2 * EVERY)
    collected = called(monkeypatch, retention, "collect")
    house = keep_house()
    grow(log, house, EVERY)
    assert not collected
    grow(log, house, EVERY)
    wait_until(lambda: len(collected) == 1)
    grow(log, house, 2 * EVERY)
    wait_until(lambda: len(collected) == 2)


def test_one_that_stood_still_for_too_long_says_so_and_starts_anew(
    log: Log, keep_house: Callable[..., Housekeeping], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Any) -> None:
        raise DroppedError("commits were dropped", where="here")

    house = keep_house()
    with monkeypatch.context() as patch:
        patch.setattr(levels.Levels, "step", fail)
        grow(log, house, EVERY)
        wait_until(lambda: house._thread is not None and not house._thread.is_alive())
    assert house.report["housekeeping"]["failure"] == "commits were dropped (here)"
    opened = called(monkeypatch, Place, "open")
    settle(log, house)
    assert len(opened) == 1
    assert "failure" not in house.report["housekeeping"]


def called(monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> list[int]:
    """Grows with every call of a function."""
    calls: list[int] = []
    real = getattr(where, name)

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return real(*args, **kwargs)

    monkeypatch.setattr(where, name, counted)
    return calls


@pytest.mark.parametrize("problem", [CorruptionError("rotten", where="a file"), StorageError("the disk is gone")])
def test_a_retention_that_fails_stops_no_batch_and_is_seen(
    problem: StrandlineError, log: Log, keep_house: Callable[..., Housekeeping], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise problem

    house = keep_house(keep=5, compaction="off")
    with monkeypatch.context() as patch:
        patch.setattr(retention, "apply_retention", fail)
        grow(log, house, EVERY)
    assert problem.what in house.report["housekeeping"]["failure"]
    assert problem.where in house.report["housekeeping"]["failure"]
    grow(log, house, EVERY)
    assert house.report == {}


def test_retention_is_applied_between_batches(log: Log, keep_house: Callable[..., Housekeeping]) -> None:
    house = keep_house(keep=5, compaction="off")
    grow(log, house, EVERY)
    assert log.state.starts[0] >= EVERY - 7
    assert retention.truncate(log, before_time=0) == log.state.starts
