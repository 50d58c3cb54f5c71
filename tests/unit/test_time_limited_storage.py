"""A store that neither answers nor fails: who asks through a time limit is told so, and nobody waits twice."""

import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from strandline.clock import SYSTEM_CLOCK
from strandline.errors import KeyExistsError, KeyMissingError, StorageError
from strandline.log.storage import time_limited_storage, timely_calls
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.storage.time_limited_storage import TimeLimitedStorage
from strandline.log.storage.timely_calls import SilentError, TimelyCalls
from strandline.testing import MemoryStorage
from tests.support.hanging_storage import HangingStorage, heard
from tests.support.machine import patience

SOON_S = 0.02
"""For calls that are not answered."""
LONG_S = 60.0
"""For calls that are, however busy the machine is."""


def threads() -> int:
    return sum(thread.name == "strandline-store" and thread.is_alive() for thread in threading.enumerate())


def silenced(inner: HangingStorage) -> TimeLimitedStorage:
    """The store behind a limit, after a call that was not answered, and is not yet."""
    inner.put("a", b"1")
    inner.hang()
    with pytest.raises(StorageError):
        TimeLimitedStorage(inner, SOON_S).read("a")
    assert inner.waiting.acquire(timeout=LONG_S)
    return TimeLimitedStorage(inner, LONG_S)


CALLS: dict[str, Callable[[Any], object]] = {
    "create": lambda s: s.create("b", b"2"),
    "write": lambda s: s.put("b", b"2"),
    "read": lambda s: s.read("a"),
    "look for": lambda s: s.exists("a"),
    "list": lambda s: [*s.list("")],
    "delete": lambda s: s.delete("a"),
    "settle": lambda s: s.settle("commits"),
}


@pytest.mark.parametrize("verb", CALLS)
def test_a_call_that_is_not_answered_says_what_where_and_what_to_do(verb: str) -> None:
    inner = HangingStorage()
    inner.put("a", b"1")
    inner.hang()
    with pytest.raises(StorageError, match=f"could not {verb} a key: the store has not answered for 0.") as caught:
        CALLS[verb](TimeLimitedStorage(inner, SOON_S))
    assert caught.value.where.startswith(f"{inner.url}/"), "by which it is told whose store it is"
    assert "longer bound" in caught.value.todo
    inner.go_on()


def test_while_a_call_hangs_others_fail_at_once_and_need_no_thread() -> None:
    inner = HangingStorage()
    storage = silenced(inner)
    running, asked = threads(), len(inner.asked)
    for _ in range(20):
        for call in CALLS.values():
            with pytest.raises(StorageError, match="has not answered for"):
                call(storage)
    assert len(inner.asked) == asked, "nobody has asked it meanwhile"
    assert threads() == running
    inner.go_on()


def test_a_store_whose_call_comes_back_is_asked_again_and_the_answer_that_came_late_is_dropped() -> None:
    inner = HangingStorage()
    storage = silenced(inner)
    MemoryStorage.put(inner, "a", b"2")
    inner.go_on()
    heard(storage)
    assert storage.read("a") == b"2"
    assert inner.asked.count("read_range") == 2


def test_whoever_opens_the_same_store_knows_that_it_hangs_and_other_stores_do_not_care() -> None:
    inner, other = HangingStorage(), HangingStorage()
    silenced(inner)
    with pytest.raises(StorageError, match="has not answered"):
        TimeLimitedStorage(inner, LONG_S).exists("a")
    assert not TimeLimitedStorage(other, LONG_S).exists("a")
    inner.go_on()


def test_a_write_that_was_not_answered_may_be_done_later() -> None:
    inner = HangingStorage()
    inner.hang()
    with pytest.raises(StorageError):
        TimeLimitedStorage(inner, SOON_S).create("a", b"1")
    inner.go_on()
    storage = TimeLimitedStorage(inner, LONG_S)
    heard(storage)
    with pytest.raises(KeyExistsError):
        storage.create("a", b"2")
    assert storage.read("a") == b"1"


def test_what_a_store_says_is_said_and_a_refusal_is_no_silence() -> None:
    storage = TimeLimitedStorage(HangingStorage(), LONG_S)
    storage.create("a", b"1")
    for _ in range(2):
        with pytest.raises(KeyExistsError):
            storage.create("a", b"1")
        with pytest.raises(KeyMissingError):
            storage.read("b")


