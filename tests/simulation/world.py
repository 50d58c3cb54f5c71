"""One seed, one run: a stream on a faulty disk, and processes that die, come back and get in each other's way."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from random import Random
from unittest import mock

from strandline.clock import ManualClock
from strandline.log.index import cuts, index
from strandline.log.stream import commit_kinds, commits, milestone
from strandline.log.stream.log import Log
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.dropping import drop_commits
from strandline.log.upkeep.retention import collect
from strandline.testing import Crash, FaultPlan, FaultyStorage
from tests.simulation import actors
from tests.simulation.actors import Process
from tests.simulation.baton import Baton, Runner, SharedStorage
from tests.simulation.ledger import LATE, LATENESS, PARTITIONS, Batches, Disk, Ledger, number_of, require
from tests.support.items import item_spec, read_items

TURNS = 400
LONG_TURNS = 2_500


def run(seed: int) -> Disk:
    """Runs the seed, and raises if anything is not as it must be; what is on the disk in the end."""
    with small_index(Random(seed)):
        world = World(seed)
        world.run()
        return world.disk


@contextmanager
def small_index(rng: Random) -> Iterator[None]:
    """Folds so often that leaves, merges, nodes and their edits all happen within a few commits."""
    sizes = {
        "FOLD_EVERY": rng.randint(2, 5),
        "FANOUT": rng.randint(2, 3),
        "LEAF_ENTRIES_MAX": rng.choice([1, 4, 1000]),
    }
    few = mock.patch.multiple(cuts, TUPLES_MAX=3, TUPLES_MAX_PER_PARTITION=0, _NUMBERS_MAX=40)
    near = mock.patch.object(commits, "PROBES", (1, 2))  # each is a turn, of which a run has some hundred
    with mock.patch.multiple(index, **sizes), few, near, mock.patch.object(commit_kinds, "decode", _decode):
        yield


# Every process reads the same manifests, and to decode one depends on its bytes alone.
_decode = lru_cache(maxsize=10_000)(commit_kinds.decode)


class World:
    """The disk, the clock, the processes."""

    disk_type: type[Disk] = Disk
    process_type: type[Process] = Process
    always: tuple[str, ...] = ("writer", "reader")
    others_min = 3
    more: Mapping[str, Callable[[], Callable[[Process, Log], None]]] = {}
    """Actors that other worlds do not have."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.clock = ManualClock(1_000_000)
        self.disk = self.disk_type(self.clock, Ledger(Batches(seed)))
        self.faulty = FaultyStorage(self.disk, rng, clock=self.clock)
        self.is_long = rng.random() < 0.1
        self.baton = Baton(rng, LONG_TURNS if self.is_long else TURNS)
        self.baton.on_turn = self._pass_time
        has_faults = rng.random() < 0.8
        self.plan = FaultPlan(
            crash=rng.choice([0.0, 0.01, 0.03]) * has_faults,
            transient=rng.choice([0.0, 0.01]) * has_faults,
            ambiguous=rng.choice([0.0, 0.0, 0.05]) * has_faults,
            repeated=rng.choice([0.0, 0.05]) * has_faults,
            no_space=rng.choice([0.0, 0.02]) * has_faults,
            flip_on_read=rng.choice([0.0, 0.0, 0.02]) * has_faults,
            slow=rng.choice([0.0, 0.02]),
            slow_s=0.05,
            list_delay_calls=rng.choice([0, 0, 20]),
        )
        self.loses_power = has_faults and rng.random() < 0.5
        self.loses_index = rng.random() < 0.3
        self._damage_in = 0
        self._power_is_lost_in: int | None = None
        Log.create(self.faulty.other_process(), item_spec(PARTITIONS, lateness=LATENESS), self.clock)

    def run(self) -> None:
        steps: dict[str, Callable[[], Callable[[Process, Log], None]]] = {
            "writer": lambda: actors.write,
            "zombie": lambda: actors.write,
            "late zombie": lambda: actors.write_late,
            "reader": actors.Reader,
            "other reader": actors.Reader,
            "consumer": lambda: actors.Consumer("consumer"),
            "compactor": lambda: actors.compact_blocks,
            "other compactor": lambda: actors.compact_blocks,
            "housekeeper": actors.Housekeeper,
            "truncator": lambda: actors.drop_past,
            "collector": lambda: actors.collect_files,
            "folder": lambda: actors.fold_commits,
            "dropper": lambda: actors.drop_commits,
            "other dropper": lambda: actors.drop_commits,
        }
        others = sorted(set(steps).difference(self.always))
        steps |= self.more
        chosen = [*self.always, *self.rng.sample(others, self.rng.randint(self.others_min, len(others)))]
        if self.is_long:  # and few: then somebody who is frozen misses much
            chosen = ["writer", "late zombie", "dropper"]
        self.baton.run({name: partial(self._live, steps[name]) for name in chosen})
        if self.loses_power:
            self.disk.lose_power(self.faulty.power_loss)
        self.check()

    def _live(self, step: Callable[[], Callable[[Process, Log], None]], runner: Runner) -> None:
        """The lives of one actor: whenever it dies, it starts again and remembers nothing."""
        lives = 0
        while True:
            lives += 1
            runner.boots = self.baton.boots
            storage = SharedStorage(self.faulty.other_process(self.plan), self.baton, runner)
            name = f"{runner.name.replace(' ', '-')}-{lives}"
            flips = self.plan.flip_on_read > 0
            process = self.process_type(name, storage, self.disk, self.clock, self.rng, flips=flips)
            with suppress(Crash):
                process.live(step())
            if self.loses_power and self._power_is_lost_in is None and self.rng.random() < 0.3:
                self._power_is_lost_in = self.rng.randint(0, 20)

    def _pass_time(self) -> None:
        self.clock.advance(0.001)
        self._damage_in -= 1
        if self.loses_index and self._damage_in < 0 and self.rng.random() < 0.02:
            self._damage_the_index()
            self._damage_in = 60  # so that who has just mended it gets a chance to use it
        if self._power_is_lost_in is not None:
            self._power_is_lost_in -= 1
            if self._power_is_lost_in < 0:
                self._power_is_lost_in = None
                self.disk.lose_power(self.faulty.power_loss)
                self.baton.reboot()

    def _damage_the_index(self) -> None:
        keys = [listed.key for listed in self.disk.list("snapshots")]
        if keys:
            key = self.rng.choice(keys)
            self.disk.put(key, self.disk.read(key)[: self.rng.choice([0, 10])])

    # ------------------------------------------------------------------ after the last turn

    def check(self) -> None:
        """What a new process finds is the whole truth; then it writes on and tidies up without leaving anything."""
        storage = self.faulty.other_process()
        log = Log.open(storage, self.clock)
        self._check_content(log)
        process = Process("last", storage, self.disk, self.clock, self.rng, flips=False)
        for _ in range(3):
            actors.write(process, log)
        compact(log, target_bytes=100_000, blocks_min=2, unique=process.unique)
        log.fold()
        for _ in range(25):  # listings that lag catch up with this
            storage.exists("stream.json")
        for _ in range(2):
            self.clock.advance(1.0)
            collect(log, grace_us=0)
            drop_commits(log, keep_commits=3, keep_us=0, every=1, unique=process.unique)
        collect(log, grace_us=0)
        self.clock.advance(1.0)
        collect(log, grace_us=0)
        self._check_content(Log.open(storage, self.clock))
        kept = self.disk.ledger.live_files | log.index_files() | {index.ROOT_KEY}
        kept |= log.commits.files(log.state.milestone)
        folders = ("blocks", "late", "snapshots", milestone.FOLDER)
        left = {listed.key for folder in folders for listed in self.disk.list(folder)}
        left = {key for key in left if not milestone.is_mark(key)}
        require(left == kept, "files are left behind:", left - kept, "or missing:", kept - left)
        numbers = [number_of(listed.key) for listed in self.disk.list("commits")]
        expected = sorted({0, *range(log.kept, log.state.seq + 1)})
        require(numbers == expected, "commits", numbers, "are there, not", expected)

    def _check_content(self, log: Log) -> None:
        ledger = self.disk.ledger
        require(log.state.seq == len(ledger.moments) - 1, "the log ends at", log.state.seq, "not", len(ledger.moments))
        ledger.saw(log.state)
        require(ledger.batch >= ledger.acknowledged, "batch", ledger.acknowledged, "was acknowledged and is lost")
        for p in range(LATE + 1):
            ledger.saw_blocks(log.state, p, list(log.blocks(p)))
            found = read_items(log, p)
            expected = list(enumerate(ledger.rows[p]))[ledger.starts[p] :]
            require(found == expected, "partition", p, "reads", found, "not", expected)
