"""Any sequence of appends, compactions, truncations, collections, drops and damage to the index reads as the model."""

from collections.abc import Callable, Iterable, Iterator
from random import Random
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from strandline.clock import ManualClock
from strandline.log.index import index
from strandline.log.stream import commit_kinds
from strandline.log.stream.block import Block
from strandline.log.stream.commit import Commit
from strandline.log.stream.commit_kinds import TruncateCommit
from strandline.log.stream.log import Log
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.dropping import drop_commits
from strandline.log.upkeep.retention import collect, truncate
from strandline.testing import MemoryStorage
from strandline.testing.model import ModelStream
from tests.support.items import Item, append_items, item_spec, items_of
from tests.support.plain_codec import plain_codec

PARTITIONS = 2
LATENESS = 6
LATE = PARTITIONS
WALKS = 50


class Remembering(MemoryStorage):
    """Storage that does not forget a commit."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self._created: list[bytes] = []

    def create(self, key: str, data: bytes) -> None:
        super().create(key, data)
        if key.startswith("commits/"):
            self._created.append(data)

    def take_created(self) -> list[bytes]:
        created, self._created = self._created, []
        return created


class LogMachine(RuleBasedStateMachine):
    """One stream, one model; `old` is a handle that lives through everything."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(1_000_000)
        self.storage = Remembering(self.clock)
        self.manifests: list[Commit] = []
        self.names = 0

    @initialize(
        fold_every=st.integers(1, 4),
        fanout=st.integers(2, 3),
        leaf_entries_max=st.sampled_from([1, 5, 1000]),
    )
    def start(self, fold_every: int, fanout: int, leaf_entries_max: int) -> None:
        # Small enough that leaves, merges, nodes of nodes and edits of all of them happen within a few commits.
        self.constants = mock.patch.multiple(
            index, FOLD_EVERY=fold_every, FANOUT=fanout, LEAF_ENTRIES_MAX=leaf_entries_max
        )
        self.constants.start()
        self.log = Log.create(self.storage, item_spec(PARTITIONS, lateness=LATENESS), self.clock)
        self.old = Log.open(self.storage, self.clock)
        self.model = ModelStream(PARTITIONS, time=lambda item: item[2])  # type: ignore[return-value]

    def teardown(self) -> None:
        if hasattr(self, "constants"):
            self.constants.stop()

    # ------------------------------------------------------------------ what happens to the stream

    @rule(
        sizes=st.lists(st.integers(0, 3), min_size=PARTITIONS + 1, max_size=PARTITIONS + 1),
        step=st.integers(0, 9),
        seed=st.integers(0, 1000),
        rows_max=st.none() | st.integers(1, 2),
    )
    def append(self, sizes: list[int], step: int, seed: int, rows_max: int | None = None) -> None:
        rng = Random(seed)
        now = (self.log.state.time_max or 0) + step
        boundary = self.log.state.boundary
        batch: dict[int, list[Item]] = {}
        for p, size in enumerate(sizes):
            if p == LATE:
                times = [rng.randint(-5, boundary - 1) for _ in range(size)] if boundary and boundary > -4 else []
            else:
                times = [rng.randint(now - LATENESS if boundary is None else boundary, now) for _ in range(size)]
            batch[p] = [(rng.randint(0, 3), rng.randint(0, 99), t) for t in times]
        self.names += 1
        append_items(self.log, batch, f"a{self.names}", rows_max=rows_max)
        self.model.append(batch, rows_max)

    @rule(target_bytes=st.sampled_from([100, 200, 100_000]), blocks_min=st.integers(2, 3))
    def compact(self, target_bytes: int, blocks_min: int) -> None:
        before = self.log.state.seq
        compact(self.log, target_bytes=target_bytes, blocks_min=blocks_min, unique=self.unique)
        for m in self.log.after(before):
            for block in m.blocks:
                self.model.compact(block.partition, block.first, block.end)

    def unique(self) -> str:
        self.names += 1
        return f"c{self.names}"

    @rule(before=st.integers(-3, 60))
    def truncate_by_time(self, before: int) -> None:
        truncate(self.log, before_time=before)
        self.model.truncate(before_time=before)

    @rule(before=st.dictionaries(st.integers(0, PARTITIONS - 1), st.integers(0, 40)))
    def truncate_by_offset(self, before: dict[int, int]) -> None:
        truncate(self.log, before_offset=before)
        self.model.truncate(before_offset=before)

    @rule()
    def fold(self) -> None:
        self.log.fold()

    @rule()
    def collect(self) -> None:
        self.clock.advance(1.0)
        collect(self.log, grace_us=0)

    @rule(keep_commits=st.integers(0, 3), every=st.integers(1, 5), deletes_max=st.sampled_from([None, 2]))
    def drop_commits(self, keep_commits: int, every: int, deletes_max: int | None) -> None:
        drop_commits(
            self.log,
            keep_commits=keep_commits,
            keep_us=0,
            every=every,
            deletes_max=deletes_max,
            unique=self.unique,
        )

    @rule(damage=st.sampled_from(["lose", "rot"]), pick=st.integers(0, 10**6))
    def damage_the_index(self, damage: str, pick: int) -> None:
        keys = [listed.key for listed in self.storage.list("snapshots")]
        if not keys:
            return
        key = keys[pick % len(keys)]
        if damage == "lose":
            self.storage.delete(key)
        else:
            self.storage.put(key, self.storage.read(key)[:-1] + b"?")

    @rule()
    def reopen(self) -> None:
        self.log = Log.open(self.storage, self.clock)

    # ------------------------------------------------------------------ what must hold after each step

    @invariant()
    def a_fresh_handle_reads_the_model(self) -> None:
        if hasattr(self, "model"):
            self.check(Log.open(self.storage, self.clock))

    @precondition(lambda self: hasattr(self, "model"))
    @rule()
    def an_old_handle_catches_up(self) -> None:
        self.old.refresh()
        self.check(self.old)

    @precondition(lambda self: hasattr(self, "model"))
    @rule(
        partition=st.integers(0, LATE),
        first=st.integers(0, 40),
        length=st.integers(0, 20),
        time_from=st.none() | st.integers(-5, 60),
        span=st.none() | st.integers(0, 20),
    )
    def blocks_are_found(
        self, partition: int, first: int, length: int, time_from: int | None, span: int | None
    ) -> None:
        self.old.refresh()
        until = None if span is None else (time_from or 0) + span
        for log in (self.log, self.old, Log.open(self.storage, self.clock)):
            found = list(log.blocks(partition, first, first + length, time_from, until))
            may_match = self.brute_force(partition, first, first + length, time_from, until)
            assert [b for b in may_match if b in found] == found
            # Of a block that was compacted since the last fold, the index knows the times of its parts: it may know
            # better than the block's own range. What has a matching tuple is never left out.
            wanted = self.model.read_times(
                partition, -99 if time_from is None else time_from, 999 if until is None else until
            )
            offsets = {offset for offset, _ in wanted if first <= offset < first + length}
            assert all(b in found for b in may_match if offsets & set(range(b.first, b.end)))

    def brute_force(
        self, partition: int, first: int, end: int, time_from: int | None, time_until: int | None
    ) -> list[Block]:
        return [
            b
            for b in live_blocks(self.history(), partition)
            if b.first < end
            and max(first, self.log.state.starts[partition]) < min(b.end, end)
            and (time_from is None or b.time_max >= time_from)
            and (time_until is None or b.time_min < time_until)
        ]

    def history(self) -> list[Commit]:
        """Every manifest there ever was, dropped or not."""
        self.manifests += [commit_kinds.decode(data, "kept by the test") for data in self.storage.take_created()]
        return self.manifests

    def check(self, log: Log) -> None:
        assert list(log.state.starts) == self.model.starts
        assert list(log.state.ends) == self.model.ends
        for p in range(PARTITIONS + 1):
            assert [(b.first, b.end) for b in log.blocks(p)] == self.model.bounds(p)
            assert [item for table in log.read(p) for item in items_of(table)] == self.model.read(p)


