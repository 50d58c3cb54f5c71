"""Inputs that stay away and come back: their writers die and catch up, or their storage cannot be reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal

from strandline.errors import StorageError
from strandline.log.storage.storage import Storage
from strandline.log.stream import quiet
from strandline.log.stream.log import Log
from strandline.log.stream.spec import StreamSpec
from tests.simulation.machines import Folder
from tests.simulation.simulated_operators import Placed, SimulatedOperator
from tests.support.operator_streams import Row, Tuples, append_rows

Failure = Literal["dead", "unreachable"]
UNREACHABLE = "an input that cannot be reached"


class Network:
    """Which inputs can be reached."""

    def __init__(self) -> None:
        self.cut_off: set[str] = set()


class ReachableFolder(Folder):
    """An input as the operator's process has it: every read fails while it cannot be reached."""

    def __init__(self, inner: Storage, folder: str, network: Network) -> None:
        super().__init__(inner, folder)
        self._name = folder
        self._network = network

    def _check(self) -> None:
        if self._name in self._network.cut_off:
            raise StorageError(UNREACHABLE, stream=self.url)

    def read(self, key: str) -> bytes:
        self._check()
        return super().read(key)

    def read_range(self, key: str, begin: int, end: int) -> bytes:
        self._check()
        return super().read_range(key, begin, end)

    def exists(self, key: str) -> bool:
        self._check()
        return super().exists(key)


@dataclass
class _Feed:
    """One input."""

    tuples: Tuples
    rows: list[list[Row]]
    """Of each partition, by offset, what was appended."""
    waiting: list[tuple[dict[int, list[Row]], int]] = field(default_factory=list)
    """What a dead writer has to catch up with: tuples and boundaries."""
    failure: Failure | None = None
    healed_at: int = 0
    back_since: int = 0
    a_tick: int = 0
    """So many of the commits that wait come in a tick, when it is back; 0: all at once."""


