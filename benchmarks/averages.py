"""The papers' workload without Spark: averages of the prices of uniformly chosen items, between two logs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

import strandline as sl
from strandline.clock import SYSTEM_CLOCK, Clock
from strandline.log.storage.storage import Storage
from strandline.log.stream import block as blocks_
from strandline.log.stream.append_commit import Append
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.stream.spec import StreamSpec
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.operator import Definition
from strandline.running import step as steps
from strandline.running.element import Element
from strandline.running.state.state_cache import StateCache
from strandline.running.step import Done, Logs, Step
from strandline.running.tick import run_batch

COLUMNS = {"item_id": "long", "item_price": "double", "item_time": "long"}
Ids = npt.NDArray[np.int64]
Prices = npt.NDArray[np.float64]


def plan_of(window: int) -> AggregateDefinition:
    """The average price of every `window` tuples of an item."""
    return AggregateDefinition.of(
        sl.count_window(window), {"average": sl.avg("item_price")}, COLUMNS, ["item_id"], "item_time"
    )


class Items:
    """A log of items in one partition."""

    def __init__(self, storage: Storage) -> None:
        spec = StreamSpec(
            id="items",
            schema=_schema(list(COLUMNS.items())),
            key=("item_id",),
            time="item_time",
            partitions=1,
            lateness=0,
        )
        self.log = Log.create(storage, spec)

    def append(self, ids: Ids, prices: Prices) -> None:
        """Publishes a batch."""
        first, spec = self.log.state.ends[0], self.log.spec
        columns = [pa.array(ids), pa.array(prices), pa.array(np.arange(first, first + len(ids)))]
        data = blocks_.encode_parts([(Kind.RESULT, columns)], spec, first)
        file = spec.file(0, first, "items")
        self.log.storage.create(file, data)
        self.log.append(Append([blocks_.describe(data, spec, 0, first, file)]))


class Averages:
    """The operator over a log of items, with a log and a state cache of its own."""

    def __init__(
        self,
        items: Items,
        storage: Storage,
        cache: Path,
        plan: int | Definition,
        policy: sl.Policy,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.plan: Definition = plan_of(plan) if isinstance(plan, int) else plan
        self.policy = policy
        self.cache = StateCache(cache)
        self._items = items
        self._clock = clock
        spec = StreamSpec(
            id="averages",
            schema=_schema(self.plan.result_columns),
            key=("item_id",),
            time=self.plan.result_time,
            partitions=1,
            lateness=0,
            operator={**self.plan.to_json(), "footprints": [list(c) for c in self.plan.control_columns]},
        )
        self.log = Log.create(storage, spec, clock)

    def step(self, tuples_max: int) -> Done:
        """Takes in the next commits of the items, about `tuples_max` tuples, and publishes what came of it."""
        writer = Writer("bench", "bench", self.log.state.seq + 1)
        element = Element(self.plan, self.policy, tuples_max=tuples_max)
        return run_batch(element, (self._items.log,), self.log, self._run, writer, self._clock)[0]

    def _run(self, todo: Sequence[Step]) -> list[Done]:
        element, logs = Element(self.plan, self.policy), Logs(self.log, (self._items.log,))
        return [steps.run(step, element, logs, self.cache, self._clock) for step in todo]


def _schema(columns: Sequence[tuple[str, str]]) -> dict[str, Any]:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns]
    return {"type": "struct", "fields": fields}


class Windows:
    """Closed windows of count, in order of their ends: what an operator found, or what it should find."""

    def __init__(self, ids: Ids, starts: Ids, ends: Ids, averages: Prices) -> None:
        order = np.argsort(ends, kind="stable")
        self.ids, self.starts, self.ends, self.averages = ids[order], starts[order], ends[order], averages[order]

    @classmethod
    def expected(cls, ids: Ids, prices: Prices, offsets: Ids, size: int) -> Windows:
        """Computed another way than operators do: sorted by key, cut into pieces of `size`."""
        order = np.argsort(ids, kind="stable")
        keys = ids[order]
        begins = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])
        counts = np.diff(np.r_[begins, len(keys)])
        place = np.arange(len(keys)) - np.repeat(begins, counts)
        whole = place < np.repeat(counts // size * size, counts)
        rows = order[whole].reshape(-1, size)
        return cls(ids[rows[:, 0]], offsets[rows[:, 0]], offsets[rows[:, -1]], prices[rows].sum(axis=1) / size)

    @classmethod
    def found(cls, tables: Sequence[pa.Table]) -> Windows:
        """The results among the tuples of an operator's log."""
        names = ("item_id", "window_start", "window_end", "average")
        if not tables:
            nothing = np.empty(0, np.int64)
            return cls(nothing, nothing, nothing, np.empty(0))
        table = pa.concat_tables([t.filter(pa.compute.equal(t.column("_kind"), 0)).select(names) for t in tables])
        return cls(*(table.column(name).to_numpy() for name in names))

    def __len__(self) -> int:
        return len(self.ids)

    def same_as(self, other: Windows) -> bool:
        """Whether the windows are the same, averages to 1e-12."""
        exact = (np.array_equal(a, b) for a, b in ((self.ids, other.ids), (self.starts, other.starts)))
        return (
            all(exact)
            and np.array_equal(self.ends, other.ends)
            and bool(np.allclose(self.averages, other.averages, rtol=1e-12, atol=1e-12))
        )

    def hash(self) -> str:
        """Over ids, ends and averages rounded to nine digits, so that it does not depend on how they were added."""
        h = xxhash.xxh3_64()
        for column in (self.ids, self.starts, self.ends, np.rint(self.averages * 1e9).astype(np.int64)):
            h.update(np.ascontiguousarray(column).tobytes())
        return str(h.hexdigest())