def live_blocks(history: Iterable[Commit], partition: int) -> list[Block]:
    """The blocks of a partition from the manifests alone, without any index."""
    live: list[Block] = []
    start = 0
    for m in history:
        for b in m.blocks:
            if b.partition == partition:
                live = [old for old in live if not (b.first <= old.first and old.end <= b.end)] + [b]
        if isinstance(m, TruncateCommit):
            start = m.starts[partition]
    return sorted((b for b in live if b.end > start), key=lambda b: b.first)


@pytest.fixture(autouse=True)
def _plain_codec() -> Iterator[None]:
    with plain_codec():
        yield


@pytest.mark.parametrize("seeds", [range(start, start + 50) for start in range(0, WALKS, 50)], ids=str)
def test_long_random_walks_read_as_the_model(seeds: range) -> None:
    """The same steps, drawn with more insistence than hypothesis has; it is there to shrink what this finds."""
    for seed in seeds:
        try:
            walk(Random(seed))
        except BaseException as problem:
            problem.add_note(f"seed {seed}")
            raise


def walk(rng: Random) -> None:
    machine = LogMachine()
    machine.start(rng.randint(1, 4), rng.randint(2, 3), rng.choice([1, 5, 1000]))
    steps: list[Callable[[], None]] = [
        lambda: machine.append(
            [rng.randint(0, 2) for _ in range(PARTITIONS + 1)], rng.randint(0, 4), rng.getrandbits(9)
        ),
        lambda: machine.append(
            [rng.randint(0, 2) for _ in range(PARTITIONS + 1)], rng.randint(0, 4), rng.getrandbits(9)
        ),
        lambda: machine.compact(rng.choice([100, 200, 100_000]), rng.randint(2, 3)),
        lambda: machine.truncate_by_time(rng.randint(-3, 40)) if rng.random() < 0.2 else None,
        lambda: machine.truncate_by_offset({rng.randrange(PARTITIONS): rng.randint(0, 20)}),
        machine.fold,
        machine.collect,
        lambda: machine.drop_commits(rng.randint(0, 3), rng.randint(1, 5), rng.choice([None, 2])),
        lambda: machine.damage_the_index(rng.choice(["lose", "rot"]), rng.getrandbits(9)),
        machine.reopen,
        machine.an_old_handle_catches_up,
    ]
    try:
        for _ in range(40):
            rng.choice(steps)()
            machine.a_fresh_handle_reads_the_model()
            for _ in range(3):
                machine.blocks_are_found(
                    rng.randint(0, LATE),
                    rng.randint(0, 20),
                    rng.randint(0, 20),
                    rng.choice([None, rng.randint(-5, 60)]),
                    rng.choice([None, rng.randint(0, 10)]),
                )
    finally:
        machine.teardown()


LogMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLog = LogMachine.TestCase
