"""One seed, one run of a log that loses one file: an error, or the truth; never silence.

As in `world` processes die and get in each other's way. At some moment one file is gone, of any kind but the two whose
loss cannot be noticed: `stream.json`, without which there is no stream, and the newest commit, which may never have
been. From then on a process may stop with an error. What it shows is still what was published, and no commit takes the
place of a lost one. Once the file is restored, as the errors advise, all is well again.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

from strandline.errors import CorruptionError, KeyMissingError, StrandlineError
from strandline.log.audit.stream_audit import verify
from strandline.log.stream import spec
from strandline.log.stream.log import Log
from strandline.log.stream.milestone import Milestone, is_mark
from strandline.testing import FaultPlan, MemoryStorage
from tests.simulation import actors
from tests.simulation.actors import Process
from tests.simulation.ledger import Disk, number_of, require
from tests.simulation.world import TURNS, World, small_index


def run(seed: int) -> str:
    """Runs the seed, and raises if anything is not as it must be; returns the key of the file that was lost."""
    with small_index(Random(seed)):
        world = LostFileWorld(seed)
        world.run()
        return world.disk.lost


def _kind(key: str) -> str:
    return "mark" if is_mark(key) else key.partition("/")[0]


class LosingDisk(Disk):
    """A disk that can lose a file; from then on it does not look into the milestone, which may be the one that lost."""

    lost = ""
    _bytes = b""

    def lose(self, key: str) -> None:
        """Deletes a file, and remembers it."""
        self.lost, self._bytes = key, self.read(key)
        MemoryStorage.delete(self, key)

    def restore(self) -> None:
        """Puts the file back, if it is not there again."""
        if self.lost and not self.exists(self.lost):
            MemoryStorage.put(self, self.lost, self._bytes)

    def _milestone_files(self) -> set[str]:
        return set() if self.lost else super()._milestone_files()

    def _check_milestone(self, milestone: Milestone) -> None:
        if not self.lost:
            super()._check_milestone(milestone)


class WaryProcess(Process):
    """A process that may stop with an error once a file is lost."""

    def tolerates(self, problem: StrandlineError) -> bool:
        assert isinstance(self._disk, LosingDisk)
        is_noticed = bool(self._disk.lost) and isinstance(problem, CorruptionError | KeyMissingError)
        return is_noticed or super().tolerates(problem)


class LostFileWorld(World):
    """The disk, the clock, the processes; one file is lost at some turn, or when all is over."""

    disk: LosingDisk
    disk_type = LosingDisk
    process_type = WaryProcess
    always = ("writer", "reader", "dropper")
    others_min = 0

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        rng = self.rng
        self.plan = FaultPlan(crash=rng.choice([0.0, 0.01]), slow=0.02, slow_s=0.05)
        self.loses_power = self.is_long = False
        self._lost_in = rng.randint(TURNS // 10, 2 * TURNS)

    def _pass_time(self) -> None:
        super()._pass_time()
        self._lost_in -= 1
        if self._lost_in == 0:
            # Without its mark a milestone is not seen by a process that stood still while its commits were dropped.
            self._lose([key for key in self._keys() if not is_mark(key)])
            if self.disk.lost.startswith("commits/"):
                # No process is left that has asked for later commits before the loss, and creates its own after it.
                self.baton.reboot()

    def _keys(self) -> list[str]:
        keys = [listed.key for listed in self.disk.list("")]
        newest = max((key for key in keys if key.startswith("commits/")), key=number_of, default="")
        # A block that is lost before its commit names it is the business of its writer, which has just synced it.
        named = {b.file for m in self.disk.ledger.commits for b in m.blocks}
        keys = [key for key in keys if key in named or not key.startswith(("blocks/", "late/"))]
        return [key for key in keys if key not in (newest, spec.KEY)]

    def _lose(self, keys: list[str]) -> None:
        if keys and not self.disk.lost:
            kind = self.rng.choice(sorted({_kind(key) for key in keys}))
            self.disk.lose(self.rng.choice([key for key in keys if _kind(key) == kind]))

    def check(self) -> None:
        """A new process finds the truth, or stops; `verify` calls nothing good that cannot be read."""
        self._lose(self._keys())
        if self.rng.random() < 0.5:  # as after a restore of the documented backup
            for listed in list(self.disk.list("snapshots")):
                MemoryStorage.delete(self.disk, listed.key)
        storage = self.faulty.other_process()
        with suppress(CorruptionError, KeyMissingError):
            log = Log.open(storage, self.clock)
            self._check_content(log)
            for _ in range(3):
                actors.write(Process("last", storage, self.disk, self.clock, self.rng, flips=False), log)
            self._check_content(Log.open(storage, self.clock))
        if verify(Log.unread(storage, self.clock)).is_good:
            self._check_content(Log.open(storage, self.clock))
        self.disk.restore()
        self._check_content(Log.open(storage, self.clock))
        report = verify(Log.unread(storage, self.clock))
        problems = [problem for problem in report.problems if problem.part != "index"]  # which is damaged by itself
        require(not problems, self.disk.lost, "was lost and restored, and still", problems)
