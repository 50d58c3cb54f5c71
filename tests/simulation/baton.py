"""Processes that take turns: each runs in a thread of its own, and one seed decides who makes the next storage call.

Only the holder of the baton runs, so the threads add no chance of their own: a run is as deterministic as the order
in which the generator hands the baton on, which it may do before every single storage call.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from threading import Lock

from strandline.log.storage.storage import Listed, Storage
from strandline.testing import Crash

_POOL = ThreadPoolExecutor(max_workers=16)


class Stopped(BaseException):
    """The run is over; a `BaseException`, so that no code can carry on after it."""


class Runner:
    """One process of the simulated cluster."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.may_run = Lock()
        self.may_run.acquire()
        self.boots = 0
        self.wakes_at = 0


class Baton:
    """Who runs, and for how many storage calls all in all."""

    def __init__(self, rng: Random, turns: int) -> None:
        self._rng = rng
        self._restlessness = rng.choice([0.1, 0.3, 0.6])
        self._naps = rng.choice([0.0, 0.03, 0.1])
        self._turns_left = turns
        self._runners: list[Runner] = []
        self._finished = Lock()
        self._finished.acquire()
        self._problem: BaseException | None = None
        self.boots = 0
        """How often the power came back."""
        self.holder: Runner | None = None
        self.on_turn: Callable[[], None] = lambda: None

    def run(self, bodies: dict[str, Callable[[Runner], None]]) -> None:
        """Runs them all until the turns are used up; raises what any of them raised."""
        self._runners = [Runner(name) for name in bodies]
        for runner, body in zip(list(self._runners), bodies.values(), strict=True):
            _POOL.submit(self._live, runner, body)
        self._hand_over()
        self._finished.acquire()
        if self._problem is not None:
            raise self._problem

    def turn(self, runner: Runner) -> None:
        """Called by a process before each storage call: perhaps somebody else goes first."""
        self._turns_left -= 1
        if self._turns_left < 0:
            raise Stopped
        self.on_turn()
        chance = self._rng.random()
        if chance < self._naps:
            # Long enough for others to begin and finish whatever they like between two calls of this one.
            runner.wakes_at = self._turns_left - self._rng.randint(10, 100)
        if chance < self._restlessness:
            self._pass_on(runner)
        if runner.boots != self.boots:
            raise Crash("the power was gone")

    def _pass_on(self, runner: Runner) -> None:
        awake = [other for other in self._runners if other.wakes_at == 0 or other.wakes_at >= self._turns_left]
        self.holder = self._rng.choice(awake or self._runners)
        self.holder.wakes_at = 0
        if self.holder is not runner:
            self.holder.may_run.release()
            runner.may_run.acquire()
            if self._turns_left < 0:
                raise Stopped

    def reboot(self) -> None:
        """Every process dies before its next call."""
        self.boots += 1

    def _live(self, runner: Runner, body: Callable[[Runner], None]) -> None:
        runner.may_run.acquire()
        try:
            if self._turns_left >= 0:
                body(runner)
        except Stopped:
            pass
        except BaseException as problem:
            self._problem = self._problem or problem
            self._turns_left = -1
        self._runners.remove(runner)
        self._hand_over()

    def _hand_over(self) -> None:
        if self._runners:
            self.holder = self._rng.choice(self._runners)
            self.holder.may_run.release()
        else:
            self._finished.release()


class SharedStorage:
    """A storage as one process sees it, which waits for the baton before each call."""

    def __init__(self, inner: Storage, baton: Baton, runner: Runner) -> None:
        self.url = inner.url
        self._inner = inner
        self._baton = baton
        self._runner = runner

    def create(self, key: str, data: bytes) -> None:
        self._baton.turn(self._runner)
        self._inner.create(key, data)

    def put(self, key: str, data: bytes) -> None:
        self._baton.turn(self._runner)
        self._inner.put(key, data)

    def read(self, key: str) -> bytes:
        self._baton.turn(self._runner)
        return self._inner.read(key)

    def read_range(self, key: str, begin: int, end: int) -> bytes:
        self._baton.turn(self._runner)
        return self._inner.read_range(key, begin, end)

    def exists(self, key: str) -> bool:
        self._baton.turn(self._runner)
        return self._inner.exists(key)

    def list(self, prefix: str) -> Iterator[Listed]:
        self._baton.turn(self._runner)
        return self._inner.list(prefix)

    def delete(self, key: str) -> None:
        self._baton.turn(self._runner)
        self._inner.delete(key)

    def settle(self, prefix: str) -> None:
        self._baton.turn(self._runner)
        self._inner.settle(prefix)

    def local_path(self, key: str) -> Path | None:
        return self._inner.local_path(key)
