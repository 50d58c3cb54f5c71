"""Streams that could not be read: each is left alone for a while, then tried again."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.clock import Clock

RETRY_US = 1_000_000
"""A stream that could not be read is tried again after so long."""


class LeftAlone:
    """The numbers of streams that are not to be read, and until when."""

    def __init__(self, clock: Clock, numbers: Iterable[int] = ()) -> None:
        self._clock = clock
        self._until_us: dict[int, int] = {}
        for number in numbers:
            self.add(number)

    def add(self, number: int) -> None:
        """Leaves a stream alone from now on."""
        self._until_us[number] = self._clock.steady_us() + RETRY_US

    def over(self) -> list[int]:
        """Returns those that were left alone for long enough."""
        now_us = self._clock.steady_us()
        return [number for number, until_us in self._until_us.items() if now_us >= until_us]

    def drop(self, number: int) -> None:
        """Reads a stream again."""
        del self._until_us[number]

    def all(self) -> frozenset[int]:
        """Returns those that were added and not dropped."""
        return frozenset(self._until_us)

    def now(self) -> frozenset[int]:
        """Drops those that were left alone for long enough, and returns the others."""
        for number in self.over():
            self.drop(number)
        return self.all()
