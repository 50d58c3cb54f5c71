"""Who works on the stream: writers, readers, a consumer, and those who tidy up; plain code that may die anywhere.

Every actor is a loop of steps over a handle that it keeps for a while. A step may end in an error that the library is
allowed to raise; `Process.tolerates` says which. Then the actor goes on with the same handle or a new one.
"""

from collections.abc import Callable, Iterator
from random import Random

from strandline.clock import ManualClock
from strandline.errors import (
    CollectedError,
    ConflictError,
    ConsumerError,
    CorruptionError,
    FormatVersionError,
    KeyExistsError,
    NotAStreamError,
    SecondWriterError,
    StorageError,
    StrandlineError,
    TruncatedError,
)
from strandline.log.storage.storage import Storage
from strandline.log.stream import quiet
from strandline.log.stream.appends import appends_after
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.upkeep import consumer_registry, dropping
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.levels import Levels
from strandline.log.upkeep.retention import apply_retention, collect, planned, truncate
from strandline.units import CONSUMED
from tests.simulation.ledger import LATE, PARTITIONS, Disk, Ledger, require
from tests.support.items import append_items, items_of


class Process:
    """One life of an actor, from its start to its crash."""

    def __init__(self, name: str, storage: Storage, disk: Disk, clock: ManualClock, rng: Random, flips: bool) -> None:
        self.name = name
        self.storage = storage
        self.clock = clock
        self.rng = rng
        self._disk = disk
        self._flips = flips
        self._names = 0

    @property
    def ledger(self) -> Ledger:
        return self._disk.ledger

    def unique(self) -> str:
        self._names += 1
        return f"{self.name}-{self._names}"

    def open(self) -> Log:
        log = Log.open(self.storage, self.clock)
        self.ledger.saw(log.state)
        return log

    def live(self, step: Callable[["Process", Log], None]) -> None:
        """Steps until the process dies."""
        log: Log | None = None
        while True:
            try:
                if log is None or self.rng.random() < 0.1:
                    log = self.open()
                step(self, log)
                self.ledger.saw(log.state)
            except StrandlineError as problem:
                if not self.tolerates(problem):
                    raise
                if self.rng.random() < 0.5:
                    log = None

    def tolerates(self, problem: StrandlineError) -> bool:
        """Whether this is what injected faults and other actors may lead to."""
        if isinstance(problem, KeyExistsError) and self._flips:
            return True  # its own key, read back with a wrong bit
        if isinstance(problem, StorageError):
            return problem.todo == "an injected fault"
        if isinstance(problem, CorruptionError | NotAStreamError | FormatVersionError):
            return self._flips
        return isinstance(problem, ConflictError | TruncatedError)


# ---------------------------------------------------------------------- writing


def write(process: Process, log: Log) -> None:
    """Runs the batch that is next by what this handle has seen, as Spark does after a restart."""
    if process.rng.random() < 0.3:
        log.refresh()
    name = process.unique()
    try:
        if process.rng.random() < 0.15:
            quiet.pass_time(log, process.ledger.batches.boundary_before(_next_batch(log)), process.name)
        batch = _next_batch(log)  # only now: publishing may have brought in what others published
        writer = Writer("query", process.name, batch)
        # Whole, or cut into blocks of one or two tuples.
        m = append_items(log, process.ledger.batches[batch], name, writer, rows_max=(None, 1, 2)[batch % 3])
    except (SecondWriterError, CollectedError):
        log.refresh()
        return
    process.ledger.was_published(m)
    process.ledger.acknowledged = max(process.ledger.acknowledged, batch)


def _next_batch(log: Log) -> int:
    return log.state.writer.batch + 1 if log.state.writer else 0


def write_late(process: Process, log: Log) -> None:
    """The same by a process that was frozen for so long that its commits may be dropped, numbers and all."""
    for _ in range(process.rng.choice([0, 25, 150])):
        process.storage.exists("stream.json")
    write(process, log)


# ---------------------------------------------------------------------- reading


class Reader:
    """Follows the log from some offset on; an iterator may live through anything that others do."""

    def __init__(self) -> None:
        self._positions: dict[int, int] = {}
        self._iterators: dict[int, Iterator[object]] = {}

    def __call__(self, process: Process, log: Log) -> None:
        rng = process.rng
        p = rng.randint(0, LATE)
        if rng.random() < 0.3:
            log.refresh()
        if rng.random() < 0.2:
            self._check_blocks(process, log, p)
        if rng.random() < 0.1:
            done = rng.randint(-1, log.state.seq)
            process.ledger.saw_appends(log.state, done, list(appends_after(log, done)))
        if p not in self._positions:
            self._positions[p] = rng.randint(log.state.starts[p], log.state.ends[p])
        if p not in self._iterators or rng.random() < 0.1:
            self._iterators[p] = log.read(p, self._positions[p])
        try:
            for _ in range(rng.choice([1, 1, 9])):
                table = next(self._iterators[p], None)
                if table is None:
                    del self._iterators[p]
                    break
                self._take(process, p, items_of(table))
        except TruncatedError:
            require(self._positions[p] < process.ledger.starts[p], "partition", p, "is said to be truncated")
            del self._positions[p], self._iterators[p]
        except StrandlineError:
            del self._iterators[p]
            raise

    def _take(self, process: Process, p: int, found: list[tuple[int, tuple[int, int, int]]]) -> None:
        first = self._positions[p]
        require([offset for offset, _ in found] == list(range(first, first + len(found))), "not dense", first, found)
        process.ledger.saw_items(p, found)
        self._positions[p] += len(found)

    def _check_blocks(self, process: Process, log: Log, p: int) -> None:
        state = log.state
        blocks = list(log.blocks(p))
        since = process.rng.randint(-10, 60)
        until = since + process.rng.randint(1, 20)
        of_time = list(log.blocks(p, time_from=since, time_until=until))
        if log.state is state:  # else the index was mended, and brought in newer commits
            process.ledger.saw_blocks(state, p, blocks)
            process.ledger.saw_blocks_of_time(state, p, of_time, since, until)


