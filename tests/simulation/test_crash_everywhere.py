"""A short life of a stream, with a crash before and after every single storage call of it."""

from contextlib import suppress
from random import Random

import pytest

from strandline.clock import ManualClock
from strandline.log.stream.log import Log
from strandline.log.upkeep import consumer_registry
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.dropping import drop_commits
from strandline.log.upkeep.retention import collect, truncate
from strandline.testing import Crash, FaultPlan, FaultyStorage
from tests.simulation import actors, world
from tests.simulation.actors import Process
from tests.simulation.ledger import LATE, LATENESS, PARTITIONS, Batches, Disk, Ledger
from tests.support.items import item_spec, read_items
from tests.support.plain_codec import plain_codec

BATCHES = 7


class Stream:
    """One disk, and the processes that come one after the other."""

    def __init__(self, seed: int) -> None:
        self.clock = ManualClock(1_000_000)
        self.disk = Disk(self.clock, Ledger(Batches(seed)))
        self.faulty = FaultyStorage(self.disk, Random(seed), clock=self.clock)
        self._lives = 0

    def run(self, plan: FaultPlan = FaultPlan()) -> int:  # noqa: B008, it is frozen
        """Lives through all of it, as far as it is not done yet; the number of storage calls that took."""
        self._lives += 1
        storage = self.faulty.other_process(plan)
        process = Process(f"life-{self._lives}", storage, self.disk, self.clock, Random(0), flips=False)
        log = Log.create(storage, item_spec(PARTITIONS, lateness=LATENESS), self.clock)
        self._write(process, log, until=3)
        consumer_registry.register(log, "consumer", log.state.starts[:PARTITIONS])
        compact(log, target_bytes=100_000, blocks_min=2, unique=process.unique)
        self._drop(process, log)
        self._write(process, log, until=5)
        consumer_registry.register(log, "consumer", [1, 1])
        truncate(log, before_time=6, yield_to_consumers=True)
        self._collect(log)
        consumer_registry.unregister(log, "consumer")
        truncate(log, before_offset=2)
        log.fold()
        self._write(process, log, until=BATCHES)
        compact(log, target_bytes=100_000, blocks_min=2, unique=process.unique)
        self._collect(log)
        self._drop(process, log)
        self._collect(log)
        log.fold()
        self._drop(process, log)
        self.disk.ledger.saw(log.state)
        return storage.calls

    def _write(self, process: Process, log: Log, until: int) -> None:
        while log.state.writer is None or log.state.writer.batch + 1 < until:
            actors.write(process, log)

    def _collect(self, log: Log) -> None:
        self.clock.advance(1.0)
        collect(log, grace_us=0)

    def _drop(self, process: Process, log: Log) -> None:
        log.fold()
        drop_commits(log, keep_commits=1, keep_us=0, every=2, unique=process.unique)

    def content(self) -> list[list[object]]:
        log = Log.open(self.faulty.other_process(), self.clock)
        ledger = self.disk.ledger
        ledger.saw(log.state)
        for p in range(LATE + 1):
            ledger.saw_blocks(log.state, p, list(log.blocks(p)))
            ledger.saw_items(p, read_items(log, p))
        return [read_items(log, p) for p in range(LATE + 1)]


@pytest.fixture(scope="module")
def undisturbed() -> tuple[int, list[list[object]]]:
    with plain_codec(), world.small_index(Random(3)):
        stream = Stream(seed=3)
        calls = stream.run()
        assert stream.disk.ledger.batch == BATCHES - 1
        assert all(stream.content()[p] for p in range(PARTITIONS))
        assert len(stream.disk.ledger.marks) >= 2
        return calls, stream.content()


@pytest.mark.parametrize(
    ("after", "loses_power"),
    [
        pytest.param(False, False, id="before the call-process dies"),
        pytest.param(False, True, id="before the call-power is lost"),
        pytest.param(True, False, id="after the call-process dies"),
        pytest.param(True, True, id="after the call-power is lost"),
    ],
)
def test_a_crash_at_any_storage_call_changes_nothing_in_the_end(
    undisturbed: tuple[int, list[list[object]]], after: bool, loses_power: bool
) -> None:
    calls, content = undisturbed
    assert calls > 100
    for call in range(1, calls + 1):
        with plain_codec(), world.small_index(Random(3)):
            stream = Stream(seed=3)
            with suppress(Crash):
                stream.run(FaultPlan(crash_at_call=call, crash_after=after))
            if loses_power:
                stream.disk.lose_power(stream.faulty.power_loss)
            try:
                stream.run()
                assert stream.disk.ledger.batch == BATCHES - 1
                # How far the past was dropped depends on how blocks were joined; what is there is the same.
                for found, expected in zip(stream.content(), content, strict=True):
                    shorter = min(len(found), len(expected))
                    assert found[len(found) - shorter :] == expected[len(expected) - shorter :]
            except BaseException as problem:
                problem.add_note(f"crash {'after' if after else 'before'} call {call}")
                raise
