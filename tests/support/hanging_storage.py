"""A storage that neither answers nor fails, for as long as a test says."""

import threading
import uuid
from typing import Any

from strandline.clock import SYSTEM_CLOCK
from strandline.errors import StorageError
from strandline.log.storage.storage import Storage
from strandline.testing import MemoryStorage
from tests.support.machine import patience


class HangingStorage(MemoryStorage):
    """In memory. While it hangs, every call waits; then it does what was asked, or fails as a client that gives up."""

    def __init__(self) -> None:
        super().__init__()
        self.url = f"memory:{uuid.uuid4().hex}"
        self.asked: list[str] = []
        """The calls that have come so far."""
        self.waiting = threading.Semaphore(0)
        """Released once for each call that has begun to wait."""
        self._goes_on = threading.Event()
        self._goes_on.set()
        self._gives_up = False
        self._only = ""

    @property
    def elsewhere(self) -> MemoryStorage:
        """The same values, for somebody for whom nothing hangs."""
        found = MemoryStorage()
        found.url, found._values, found._lock = self.url, self._values, self._lock
        return found

    def hang(self, only: str = "") -> None:
        """From now on, all calls or `only` those of one name."""
        self._goes_on, self._only = threading.Event(), only

    def go_on(self, *, gives_up: bool = False) -> None:
        """Lets go of all that wait; they fail if the client gives up."""
        self._gives_up = gives_up
        self._goes_on.set()

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in ("create", "put", "read", "read_range", "exists", "list", "delete", "settle"):
            return found

        def call(*arguments: Any) -> Any:
            self.asked.append(name)
            goes_on = self._goes_on
            if not goes_on.is_set() and self._only in ("", name):
                self.waiting.release()
                assert goes_on.wait(patience(60))
                if self._gives_up:
                    raise StorageError("the client has given up", stream=self.url)
            return found(*arguments)

        return call


def heard(storage: Storage) -> None:
    """Returns when a store that hung is asked again, which whoever lets go of a call cannot know."""
    for _ in range(6_000):
        try:
            storage.exists("a")
            return
        except StorageError:
            SYSTEM_CLOCK.sleep(0.01)
    raise AssertionError("it is silent for ever")
