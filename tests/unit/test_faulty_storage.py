"""The faults themselves: a test that injects them can only be as good as they are."""

from random import Random

import pytest

from strandline.clock import ManualClock
from strandline.errors import KeyExistsError, NoSpaceError, OptionError, StorageError
from strandline.log.storage.storage import Storage
from strandline.testing import NO_FAULTS, Crash, FaultPlan, FaultyStorage, MemoryStorage


def faulty(plan: FaultPlan = NO_FAULTS, seed: int = 1, clock: ManualClock | None = None) -> FaultyStorage:
    return FaultyStorage(MemoryStorage(), Random(seed), plan, clock)


def keys_of(storage: Storage, prefix: str = "") -> list[str]:
    return [listed.key for listed in storage.list(prefix)]


def write_three(storage: Storage) -> None:
    storage.create("a", b"1")
    storage.put("b", b"2")
    storage.delete("a")


STATES = [[], ["a"], ["a", "b"], ["b"]]


@pytest.mark.parametrize("after", [False, True])
def test_a_process_can_be_killed_at_every_call_in_turn(after: bool) -> None:
    storage = faulty()
    write_three(storage)
    assert storage.calls == 3
    for call in range(1, storage.calls + 1):
        storage = faulty(FaultPlan(crash_at_call=call, crash_after=after))
        with pytest.raises(Crash):
            write_three(storage)
        assert storage.calls == call
        assert keys_of(storage.other_process()) == STATES[call if after else call - 1]


def test_every_call_can_be_the_last_one() -> None:
    calls = [
        lambda storage: storage.create("x", b""),
        lambda storage: storage.put("x", b""),
        lambda storage: storage.read("a"),
        lambda storage: storage.exists("a"),
        lambda storage: storage.list(""),
        lambda storage: storage.delete("a"),
        lambda storage: storage.settle(""),
    ]
    for call in calls:
        storage = faulty(FaultPlan(crash_at_call=1))
        with pytest.raises(Crash):
            call(storage)
        assert storage.crashed


def test_a_dead_process_does_nothing_more_not_even_in_its_finally() -> None:
    storage = faulty(FaultPlan(crash_at_call=1))

    def write_and_clean_up() -> None:
        try:
            storage.create("a", b"")
        finally:
            storage.create("b", b"")

    with pytest.raises(Crash):
        write_and_clean_up()
    with pytest.raises(Crash):
        storage.exists("a")
    assert storage.calls == 1
    assert keys_of(storage.other_process()) == []


def test_a_crash_is_not_caught_by_code_that_catches_errors() -> None:
    assert not issubclass(Crash, Exception)


def test_a_random_crash_leaves_all_of_a_write_or_none_of_it() -> None:
    left = set()
    for seed in range(50):
        storage = faulty(FaultPlan(crash=1.0), seed)
        with pytest.raises(Crash):
            storage.create("a", b"value")
        left.add(storage.other_process().read("a") if storage.other_process().exists("a") else None)
    assert left == {None, b"value"}


def test_a_crash_may_tear_only_what_others_write() -> None:
    left = set()
    for seed in range(200):
        storage = faulty(FaultPlan(crash=1.0, may_tear=lambda key: key.startswith("spark/")), seed)
        with pytest.raises(Crash):
            storage.put("spark/part", b"val")
        left.add(storage.other_process().read("spark/part") if storage.other_process().exists("spark/part") else None)
    assert left == {None, b"", b"v", b"va", b"val"}


def test_a_full_store_refuses_writes_only() -> None:
    storage = faulty(FaultPlan(no_space=1.0))
    for write in (storage.create, storage.put):
        with pytest.raises(NoSpaceError):
            write("a", b"")
    storage.delete("a")
    assert not storage.exists("a")
    assert keys_of(storage) == []


def test_a_transient_error_did_nothing() -> None:
    storage = faulty(FaultPlan(transient=1.0))
    with pytest.raises(StorageError, match="transient"):
        storage.create("a", b"")
    assert keys_of(storage.other_process()) == []


def test_an_ambiguous_error_did_it_or_was_refused() -> None:
    storage = faulty(FaultPlan(ambiguous=1.0))
    with pytest.raises(StorageError, match="ambiguous") as caught:
        storage.create("a", b"mine")
    assert not isinstance(caught.value, KeyExistsError)
    with pytest.raises(StorageError, match="ambiguous"):
        storage.create("a", b"theirs")
    assert storage.read("a") == b"mine"
    with pytest.raises(StorageError, match="ambiguous"):
        storage.delete("a")
    assert not storage.exists("a")


def test_a_repeated_create_finds_its_own_key_and_other_calls_do_not_care() -> None:
    storage = faulty(FaultPlan(repeated=1.0))
    with pytest.raises(KeyExistsError):
        storage.create("a", b"mine")
    assert storage.read("a") == b"mine"
    storage.put("a", b"ours")
    assert storage.read("a") == b"ours"
    storage.delete("a")
    assert not storage.exists("a")