class FailingInputs:
    """Several streams that grow with the clock, as far as they do not fail."""

    def __init__(
        self,
        rng: Random,
        operator: SimulatedOperator,
        partitions: int,
        create: Callable[[StreamSpec], Log],
        longest: int | None,
        like: FailingInputs | None = None,
        name: str = "input",
    ) -> None:
        """No failure takes more than `longest` ticks; None: some take as long as they like.

        With others to be `like`, these are the inputs of an operator but for the first, at the pace of the others.
        """
        self._rng = rng
        self._first = first = 0 if like is None else 1
        self._names = [f"{name}{i}" for i in range(operator.inputs)]
        self._times = operator.definition.times
        self._longest = longest
        self.network = Network()
        self.many = operator.inputs
        self.are_alike = longest is not None or rng.random() < 0.7 if like is None else like.are_alike
        """Whether none of them is always behind the others."""
        lateness = [0 if longest is not None else rng.choice([0, 3, 8])] * self.many
        if not self.are_alike:
            lateness = [rng.choice([0, 3, 8]) for _ in range(self.many)]
        if like is not None:
            lateness = [like.lateness] * self.many if self.are_alike else lateness
        self.lateness = lateness[0]
        numbers = range(first, self.many)
        specs = [replace(operator.spec_of_input(i, partitions), id=self._names[i]) for i in numbers]
        self.logs = tuple(create(replace(s, lateness=lateness[i])) for i, s in zip(numbers, specs, strict=True))
        keys = rng.choice([2, 5])
        self._feeds = [
            _Feed(Tuples(rng, keys, 0.0, late, rng.choice([0.2, 0.5])), [[] for _ in range(partitions)])
            for late in lateness[first:]
        ]
        self._pace = rng.choice([2, 5, 9]) if like is None else like._pace
        self.now = 0
        """How far time has come where tuples are made."""
        self.failures = 0

    def tick(self, number: int, *, may_fail: bool) -> None:
        """Time goes on: tuples come, or would come; inputs fail, and heal."""
        rng = self._rng
        batches = [feed.tuples.batch(rng.choice([0, 0, 1, 3, 8]), len(feed.rows)) for feed in self._feeds]
        self.now = max([self.now + self._pace, *(feed.tuples.now for feed in self._feeds)])
        for i, (feed, batch) in enumerate(zip(self._feeds, batches, strict=True)):
            self._fail_or_heal(i, feed, number, may_fail)
            for row in (row for rows in batch.values() for row in rows):
                row["tags"] = None if row["v"] is None else [row["v"]] * (row["t"] % 3)
            feed.waiting.append((batch, feed.tuples.heartbeat(self.now)))
            if feed.failure != "dead":
                self._catch_up(i, feed, at_once=not may_fail)

    def begin(self, ticks: int) -> None:
        """The streams have been there for so long when the operator begins."""
        for _ in range(ticks):
            self.tick(0, may_fail=False)

    def _fail_or_heal(self, i: int, feed: _Feed, number: int, may_fail: bool) -> None:
        rng, longest = self._rng, 40 if self._longest is None else self._longest
        if feed.failure is not None and (number >= feed.healed_at or not may_fail):
            self.network.cut_off.discard(self._names[self._first + i])
            feed.failure, feed.back_since = None, number
            feed.a_tick = rng.choice([0, 1, 2, 3]) if may_fail and self._longest is None else 0
        elif may_fail and feed.failure is None and self._may_begin(feed, number) and rng.random() < self._chance:
            feed.failure = rng.choice(["dead", "dead", "unreachable"])
            feed.healed_at = number + min(rng.choice([1, 4, 6, 8, 12, 20]), longest)
            self.failures += 1
            if feed.failure == "unreachable":
                self.network.cut_off.add(self._names[self._first + i])

    @property
    def _chance(self) -> float:
        """How likely a failure is to begin: seldom beside another, for where nothing comes nothing has to wait."""
        return 0.05 if any(feed.failure for feed in self._feeds) else 0.25

    def _may_begin(self, feed: _Feed, number: int) -> bool:
        """Whether a failure of this input may begin now: short ones of several must not become a long one."""
        if self._longest is None:
            return number > feed.back_since
        return self._longest > 0 and all(one.failure is None and number > one.back_since + 1 for one in self._feeds)

    def _catch_up(self, i: int, feed: _Feed, *, at_once: bool) -> None:
        many = len(feed.waiting) if at_once else feed.a_tick or len(feed.waiting)
        for batch, boundary in feed.waiting[:many]:
            if any(batch.values()):
                append_rows(self.logs[i], batch, boundary)
            else:
                quiet.pass_time(self.logs[i], boundary, "input")
            for p, rows in batch.items():
                feed.rows[p] += rows
        del feed.waiting[:many]

    def finish(self) -> None:
        """Nothing will follow."""
        for log in self.logs:
            quiet.finish(log, "input")

    @property
    def root(self) -> FailingInputs:
        """The inputs of the first operator of a chain: themselves."""
        return self

    @property
    def unreachable(self) -> frozenset[int]:
        """The inputs that cannot be read."""
        return frozenset(i for i, feed in enumerate(self._feeds, self._first) if feed.failure == "unreachable")

    def pass_time(self) -> None:
        """Nothing is made, and nothing fails."""

    def guessed(self, number: int) -> tuple[int | None, tuple[int, ...]]:
        """The boundary of an input's guesses, and where its last undo is: there are none."""
        return None, ()

    def is_guess(self, partition: int, place: Place) -> bool:
        """Whether a tuple is tentative."""
        return False

    def there(self, partition: int, since: int | None, until: int | None, without: frozenset[int]) -> list[Place]:
        """The tuples that can be read with a time in [since, until), in the serialised order."""
        return sorted(
            Place(time, i, offset)
            for i, feed in enumerate(self._feeds, self._first)
            if i not in without
            for offset, row in enumerate(feed.rows[partition])
            if until is not None and (time := row[self._times[i]]) < until and (since is None or time >= since)
        )

    def placed(self, partition: int, places: Sequence[Place]) -> Placed:
        """These tuples as an operator takes them in."""
        return [(at.input, {**self.row(partition, at), "_offset": m}) for m, at in enumerate(places)]

    def row(self, partition: int, place: Place) -> Row:
        """The tuple at a place."""
        return self._feeds[place.input - self._first].rows[partition][place.offset]


@dataclass(frozen=True, order=True)
class Place:
    """A tuple where it stands; these compare as the serialised order has them."""

    time: int
    input: int
    offset: int
