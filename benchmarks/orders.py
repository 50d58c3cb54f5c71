"""Orders and payments without Spark: logs of tuples in the order of time, and a join between two of them and its own.

Tuple *i* of either side has the time 40 i microseconds, which is 25,000 tuples a second; of two tuples with the same
time that of left comes first. So the places of left are 0, 2, 4, …, those of right 1, 3, 5, ….
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

import strandline as sl
from strandline.clock import SYSTEM_CLOCK
from strandline.inputs.stream_definition import output_spec
from strandline.log.operator_state.upstream import Origin, upstream_of
from strandline.log.storage.storage import Storage
from strandline.log.stream import block as blocks_
from strandline.log.stream.append_commit import Append
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.stream.spec import StreamSpec
from strandline.operators.join.definition import GROUP, JoinDefinition, JoinInput
from strandline.operators.join.join_operator import JoinOperator
from strandline.operators.join.join_windows import JoinWindows
from strandline.running import step as steps
from strandline.running.element import Element
from strandline.running.state.state_cache import StateCache
from strandline.running.step import Done, Logs, Step, of_operator
from strandline.running.tick import run_batch

EVERY_US = 40
BAND_US = 2_000_000
BAND = JoinWindows("band", -BAND_US, BAND_US)
ORDERS = {"id": "long", "at": "timestamp", "amount": "double"}
PAYMENTS = {"id": "long", "at": "timestamp", "paid": "double"}
PAPER_LEFT = {"id": "long", "at": "timestamp", "number": "integer", "text": "string"}
PAPER_RIGHT = {"id": "long", "at": "timestamp", "text": "string"}
"""What SPADE's streams hold: two integers and 70 bytes of text, one integer and 10 bytes; and a time."""
TEXT_BYTES = {"left": 70, "right": 10}
Ids = npt.NDArray[np.int64]


def definition(
    windows: JoinWindows, left: Mapping[str, str], right: Mapping[str, str], group: int = GROUP
) -> JoinDefinition:
    """The join of two sides with these columns, which writes so many footprints at a time."""
    return JoinDefinition.of(JoinInput(left, ("id",), "at"), JoinInput(right, ("id",), "at"), windows, group=group)


def apart_us(keys: int) -> int:
    """How far apart the tuples of a side are, so that within the band of two seconds a tuple meets one."""
    return 2 * BAND_US // keys


def times(first: int, count: int, every_us: int = EVERY_US) -> pa.Array:
    """The times of the tuples [first, first + count) of a side."""
    return pa.array(np.arange(first, first + count) * every_us, pa.timestamp("us", tz="UTC"))


def orders(rng: np.random.Generator, first: int, ids: Ids, name: str, every_us: int = EVERY_US) -> pa.Table:
    """Tuples of a side: ids, times from that of tuple `first` on, and a number called `name`."""
    return pa.table({"id": ids, "at": times(first, len(ids), every_us), name: rng.random(len(ids))})


def paper_tuples(rng: np.random.Generator, side: str, first: int, ids: Ids) -> pa.Table:
    """Tuples as SPADE's streams have them."""
    width = TEXT_BYTES[side]
    letters = rng.integers(97, 123, size=len(ids) * width, dtype=np.uint8)
    ends = np.arange(len(ids) + 1, dtype=np.int32) * width
    text = pa.StringArray.from_buffers(len(ids), pa.py_buffer(ends), pa.py_buffer(letters))
    number = {"number": pa.array(np.arange(first, first + len(ids)), pa.int32())} if side == "left" else {}
    return pa.table({"id": ids, "at": times(first, len(ids)), **number, "text": text})


class Side:
    """A log of tuples in the order of time, spread over partitions by id."""

    def __init__(self, storage: Storage, name: str, columns: Mapping[str, str], partitions: int = 1) -> None:
        fields = [{"name": n, "type": kind, "nullable": True, "metadata": {}} for n, kind in columns.items()]
        schema = {"type": "struct", "fields": fields}
        spec = StreamSpec(id=name, schema=schema, key=("id",), time="at", partitions=partitions, lateness=0)
        self.log = Log.create(storage, spec)

    def append(self, table: pa.Table) -> None:
        """Publishes a batch."""
        log, spec, blocks = self.log, self.log.spec, []
        ids = table.column("id").to_numpy()
        for p in range(spec.partitions):
            mine = table if spec.partitions == 1 else table.filter(pa.array(ids % spec.partitions == p))
            first = log.state.ends[p]
            data = blocks_.encode_parts([(Kind.RESULT, mine.combine_chunks().columns)], spec, first)
            file = spec.file(p, first, f"batch{log.state.seq + 1}")
            log.storage.create(file, data)
            blocks.append(blocks_.describe(data, spec, p, first, file))
        log.append(Append(blocks))


