"""Publications within one program: a run that publishes into a stream wakes the runs that follow that stream.

A wake-up says only that a look is worth while. Runs poll the store as well, because other programs publish, too.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable


class Publications:
    """The runs of a program that follow streams, and the streams that the program writes. Streams go by their ids."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._followers: dict[Callable[[], None], Callable[[], Iterable[str]]] = {}
        self._written: Counter[str] = Counter()

    def follow(self, wake: Callable[[], None], streams: Callable[[], Iterable[str]]) -> None:
        """Lets every publication in one of the streams call `wake`, which must not block."""
        with self._lock:
            self._followers[wake] = streams

    def unfollow(self, wake: Callable[[], None]) -> None:
        """Ends that."""
        with self._lock:
            self._followers.pop(wake, None)

    def begin_writing(self, stream: str) -> None:
        """Notes that a run of this program writes the stream."""
        with self._lock:
            self._written[stream] += 1

    def end_writing(self, stream: str) -> None:
        """Notes that such a run has ended."""
        with self._lock:
            self._written[stream] -= 1
            self._written += Counter()

    def writes_all(self, streams: Iterable[str]) -> bool:
        """Returns whether runs of this program write all of the streams."""
        return all(stream in self._written for stream in streams)

    def published(self, stream: str) -> None:
        """Wakes the runs that follow the stream."""
        with self._lock:
            followers = list(self._followers.items())
        for wake, streams in followers:
            if stream in streams():
                wake()


PUBLICATIONS = Publications()
"""Those of this program."""
