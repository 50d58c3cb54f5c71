"""What the processes of a simulation work with: folders of one faulty storage, and what lies on machines."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

from strandline.log.storage.storage import Listed, Storage
from strandline.operators.operator import StateImage
from strandline.running.state import state_file
from strandline.running.state.live_operators import LIVE, LiveOperator, LiveOperators
from strandline.running.state.state_cache import StateCache
from strandline.running.state.state_file import Arrays


class Folder:
    """A part of a storage, so that all streams of a process die with it."""

    def __init__(self, inner: Storage, folder: str) -> None:
        self.url = f"{inner.url}/{folder}"
        self._inner = inner
        self._folder = folder

    def create(self, key: str, data: bytes) -> None:
        self._inner.create(f"{self._folder}/{key}", data)

    def put(self, key: str, data: bytes) -> None:
        self._inner.put(f"{self._folder}/{key}", data)

    def read(self, key: str) -> bytes:
        return self._inner.read(f"{self._folder}/{key}")

    def read_range(self, key: str, begin: int, end: int) -> bytes:
        return self._inner.read_range(f"{self._folder}/{key}", begin, end)

    def exists(self, key: str) -> bool:
        return self._inner.exists(f"{self._folder}/{key}")

    def list(self, prefix: str) -> Iterator[Listed]:
        skip = len(self._folder) + 1
        found = self._inner.list(f"{self._folder}/{prefix}" if prefix else self._folder)
        return (Listed(listed.key[skip:], listed.size_bytes, listed.modified_us) for listed in found)

    def delete(self, key: str) -> None:
        self._inner.delete(f"{self._folder}/{key}")

    def settle(self, prefix: str) -> None:
        self._inner.settle(f"{self._folder}/{prefix}" if prefix else self._folder)

    def local_path(self, key: str) -> Path | None:
        return None


class KeptStates:
    """A state cache in memory, with the rules of the real one: a state by the attempt that left it, or nothing."""

    def __init__(self) -> None:
        self.states: dict[str, Arrays] = {}
        self.live = LiveOperators()

    def open(self, attempt: str) -> Arrays | None:
        arrays = self.states.get(attempt)
        return None if arrays is None else _copy(arrays)

    def open_over(self, attempt: str, base: StateCache) -> Arrays | None:
        return None  # there are whole states only

    def take_over(self, base: KeptStates, attempt: str) -> bool:
        if attempt not in base.states:
            return False
        self.states[attempt] = base.states.pop(attempt)
        return True

    def leave(self, attempt: str, parent: str, state: StateImage, *, whole: bool = False) -> int:
        self.states[attempt] = _copy(state.arrays)
        return 1

    def take_operator(self, attempt: str) -> LiveOperator | None:
        return self.live.take("", attempt)

    def leave_operator(self, left: LiveOperator) -> None:
        self.live.leave("", left)

    def close(self) -> None:
        pass


def _copy(arrays: Arrays) -> Arrays:
    return {name: array.copy() for name, array in arrays.items()}


class Machine:
    """What lies on the machine of a partition's task: the state, and copies of it from earlier."""

    def __init__(self, folder: Path | None, rng: Random) -> None:
        self._folder = folder
        self._rng = rng
        self._kept = KeptStates()
        self._old: dict[str, Arrays] = {}

    def cache(self) -> StateCache:
        """As a process finds it that is new to the machine, and so believes nothing unread."""
        state_file._believed.clear()
        return self._kept if self._folder is None else StateCache(self._folder / "now")  # type: ignore[return-value]

    def copy(self) -> None:
        """Keeps a copy of all there is."""
        if self._folder is None:
            self._old = dict(self._kept.states)
        elif (self._folder / "now").exists():
            shutil.rmtree(self._folder / "old", ignore_errors=True)
            shutil.copytree(self._folder / "now", self._folder / "old")

    def end_processes(self) -> None:
        """Objects that live in processes of this machine are gone."""
        self._kept.live.drop("")
        if self._folder is not None:
            LIVE.drop(str(self._folder / "now"))

    def lose(self) -> None:
        self.end_processes()
        self._kept.states = {}
        if self._folder is not None:
            shutil.rmtree(self._folder / "now", ignore_errors=True)

    def go_back(self) -> None:
        """The copy is back; newer files may be there beside it, or not."""
        self._kept.states = dict(self._old)
        if self._folder is not None and (self._folder / "old").exists():
            if self._rng.random() < 0.2:
                self.lose()
            shutil.copytree(self._folder / "old", self._folder / "now", dirs_exist_ok=True)
