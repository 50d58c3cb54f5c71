"""Three streams that are written by hand, and an operator over their union: for tests of missing inputs."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import strandline as sl
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream import quiet
from strandline.log.stream.log import Log
from tests.support.items import append_items, item_spec

NAMES = ("north", "south", "west")
PARTITIONS = 2


class Sensors:
    """Each says by its boundary up to when it is complete."""

    def __init__(self, folder: Path, names: tuple[str, ...] = NAMES) -> None:
        self.folder = folder
        self.paths = [folder / name for name in names]
        self.logs = [
            Log.create(LocalStorage(path), item_spec(PARTITIONS, name=f"{path.name}-{uuid.uuid4().hex}"))
            for path in self.paths
        ]

    def write(self, number: int, first: int, end: int) -> None:
        """A tuple for each time, of keys that the two partitions have."""
        log = self.logs[number]
        append_items(log, {p: [(p, 100 * number + t, t) for t in range(first, end)] for p in range(PARTITIONS)})
        quiet.pass_time(log, end, "run")

    def counted(self) -> Any:
        """How many tuples in ten units of time, and their mean."""
        return counted(self.paths)


def counted(paths: list[Path]) -> Any:
    """The same, for whoever has not written them."""
    union = sl.union(*(sl.stream(str(path)) for path in paths))
    return union.window(sl.time_window(10)).aggregate(n=sl.count_all(), mean=sl.avg("v"), total=sl.sum("v"))
