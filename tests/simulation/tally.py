"""Counts what simulations inject: crashes, and faults of the storage by their kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from strandline.testing import Crash, FaultyStorage


@contextmanager
def counted(into: Counter[str]) -> Iterator[None]:
    """Counts, while the block runs, every crash as "crash" and every other fault under its name in the fault plan."""
    begin, power_loss, die = FaultyStorage._begin, FaultyStorage.power_loss, Crash.__init__

    def counting_begin(self: FaultyStorage, odds: Any) -> Any:
        fault = begin(self, odds)
        if fault is not None and fault != "crash":  # a crash is counted where it is raised
            into[fault] += 1
        return fault

    def counting_power_loss(self: FaultyStorage) -> None:
        into["power_loss"] += 1
        power_loss(self)

    def counting_death(self: Crash, *what: object) -> None:
        if what != ("this process is dead",):  # it died before
            into["crash"] += 1
        die(self, *what)

    with (
        mock.patch.object(FaultyStorage, "_begin", counting_begin),
        mock.patch.object(FaultyStorage, "power_loss", counting_power_loss),
        mock.patch.object(Crash, "__init__", counting_death),
    ):
        yield
