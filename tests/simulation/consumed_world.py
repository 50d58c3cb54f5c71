"""One seed, one run of a log that drops what its consumers have passed, while these come, go and die.

As in `world` every process may die between any two calls, so also between a registration and what it says of itself,
and between a look at the consumers and the truncation. What a consumer was told that it may rely on is there; without a
consumer nothing goes; in the end everything does that the last consumer has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import ClassVar

from strandline.log.stream.log import Log
from strandline.log.upkeep import consumer_registry
from strandline.log.upkeep.retention import apply_retention
from strandline.units import CONSUMED
from tests.simulation import actors
from tests.simulation.actors import Process
from tests.simulation.ledger import PARTITIONS, require
from tests.simulation.world import World, small_index


def run(seed: int) -> None:
    """Runs the seed, and raises if anything is not as it must be."""
    with small_index(Random(seed)):
        ConsumedWorld(seed).run()


class ConsumedWorld(World):
    """A writer whose retention is "consumed", by a process of its own, and two consumers."""

    always = ("writer", "consumer", "other consumer", "trimmer")
    others_min = 1
    more: ClassVar[Mapping[str, Callable[[], Callable[[Process, Log], None]]]] = {
        "other consumer": lambda: actors.Consumer("other"),
        "trimmer": lambda: actors.trim,
    }

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.is_long = False

    def check(self) -> None:
        log = Log.open(self.faulty.other_process(), self.clock)
        for consumer in list(consumer_registry.consumers(log)):
            consumer_registry.unregister(log, consumer.name)
        self.disk.ledger.promises.clear()
        before = log.state.starts
        apply_retention(log, CONSUMED)
        require(log.state.starts == before, "tuples go, and no consumer is registered")
        ends = log.state.ends[:PARTITIONS]
        consumer_registry.register(log, "last", ends)
        self.disk.ledger.promises["last"] = ends
        apply_retention(log, CONSUMED)
        require(log.state.starts[:PARTITIONS] == ends, "what all have passed is still there")
        require(log.state.starts[PARTITIONS] == before[PARTITIONS], "nothing acknowledges the side log")
        super().check()