class Consumer:
    """A reader that registers what it still needs, and may rely on it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._needs: list[int] | None = None

    def __call__(self, process: Process, log: Log) -> None:
        promises = process.ledger.promises
        rng = process.rng
        if self._name not in promises:
            self._needs = None
        if self._needs is None or rng.random() < 0.1:
            wanted = [rng.randint(log.state.starts[p], log.state.ends[p]) for p in range(PARTITIONS)]
            try:
                self._register(process, log, wanted)
            except TruncatedError:
                starts = process.ledger.starts
                require(any(n < s for n, s in zip(wanted, starts, strict=False)), "refused", wanted, starts)
        elif rng.random() < 0.05:
            promises.pop(self._name)
            consumer_registry.unregister(log, self._name)
        elif rng.random() < 0.5:
            self._register(process, log, self._needs)
        else:
            self._read(process, log, rng.randrange(PARTITIONS))

    def _register(self, process: Process, log: Log, needs: list[int]) -> None:
        promises = process.ledger.promises
        if self._name in promises:
            # From here on, whatever becomes of the call, only what both words ask for is sure to be kept.
            promises[self._name] = tuple(max(n, o) for n, o in zip(needs, promises[self._name], strict=True))
            self._needs = list(promises[self._name])
        consumer_registry.register(log, self._name, needs)
        process.ledger.promises[self._name] = tuple(needs)
        self._needs = list(needs)

    def _read(self, process: Process, log: Log, p: int) -> None:
        assert self._needs is not None
        log.refresh()
        try:
            for table in log.read(p, self._needs[p]):
                found = items_of(table)
                process.ledger.saw_items(p, found)
                self._needs[p] = found[-1][0] + 1
                if process.rng.random() < 0.3:
                    break
        except TruncatedError:
            require(False, self._name, "needs", self._needs, "and was truncated")


# ---------------------------------------------------------------------- tidying up


def compact_blocks(process: Process, log: Log) -> None:
    compact(log, target_bytes=process.rng.choice([120, 100_000]), blocks_min=2, unique=process.unique)


class Housekeeper:
    """Joins small blocks as the stream grows, with what it remembers of its handle."""

    def __init__(self) -> None:
        self._log: Log | None = None

    def __call__(self, process: Process, log: Log) -> None:
        if log is not self._log:
            target = process.rng.choice([120, 400, 100_000])
            self._log = log
            self._levels = Levels(log, target_bytes=target, blocks_min=2, unique=process.unique)
        self._levels.step()


def drop_past(process: Process, log: Log) -> None:
    rng = process.rng
    log.refresh()
    yields = rng.random() < 0.3
    try:
        if rng.random() < 0.5:
            truncate(log, before_time=(log.state.time_max or 0) - rng.randint(0, 40), yield_to_consumers=yields)
        else:
            p = rng.randrange(PARTITIONS)
            offset = rng.randint(log.state.starts[p], log.state.ends[p])
            truncate(log, before_offset={p: offset}, yield_to_consumers=yields)
    except ConsumerError:
        require(not yields, "refused for a consumer, to which it was to yield")


def trim(process: Process, log: Log) -> None:
    """Drops what all consumers have passed."""
    log.refresh()
    if not log.state.consumers:
        require(planned(log, consumed=True).starts == log.state.starts, "tuples go, and no consumer is registered")
    apply_retention(log, CONSUMED)


def collect_files(process: Process, log: Log) -> None:
    collect(log, grace_us=process.rng.choice([0, 0, 1_000, 50_000]))


def drop_commits(process: Process, log: Log) -> None:
    rng = process.rng
    dropping.drop_commits(
        log,
        keep_commits=rng.choice([0, 1, 5]),
        keep_us=rng.choice([0, 0, 5_000]),
        every=rng.choice([1, 2, 6]),
        deletes_max=rng.choice([None, 1, 3]),
        unique=process.unique,
    )


def fold_commits(process: Process, log: Log) -> None:
    log.refresh()
    log.fold()
