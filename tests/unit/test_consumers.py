"""A registered consumer can rely on what it needs, whoever truncates at the same time."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import strandline as sl
from strandline.clock import ManualClock
from strandline.errors import ConsumerError, OptionError, TruncatedError
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.log.upkeep import consumer_registry
from strandline.log.upkeep.consumer_registry import Consumer, register, unregister
from strandline.log.upkeep.retention import truncate
from strandline.testing import MemoryStorage
from tests.support.items import append_items, item_spec
from tests.support.plain_codec import plain_codec


@pytest.fixture(autouse=True)
def _plain_codec() -> Iterator[None]:
    with plain_codec():
        yield


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(5)


@pytest.fixture
def storage(clock: ManualClock) -> MemoryStorage:
    return MemoryStorage(clock)


@pytest.fixture
def log(storage: MemoryStorage, clock: ManualClock) -> Log:
    log = Log.create(storage, item_spec(), clock)
    for i in range(4):
        append_items(log, {p: [(p, i, i)] for p in range(2)}, f"batch{i}")
    return log


def known(log: Log) -> dict[str, tuple[int, ...]]:
    return {c.name: c.needs for c in consumer_registry.consumers(log)}


def test_a_consumer_is_known_to_everybody(log: Log, storage: MemoryStorage) -> None:
    assert register(log, "billing", [1, 2]) == Consumer("billing", (1, 2), 5)
    assert list(consumer_registry.consumers(Log.open(storage))) == [Consumer("billing", (1, 2), 5)]


def test_reading_on_costs_no_commit(log: Log, storage: MemoryStorage, clock: ManualClock) -> None:
    register(log, "billing", [1, 1])
    seq = log.state.seq
    clock.advance(1)
    register(log, "billing", [2, 1])
    assert log.state.seq == seq
    assert list(consumer_registry.consumers(Log.open(storage))) == [Consumer("billing", (2, 1), 1_000_005)]


def test_a_consumer_may_go_back_to_what_is_still_there(log: Log, storage: MemoryStorage) -> None:
    register(log, "billing", [3, 3])
    register(log, "billing", [1, 3])
    assert known(Log.open(storage)) == {"billing": (1, 3)}
    truncate(log, before_offset=1)
    with pytest.raises(TruncatedError, match="offset 0 was dropped"):
        register(log, "billing", [0, 3])
    assert known(Log.open(storage)) == {"billing": (1, 3)}, "what was refused changes nothing"


def test_who_needs_what_is_gone_is_refused_and_hinders_nobody(log: Log) -> None:
    truncate(log, before_offset=2)
    with pytest.raises(TruncatedError, match="partition begins at 2"):
        register(log, "billing", [0, 0])
    assert known(log) == {}
    assert truncate(log, before_offset=3) == (3, 3, 0)


def test_the_stream_refuses_to_unregister_a_consumer_that_it_does_not_know(tmp_path: Path) -> None:
    Log.create(LocalStorage(tmp_path / "items"), item_spec())
    stream = sl.stream(str(tmp_path / "items"))
    with pytest.raises(OptionError, match="there is no consumer 'nix'") as refused:
        stream.unregister_consumer("nix")
    assert refused.value.todo == "nothing to do: no consumer is registered"
    stream.register_consumer("report")
    with pytest.raises(OptionError, match="there is no consumer 'nix'") as refused:
        stream.unregister_consumer("nix")
    assert refused.value.todo == "choose one of report"
    stream.unregister_consumer("report")


def test_unregistering_lets_go(log: Log, storage: MemoryStorage) -> None:
    register(log, "billing", [0, 0])
    unregister(log, "billing")
    unregister(log, "billing")
    unregister(log, "nobody")
    assert known(Log.open(storage)) == {}
    assert not storage.exists("consumers/billing.json")
    assert truncate(log, before_offset=4) == (4, 4, 0)


def test_the_word_of_an_earlier_registration_does_not_count(log: Log, storage: MemoryStorage) -> None:
    register(log, "billing", [0, 0])
    register(log, "billing", [4, 4])
    late_word = storage.read("consumers/billing.json")
    unregister(log, "billing")
    register(log, "billing", [1, 1])
    storage.put("consumers/billing.json", late_word)  # by a process that was thought dead
    assert known(log) == {"billing": (1, 1)}


@pytest.mark.parametrize("damage", [None, b"", b"rotten"])
def test_if_its_file_is_lost_the_registration_holds(log: Log, storage: MemoryStorage, damage: bytes | None) -> None:
    register(log, "billing", [1, 1])
    register(log, "billing", [2, 2])
    if damage is None:
        storage.delete("consumers/billing.json")
    else:
        storage.put("consumers/billing.json", damage)
    assert known(log) == {"billing": (1, 1)}


def test_a_truncation_under_way_sees_a_consumer_that_registers_meanwhile(
    log: Log, storage: MemoryStorage, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has looked for consumers and found none; at its very last step somebody registers."""
    reader = Log.open(storage, clock)
    create = storage.create

    def slow_create(key: str, data: bytes) -> None:
        if b'"truncate"' in data and not reader.state.consumers:
            register(reader, "billing", [0, 0])
        create(key, data)

    monkeypatch.setattr(storage, "create", slow_create)
    with pytest.raises(ConsumerError, match="'billing' still needs partition 0 from offset 0"):
        truncate(log, before_offset=3)
    assert Log.open(storage).state.starts == (0, 0, 0)


def test_consumers_are_not_looked_for_in_listings_which_may_lag(
    log: Log, storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(log, "billing", [0, 0])
    monkeypatch.setattr(storage, "list", lambda prefix: iter(()))
    with pytest.raises(ConsumerError, match="billing"):
        truncate(log, before_offset=3)


@pytest.mark.parametrize("name", ["", "..", "a/b", "../x", ".hidden", "x" * 101, "a b", "ä", "x\n"])
def test_a_name_that_could_not_be_a_file_is_refused(log: Log, name: str) -> None:
    with pytest.raises(OptionError, match="cannot name a consumer"):
        register(log, name, [0, 0])
    with pytest.raises(OptionError, match="cannot name a consumer"):
        unregister(log, name)


def test_a_consumer_needs_an_offset_for_every_partition(log: Log) -> None:
    with pytest.raises(OptionError, match="3 offsets for 2 partitions"):
        register(log, "billing", [0, 0, 0])