class Joined:
    """The join of two sides of one partition, with a log and a state cache of its own."""

    def __init__(
        self, sides: Sequence[Side], storage: Storage, cache: Path, join: JoinDefinition, policy: sl.Policy
    ) -> None:
        self.join = join
        self.policy = policy
        self.cache = StateCache(cache)
        self._inputs = tuple(side.log for side in sides)
        upstream = upstream_of([Origin(log.spec.id, log.storage.url) for log in self._inputs])
        spec = replace(output_spec(join, self._inputs[0].spec), id="joined", upstream=upstream)
        self.log = Log.create(storage, spec)

    def step(self, tuples_max: int = 1) -> Done:
        """Takes in what is new in both sides (about `tuples_max` tuples of it) and publishes what came of it."""
        element = Element(self.join, self.policy, tuples_max=tuples_max)
        writer = Writer("bench", "bench", self.log.state.seq + 1)
        return run_batch(element, self._inputs, self.log, self._run, writer, SYSTEM_CLOCK)[0]

    def _run(self, todo: Sequence[Step]) -> list[Done]:
        element, logs = Element(self.join, self.policy), Logs(self.log, self._inputs)
        return [steps.run(step, element, logs, self.cache, SYSTEM_CLOCK) for step in todo]

    def kept(self) -> pa.Table:
        """The tuples that the operator keeps in its state."""
        arrays = self.cache.open(self.log.state.standings[0].attempt)
        assert arrays is not None, "the operator has left no state"
        found = kept_by(self.join.revived(of_operator(arrays)))
        self.cache.close()
        return found


def kept_by(operator: JoinOperator) -> pa.Table:
    """The tuples that an operator keeps, in the columns of footprints."""
    names = [name for name, _ in [*operator.definition.result_columns, *operator.definition.control_columns]]
    return pa.table([pa.array(column) for column in operator.windows(now=True)], names=names)


class Matches:
    """Pairs of tuples, each by its number in its side, in the order of left and then of right."""

    def __init__(self, left: Ids, right: Ids) -> None:
        order = np.lexsort((right, left))
        self.left, self.right = left[order], right[order]

    @classmethod
    def expected(cls, left: Ids, right: Ids, low: int, high: int) -> Matches:
        """Computed another way than operators do: right sorted by (id, number), and searched.

        Tuple *i* of left meets those of right with its id and a number from i + low to i + high.
        """
        reach = max(abs(low), abs(high))
        width = max(len(left), len(right)) + 2 * reach + 1  # so far apart that no search gets to another id
        words = right * width + np.arange(len(right)) + reach
        order = np.argsort(words)
        words, mine = words[order], left * width + np.arange(len(left)) + reach
        begins, ends = np.searchsorted(words, mine + low), np.searchsorted(words, mine + high, side="right")
        counts = ends - begins
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return cls(np.repeat(np.arange(len(left)), counts), order[np.repeat(begins, counts) + within])

    @classmethod
    def found(cls, tables: Sequence[pa.Table], every_us: int = EVERY_US) -> Matches:
        """The results among the tuples of a join's log: times tell the numbers."""
        numbers: list[list[Ids]] = [[np.empty(0, np.int64)], [np.empty(0, np.int64)]]
        for table in tables:
            results = table.filter(pa.compute.equal(table.column("_kind"), 0))
            for mine, name in zip(numbers, ("left_at", "right_at"), strict=True):
                mine.append(results.column(name).cast(pa.int64()).to_numpy() // every_us)
        return cls(np.concatenate(numbers[0]), np.concatenate(numbers[1]))

    def __len__(self) -> int:
        return len(self.left)

    def same_as(self, other: Matches) -> bool:
        """Whether they are the same pairs."""
        return np.array_equal(self.left, other.left) and np.array_equal(self.right, other.right)

    def hash(self) -> str:
        """Over all pairs."""
        h = xxhash.xxh3_64()
        for column in (self.left, self.right):
            h.update(np.ascontiguousarray(column).tobytes())
        return str(h.hexdigest())


def results_of(log: Log) -> list[pa.Table]:
    """What the first partition of a join's log holds, times and kinds of tuples only."""
    return list(log.read(0, columns=["left_at", "right_at", "_kind"]))