def test_a_bit_flips_on_read_and_not_at_rest() -> None:
    storage = faulty(FaultPlan(flip_on_read=1.0))
    storage.create("a", bytes(10))
    storage.create("empty", b"")
    damaged = storage.read("a")
    assert sum(byte.bit_count() for byte in damaged) == 1
    assert storage.other_process().read("a") == bytes(10)
    assert storage.read("empty") == b""


def test_a_bit_flips_at_rest_and_stays_so() -> None:
    storage = faulty(FaultPlan(flip_at_rest=1.0))
    storage.put("a", bytes(10))
    damaged = storage.other_process().read("a")
    assert sum(byte.bit_count() for byte in damaged) == 1
    assert storage.other_process().read("a") == damaged


def test_a_value_is_damaged_by_hand() -> None:
    storage = faulty()
    storage.create("a", b"\0\0\0\0")
    storage.flip_bit("a", 9)
    assert storage.read("a") == b"\0\2\0\0"
    storage.tear("a", 2)
    assert storage.read("a") == b"\0\2"
    assert storage.calls == 3


def test_a_slow_call_moves_the_clock_before_it_takes_effect() -> None:
    clock = ManualClock()
    storage = FaultyStorage(MemoryStorage(clock), Random(1), FaultPlan(slow=1.0, slow_s=30.0), clock)
    storage.create("a", b"")
    assert clock.now_us() == 30_000_000
    [listed] = storage.list("")
    assert listed.modified_us == 30_000_000
    with pytest.raises(OptionError, match="clock"):
        faulty(FaultPlan(slow=0.5))


def test_a_new_key_is_listed_late_but_read_at_once() -> None:
    storage = faulty(FaultPlan(list_delay_calls=3))
    storage.create("a/b", b"value")
    assert storage.read("a/b") == b"value"
    assert storage.exists("a/b")
    assert keys_of(storage) == []
    assert keys_of(storage.other_process(), "a") == ["a/b"]


def test_a_deleted_key_is_listed_for_a_while() -> None:
    storage = faulty()
    for key in ("a/b", "c"):
        storage.create(key, b"value")
    storage = storage.other_process(FaultPlan(list_delay_calls=2))
    storage.delete("a/b")
    assert not storage.exists("a/b")
    [lingering] = storage.list("a")
    assert (lingering.key, lingering.size_bytes) == ("a/b", 5)
    assert keys_of(storage) == ["c"]


def test_a_key_that_is_written_again_is_listed_once() -> None:
    storage = faulty(FaultPlan(list_delay_calls=1))
    storage.create("a", b"1")
    storage.delete("a")
    storage.create("a", b"22")
    storage.exists("a")
    assert [listed.size_bytes for listed in storage.list("")] == [2]


def cut_off(settle: str | None, seed: int) -> FaultyStorage:
    storage = faulty(seed=seed)
    storage.put("commits/1", b"old")
    victim = storage.other_process(FaultPlan(crash_at_call=1, crash_after=True))
    with pytest.raises(Crash):
        victim.put("commits/1", b"new")
    assert storage.read("commits/1") == b"new"
    if settle is not None:
        storage.settle(settle)
    storage.power_loss()
    return storage


def test_what_a_crash_cut_off_may_be_gone_after_a_power_loss_unless_it_was_settled() -> None:
    assert {cut_off(None, seed).read("commits/1") for seed in range(20)} == {b"old", b"new"}
    assert {cut_off("blocks", seed).read("commits/1") for seed in range(20)} == {b"old", b"new"}
    assert {cut_off("commits", seed).read("commits/1") for seed in range(20)} == {b"new"}


def test_a_power_loss_takes_nothing_whose_call_returned() -> None:
    for seed in range(20):
        storage = faulty(seed=seed)
        write_three(storage)
        storage.power_loss()
        assert keys_of(storage) == ["b"]


def test_a_completed_write_settles_its_folder() -> None:
    for seed in range(20):
        storage = faulty(seed=seed)
        victim = storage.other_process(FaultPlan(crash_at_call=1, crash_after=True))
        with pytest.raises(Crash):
            victim.create("commits/1", b"")
        storage.create("commits/2", b"")
        storage.power_loss()
        assert keys_of(storage) == ["commits/1", "commits/2"]


def run(seed: int) -> list[str]:
    """What happens to a hundred calls."""
    plan = FaultPlan(crash=0.02, transient=0.1, ambiguous=0.1, no_space=0.1, flip_at_rest=0.1, flip_on_read=0.2)
    storage = faulty(plan, seed)
    happened = []
    for number in range(100):
        try:
            storage.create(f"k{number % 30}", bytes(8))
            happened.append(storage.read(f"k{number % 30}").hex())
        except StorageError as error:
            happened.append(error.what)
        except Crash as crash:
            happened.append(str(crash))
            storage = storage.other_process(plan)
    return happened


def test_one_seed_reproduces_a_run_and_another_one_differs() -> None:
    assert run(7) == run(7)
    assert len({tuple(run(seed)) for seed in range(20)}) == 20


@pytest.mark.parametrize("plan", [FaultPlan(crash=1.5), FaultPlan(crash=0.6, transient=0.6), FaultPlan(no_space=-0.1)])
def test_probabilities_that_cannot_be_are_refused(plan: FaultPlan) -> None:
    with pytest.raises(OptionError):
        faulty(plan)
