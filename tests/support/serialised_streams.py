"""Several small inputs with lateness, disorder, silence and an end, and somebody who reads them as one."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from strandline.clock import Clock
from strandline.inputs.edges import Edges
from strandline.inputs.input import Piece
from strandline.inputs.input_marks import fresh_marks, last_seen, moved, needs, require_same_inputs
from strandline.inputs.input_stream import InputStream
from strandline.inputs.next_bounds import next_bounds
from strandline.inputs.serialised_input import pieces, replayed
from strandline.log.operator_state.input_mark import Marks
from strandline.log.storage.storage import Storage
from strandline.log.stream.append_commit import Append
from strandline.log.stream.log import Log
from strandline.log.upkeep import consumer_registry, retention
from strandline.log.upkeep.compaction import compact
from strandline.testing.hand_clock import ManualClock
from strandline.testing.memory_storage import MemoryStorage
from strandline.units import END_OF_TIME
from tests.support.items import Item, append_items, item_spec

Place = tuple[int, int]
"""Which input, and the value of the tuple, which says where it stands there."""


class Feed:
    """One input. Times wander upwards, none of them late; the value of a tuple is its offset in its partition."""

    def __init__(self, rng: Random, number: int, partitions: int, clock: Clock, storage: Storage | None = None) -> None:
        self._rng = rng
        self.lateness = rng.choice([0, 3, 20, 200])
        self.pace = rng.choice([0.05, 0.5, 2.0])
        self.now = 0.0
        spec = item_spec(partitions, lateness=self.lateness, name=f"input{number}")
        self.log = Log.create(storage or MemoryStorage(clock), spec, clock)
        self.rows: list[list[Item]] = [[] for _ in range(partitions)]

    def append(self, count: int) -> None:
        """A commit of so many tuples; their times lie at most `lateness` before the largest so far."""
        rng, boundary = self._rng, self.log.state.boundary
        batch: dict[int, list[Item]] = {}
        for _ in range(count):
            self.now += rng.random() * self.pace
            time = int(self.now) - rng.randint(0, self.lateness)
            p = rng.randrange(len(self.rows))
            row = (rng.randrange(5), len(self.rows[p]), time if boundary is None else max(time, boundary))
            self.rows[p].append(row)
            batch.setdefault(p, []).append(row)
        append_items(self.log, batch, rows_max=rng.choice([None, 3, 50]))

    def beat(self) -> None:
        """A commit without tuples: time goes on."""
        self.now += self._rng.random() * 20
        base = self.log.state
        self.log.append(Append(boundaries=base.boundaries_until(int(self.now) - self.lateness)))

    def finish(self) -> None:
        """Nothing will follow."""
        self.log.append(Append(finished=True))

    def tidy(self) -> None:
        """Compacts, and deletes what nobody refers to."""
        compact(self.log, target_bytes=self._rng.choice([2_000, 20_000]), blocks_min=2)
        retention.collect(self.log, grace_us=0)
        retention.collect(self.log, grace_us=0)


class Reader:
    """Reads the inputs as one, step by step as an operator does, and keeps what it got."""

    def __init__(self, rng: Random, logs: Sequence[Log]) -> None:
        self._rng = rng
        self.logs = list(logs)
        self.marks = fresh_marks(self.logs)
        self.edges = [Edges([m.stands]) for m in self.marks]
        self.got: list[list[Place]] = [[] for _ in self.marks]

    def inputs(self, marks: Marks, *, replay: bool = False) -> list[InputStream]:
        """What to read of each."""
        pairs = zip(self.logs, marks.inputs, strict=True)
        return [InputStream(log, ("v", "t"), m.oldest if replay else m.first) for log, m in pairs]

    def batch(self, tuples_max: int, patience: float = 1.0) -> int:
        """Takes in some more, in every partition perhaps not all of what was chosen; how many partitions moved."""
        require_same_inputs(self.logs, self.marks)
        seen = [last_seen(log) for log in self.logs]
        bounds = next_bounds(self.logs, self.marks, tuples_max)
        for p, until in enumerate(bounds):
            if until is None:
                continue
            before = self.marks[p]
            rows = self._rng.choice([1, 3, 20, 1000])
            stands = before.stands
            for piece in pieces(self.inputs(before), p, stands, until, rows):
                self.got[p] += places(piece)
                assert piece.end == len(self.got[p])
                if piece.is_edge:
                    stands = piece.position
                    self.edges[p].add(stands)
                    if self._rng.random() > patience:
                        break
            assert stands.ordinal == len(self.got[p])
            assert before.stands.bound is None or stands.bound > before.stands.bound
            needed = self._rng.randint(before.oldest.ordinal, stands.ordinal)
            self.marks[p] = moved(before, self.logs, p, stands, self.edges[p].before(needed), seen)
        return sum(until is not None for until in bounds)

    def register(self) -> None:
        """Says in each input what is still needed."""
        for number, log in enumerate(self.logs):
            consumer_registry.register(log, "operator-union", needs(self.marks, number))

    def replay(self, p: int, first: int) -> list[Place]:
        """The tuples from a place on that were taken in before."""
        marks, found = self.marks[p], []
        for piece in replayed(self.inputs(marks, replay=True), p, first, marks.oldest, marks.stands, 7):
            found += places(piece)
        return found


def places(piece: Piece) -> list[Place]:
    """The tuples of a piece in the serialised order, after a look at their numbers."""
    found = []
    for number, table in enumerate(piece.tables):
        at = table.column("_offset").to_pylist()
        assert at == sorted(at)
        times = table.column("t").to_pylist()
        assert times == sorted(times)
        assert piece.boundary is None or not times or times[-1] < piece.boundary or piece.boundary == END_OF_TIME
        found += zip(at, ((number, v) for v in table.column("v").to_pylist()), strict=True)
    found.sort()
    assert [at for at, _ in found] == list(range(piece.end - len(found), piece.end))
    return [place for _, place in found]


def make_feeds(rng: Random, partitions: int | None = None) -> list[Feed]:
    """Two to four inputs."""
    partitions = partitions or rng.choice([1, 1, 2, 3])
    return [Feed(rng, i, partitions, ManualClock(1_000_000)) for i in range(rng.randint(2, 4))]
