"""A storage that fails as machines do, in an order that one seed decides.

The fault model. At every call, at most one of these happens:

    crash       the process dies before the call takes effect or after it did (`Crash`). From then on this
                object is a dead process: every call raises `Crash` and does nothing, `finally` blocks included
    transient   `StorageError`; nothing was done
    ambiguous   `StorageError`; it was done, or refused, and the answer was lost. Writes and deletes only
    repeated    the reply was lost, and the store's client sent the request again: a `create` finds its own key and
                raises `KeyExistsError`; for anything else the second time makes no difference. Writes and deletes only
    no space    `NoSpaceError`; nothing was done. Writes only
    bit flip    one bit is wrong: in what a read returns, or in what a write leaves at rest
    slow        the clock moves on before the call takes effect, so that leases run out and others act first

Beside these, for as long as the plan says so, listings lag: a new key shows up after some further calls, and
a deleted one lingers. `read`, `exists` and `create` are always up to date, as they are on every store we use.

Writes are atomic, which is what `Storage` promises: after a crash there is all of a value or none of it. Only
for keys that `may_tear` names, files that others write without such a promise, a crash may leave the first
part of a value. What a crash cut off may be visible and yet not durable: `power_loss` takes it away again
unless a process has called `settle`, or completed a write, in the same folder. `tear` and `flip_bit` damage
what is at rest by hand.

Several processes on one store are `other_process` of each other: they share keys, listings and the generator.
The model is meant for one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, Literal, TypeVar

from strandline.clock import ManualClock
from strandline.errors import KeyMissingError, NoSpaceError, OptionError, StorageError
from strandline.log.storage.storage import Listed, Storage
from strandline.log.storage.storage_key import checked_key, checked_prefix

_T = TypeVar("_T")

_Fault = Literal["crash", "transient", "ambiguous", "repeated", "no_space", "flip_on_read", "flip_at_rest", "slow"]

_DELETE_FAULTS: Final[tuple[_Fault, ...]] = ("crash", "transient", "ambiguous", "repeated", "slow")
_WRITE_FAULTS: Final[tuple[_Fault, ...]] = (*_DELETE_FAULTS, "no_space", "flip_at_rest")
_READ_FAULTS: Final[tuple[_Fault, ...]] = ("crash", "transient", "flip_on_read", "slow")
_OTHER_FAULTS: Final[tuple[_Fault, ...]] = ("crash", "transient", "slow")


class Crash(BaseException):
    """The simulated process has died; a `BaseException`, so that no code can carry on after it."""


def never(key: str) -> bool:
    """Returns False for every key."""
    return False


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """The faults: probabilities a call, and one call to crash at, counted from 1."""

    crash_at_call: int | None = None
    crash_after: bool = False
    crash: float = 0.0
    transient: float = 0.0
    ambiguous: float = 0.0
    repeated: float = 0.0
    no_space: float = 0.0
    flip_on_read: float = 0.0
    flip_at_rest: float = 0.0
    slow: float = 0.0
    slow_s: float = 60.0
    list_delay_calls: int = 0
    may_tear: Callable[[str], bool] = never

    def odds(self, faults: tuple[_Fault, ...]) -> tuple[tuple[float, _Fault], ...]:
        """Returns each fault with its upper bound, for a number drawn from [0, 1)."""
        bound = 0.0
        odds: list[tuple[float, _Fault]] = []
        for fault in faults:
            probability: float = getattr(self, fault)
            if probability < 0.0:
                raise OptionError(f"the probability of {fault} is {probability}", todo="use one from 0 to 1")
            if probability > 0.0:
                bound += probability
                odds.append((bound, fault))
        if bound > 1.0 + 1e-9:
            raise OptionError(
                f"the probabilities of {', '.join(faults)} add up to {bound}",
                todo="use probabilities that add up to at most 1",
            )
        return tuple(odds)


NO_FAULTS: Final = FaultPlan()


@dataclass(slots=True)
class _Medium:
    """The part of a store that all processes share."""

    inner: Storage
    rng: Random
    clock: ManualClock | None
    calls: int = 0
    unlisted_until: dict[str, int] = field(default_factory=dict)
    lingering_until: dict[str, tuple[Listed, int]] = field(default_factory=dict)
    # What a key held before a crash cut off the write or delete that changed it.
    unsettled: dict[str, bytes | None] = field(default_factory=dict)

    def value_of(self, key: str) -> bytes | None:
        try:
            return self.inner.read(key)
        except KeyMissingError:
            return None


class FaultyStorage:
    """The inner storage as a process sees it to which the faults of a plan happen.

    `calls` counts the calls of this process, so that a test can crash it at each one in turn.

    >>> from strandline.testing import MemoryStorage
    >>> storage = FaultyStorage(MemoryStorage(), Random(1), FaultPlan(crash_at_call=2))
    >>> storage.create("a", b"1")
    >>> storage.create("b", b"2")
    Traceback (most recent call last):
    strandline.testing.faulty_storage.Crash: before call 2
    >>> [listed.key for listed in storage.other_process().list("")]
    ['a']
    """

    def __init__(
        self, inner: Storage, rng: Random, plan: FaultPlan = NO_FAULTS, clock: ManualClock | None = None
    ) -> None:
        self._start(_Medium(inner, rng, clock), plan)

    def _start(self, medium: _Medium, plan: FaultPlan) -> None:
        if plan.slow > 0.0 and medium.clock is None:
            raise OptionError("slow calls need a clock to move", todo="pass the ManualClock of the test")
        self.url = medium.inner.url
        self.calls = 0
        self.crashed = False
        self._medium = medium
        self._plan = plan
        self._write_odds = plan.odds(_WRITE_FAULTS)
        self._delete_odds = plan.odds(_DELETE_FAULTS)
        self._read_odds = plan.odds(_READ_FAULTS)
        self._other_odds = plan.odds(_OTHER_FAULTS)

    def other_process(self, plan: FaultPlan = NO_FAULTS) -> FaultyStorage:
        """Returns the same store as another process sees it, such as the one that starts after a crash."""
        other = FaultyStorage.__new__(FaultyStorage)
        other._start(self._medium, plan)
        return other

    def create(self, key: str, data: bytes) -> None:
        self._write(checked_key(key), data, self._medium.inner.create)

    def put(self, key: str, data: bytes) -> None:
        self._write(checked_key(key), data, self._medium.inner.put)

    def read(self, key: str) -> bytes:
        return self._read(lambda: self._medium.inner.read(key))

    def read_range(self, key: str, begin: int, end: int) -> bytes:
        return self._read(lambda: self._medium.inner.read_range(key, begin, end))

    def _read(self, read: Callable[[], bytes]) -> bytes:
        fault = self._begin(self._read_odds)
        data = self._run(fault, read)
        return self._flipped(data) if fault == "flip_on_read" and data else data

    def exists(self, key: str) -> bool:
        return self._run(self._begin(self._other_odds), lambda: self._medium.inner.exists(key))

    def list(self, prefix: str) -> Iterator[Listed]:
        checked_prefix(prefix)
        return iter(self._run(self._begin(self._other_odds), lambda: self._listing(prefix)))

    def delete(self, key: str) -> None:
        checked_key(key)
        self._run(self._begin(self._delete_odds), lambda: self._effect_of_delete(key), key)

    def settle(self, prefix: str) -> None:
        self._run(self._begin(self._other_odds), lambda: self._effect_of_settle(prefix))

    def local_path(self, key: str) -> Path | None:
        return self._medium.inner.local_path(key)

    def tear(self, key: str, keep_bytes: int) -> None:
        """Cuts off what is stored under a key; no call, and no fault happens to it."""
        self._medium.inner.put(key, self._medium.inner.read(key)[:keep_bytes])

    def flip_bit(self, key: str, position: int) -> None:
        """Turns over one bit of what is stored under a key, counted from its start; no call."""
        self._medium.inner.put(key, flipped(self._medium.inner.read(key), position))

    def power_loss(self) -> None:
        """Takes back each write and delete that was cut off and not settled since, or not: the seed decides."""
        medium = self._medium
        for key, before in medium.unsettled.items():
            if medium.rng.random() < 0.5:
                if before is None:
                    medium.inner.delete(key)
                else:
                    medium.inner.put(key, before)
        medium.unsettled.clear()

    def _begin(self, odds: tuple[tuple[float, _Fault], ...]) -> _Fault | None:
        if self.crashed:
            raise Crash("this process is dead")
        self.calls += 1
        self._medium.calls += 1
        if odds:
            drawn = self._medium.rng.random()
            for bound, fault in odds:
                if drawn < bound:
                    return fault
        return None

    def _run(self, fault: _Fault | None, effect: Callable[[], _T], changed_key: str | None = None) -> _T:
        if self.calls == self._plan.crash_at_call:
            self._die(effect if self._plan.crash_after else None, changed_key)
        if fault is None or fault == "flip_on_read" or fault == "flip_at_rest":
            return effect()
        if fault == "crash":
            self._die(effect if self._medium.rng.random() < 0.5 else None, changed_key)
        if fault == "no_space":
            raise NoSpaceError("no space left", where=changed_key or "", todo="an injected fault")
        if fault == "slow" and self._medium.clock is not None:
            self._medium.clock.advance(self._plan.slow_s)
            return effect()
        if fault == "repeated":
            effect()
            return effect()
        if fault == "ambiguous":
            with suppress(StorageError):
                effect()
        raise StorageError(f"{fault} failure", where=changed_key or "", todo="an injected fault")

    def _die(self, effect: Callable[[], object] | None, changed_key: str | None) -> None:
        self.crashed = True
        if effect is None:
            raise Crash(f"before call {self.calls}")
        medium = self._medium
        before = None if changed_key is None else medium.value_of(changed_key)
        unsettled = dict(medium.unsettled)
        with suppress(StorageError):
            effect()
            if changed_key is not None:
                # It died before it could sync the folder, so that earlier cuts are no more durable than this one.
                medium.unsettled = {changed_key: before, **unsettled}
        raise Crash(f"after call {self.calls}")

    def _write(self, key: str, data: bytes, write: Callable[[str, bytes], None]) -> None:
        fault = self._begin(self._write_odds)
        if fault == "flip_at_rest" and data:
            data = self._flipped(data)
        elif fault == "crash" and self._plan.may_tear(key):
            data = data[: self._medium.rng.randint(0, len(data))]
        self._run(fault, lambda: self._effect_of_write(key, data, write), key)

    def _effect_of_write(self, key: str, data: bytes, write: Callable[[str, bytes], None]) -> None:
        medium = self._medium
        is_new = self._plan.list_delay_calls > 0 and not medium.inner.exists(key)
        write(key, data)
        medium.lingering_until.pop(key, None)
        if is_new:
            medium.unlisted_until[key] = medium.calls + self._plan.list_delay_calls
        self._settled(key.rpartition("/")[0])

    def _effect_of_delete(self, key: str) -> None:
        medium = self._medium
        if self._plan.list_delay_calls > 0:
            for listed in medium.inner.list(key.rpartition("/")[0]):
                if listed.key == key:
                    medium.lingering_until[key] = listed, medium.calls + self._plan.list_delay_calls
        medium.inner.delete(key)
        medium.unlisted_until.pop(key, None)
        self._settled(key.rpartition("/")[0])

    def _effect_of_settle(self, prefix: str) -> None:
        self._medium.inner.settle(prefix)
        self._settled(prefix)

    def _settled(self, folder: str) -> None:
        for key in [key for key in self._medium.unsettled if key.rpartition("/")[0] == folder]:
            del self._medium.unsettled[key]

    def _listing(self, prefix: str) -> Sequence[Listed]:
        medium = self._medium
        found = [*medium.inner.list(prefix)]
        if not medium.unlisted_until and not medium.lingering_until:
            return found
        for key in [key for key, until in medium.unlisted_until.items() if until < medium.calls]:
            del medium.unlisted_until[key]
        for key in [key for key, (_, until) in medium.lingering_until.items() if until < medium.calls]:
            del medium.lingering_until[key]
        below = prefix + "/" if prefix else ""
        found = [listed for listed in found if listed.key not in medium.unlisted_until]
        found += [listed for key, (listed, _) in medium.lingering_until.items() if key.startswith(below)]
        return sorted(found, key=lambda listed: listed.key)

    def _flipped(self, data: bytes) -> bytes:
        return flipped(data, self._medium.rng.randrange(len(data) * 8))


def flipped(data: bytes, position: int) -> bytes:
    """Returns the bytes with one bit flipped, counted from the start."""
    changed = bytearray(data)
    changed[position // 8] ^= 1 << (position % 8)
    return bytes(changed)