class Asked:
    """Calls on something that answers when it is told to, and a clock that is moved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(timely_calls, "stopwatch_s", lambda: self.now_s)
        self.probes: list[threading.Event] = []
        self.probed = threading.Semaphore(0)
        self.problem: Exception | None = None
        self.calls = TimelyCalls(self._probe)

    def _probe(self) -> None:
        goes_on = threading.Event()
        self.probes.append(goes_on)
        self.probed.release()
        assert goes_on.wait(patience(60))
        if self.problem is not None:
            raise self.problem

    def is_silent(self) -> bool:
        try:
            return self.calls.ask(lambda: False, 10.0)
        except SilentError:
            return True

    def probing(self, number: int) -> threading.Event:
        """The one that the store was asked by, beside whoever calls: the first is 1."""
        assert self.is_silent()
        assert self.probed.acquire(timeout=LONG_S)
        assert len(self.probes) == number + 1
        return self.probes[number]

    def come_back(self, goes_on: threading.Event, problem: Exception | None = None) -> None:
        """Lets go of a call, and returns when that is noted."""
        waiting = len(self.calls._late)
        self.problem = problem
        goes_on.set()
        while len(self.calls._late) == waiting:
            SYSTEM_CLOCK.sleep(0.001)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """After a call that is without an answer."""
    made = Asked(monkeypatch)
    with pytest.raises(SilentError):
        made.calls.ask(made._probe, SOON_S)
    assert made.probed.acquire(timeout=LONG_S)
    return made


def test_a_store_that_comes_back_is_asked_for_something_small_first_and_nobody_waits_for_that(asked: Asked) -> None:
    asked.come_back(asked.probes[0])
    probe = asked.probing(1)
    for _ in range(3):
        assert asked.is_silent()
    assert len(asked.probes) == 2, "one at a time"
    asked.come_back(probe)
    assert not asked.is_silent()


def test_a_store_that_is_slower_than_the_limit_stays_silent_and_holds_up_nobody(asked: Asked) -> None:
    asked.come_back(asked.probes[0])
    for number in range(1, 4):
        probe = asked.probing(number)
        asked.now_s += 10.0
        asked.come_back(probe)
        assert asked.is_silent()
        asked.now_s += timely_calls.AGAIN_S
    asked.come_back(asked.probing(4))
    assert not asked.is_silent()


def test_a_client_that_has_given_up_is_asked_again_after_a_while(asked: Asked) -> None:
    asked.now_s += 30.0
    asked.come_back(asked.probes[0], StorageError("timed out"))
    assert asked.is_silent()
    assert len(asked.probes) == 1, "not in the same moment"
    asked.now_s += timely_calls.AGAIN_S
    probe = asked.probing(1)
    asked.come_back(probe)
    assert not asked.is_silent()


def test_a_store_that_refuses_at_once_is_no_longer_silent(asked: Asked) -> None:
    """Callers are told by the store itself what is wrong: a mount that hung is gone now."""
    asked.come_back(asked.probes[0])
    asked.come_back(asked.probing(1), StorageError("stale file handle"))
    assert not asked.is_silent()


def test_a_call_that_never_comes_back_does_not_keep_the_store_silent_for_ever(asked: Asked) -> None:
    asked.now_s += timely_calls.GIVEN_UP_S
    asked.probing(1)
    asked.now_s += timely_calls.GIVEN_UP_S
    assert asked.is_silent()
    assert len(asked.probes) == 2, "each lost thread makes the next one wait for twice as long"
    asked.now_s += timely_calls.GIVEN_UP_S
    asked.come_back(asked.probing(2))
    assert not asked.is_silent()
    for lost in asked.probes:
        lost.set()


def test_a_thread_is_used_again() -> None:
    storage = TimeLimitedStorage(MemoryStorage(), LONG_S)
    storage.exists("a")
    running = threads()
    for _ in range(100):
        storage.exists("a")
    assert threads() == running


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 19, 20, 29, 30, 31, 69, 70, 71, 500])
def test_a_value_is_the_same_in_pieces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int) -> None:
    monkeypatch.setattr(time_limited_storage, "PIECE_BYTES", 10)
    monkeypatch.setattr(time_limited_storage, "PIECE_BYTES_MAX", 80)
    inner = LocalStorage(tmp_path)
    data = Random(size).randbytes(size)
    inner.put("blocks/a", data)
    storage = TimeLimitedStorage(inner, LONG_S)
    assert storage.read("blocks/a") == data
    assert storage.read_range("blocks/a", 0, size) == data
    assert storage.read_range("blocks/a", size // 3, size) == data[size // 3 :]
    assert storage.read_range("blocks/a", 0, size + 7) == data, "who wants more than there is gets what there is"


class Slow(MemoryStorage):
    """A store that gives so many bytes a second, of a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.url = f"memory:{uuid.uuid4().hex}"
        self.rate = 1.0
        self.sizes: list[int] = []
        self._now_s = 0.0
        monkeypatch.setattr(time_limited_storage, "PIECE_BYTES", 10)
        monkeypatch.setattr(time_limited_storage, "stopwatch_s", lambda: self._now_s)

    def read_range(self, key: str, begin: int, end: int) -> bytes:
        found = super().read_range(key, begin, end)
        self._now_s += len(found) / self.rate
        self.sizes.append(len(found))
        return found

    def sizes_of(self, storage: TimeLimitedStorage, key: str) -> list[int]:
        """What was asked for, to read a value."""
        self.sizes = []
        assert len(storage.read_range(key, 0, 1_000)) == 1_000
        return self.sizes


def test_a_slow_store_has_all_the_time_for_each_piece_and_a_fast_one_is_asked_for_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner = Slow(monkeypatch)
    inner.put("a", bytes(1_000))
    storage = TimeLimitedStorage(inner, LONG_S)
    inner.rate = 10 / (0.6 * LONG_S)  # more than half of the limit for each: an hour in all
    assert inner.sizes_of(storage, "a") == [10] * 100
    inner.rate = 1e9
    assert inner.sizes_of(storage, "a") == [10, 20, 40, 80, 160, 320, 370]
    storage.exists("a")
    assert inner.sizes_of(storage, "a") == [640, 360], "it is known to be fast"
    assert inner.sizes_of(TimeLimitedStorage(inner, LONG_S), "a") == [1_000], "whoever asks"
    inner.rate = 640 / (0.6 * LONG_S)
    assert inner.sizes_of(storage, "a") == [1_000]
    assert inner.sizes_of(storage, "a") == [640, 320, 40], "and that it is no longer"


def test_a_store_that_was_silent_is_asked_for_little_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limited_storage, "PIECE_BYTES", 2)
    inner = HangingStorage()
    inner.put("b", bytes(100))
    assert TimeLimitedStorage(inner, LONG_S).read("b") == bytes(100)
    asked = inner.asked.count("read_range")
    storage = silenced(inner)
    inner.go_on()
    heard(storage)
    assert storage.read("b") == bytes(100)
    assert inner.asked.count("read_range") == 2 * asked + 1
