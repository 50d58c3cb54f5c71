"""Several inputs read as one: what is read how often, what happens when files go, and what is refused."""

from __future__ import annotations

import itertools
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from strandline.errors import CorruptBlockError, CorruptManifestError, InputWentBackError, TruncatedError
from strandline.inputs import input_stream, one_stream, serialised_input
from strandline.inputs.edges import EDGES_MAX, Edges
from strandline.inputs.input_marks import first_needed, fresh_marks, last_seen, moved, require_same_inputs
from strandline.inputs.input_stream import InputStream, blocks_between
from strandline.inputs.next_bounds import next_bounds
from strandline.inputs.serialised_input import pieces, replayed
from strandline.log.operator_state.input_mark import InputMark, Marks, Position
from strandline.log.operator_state.standing import Standing
from strandline.log.stream import block_slice
from strandline.log.stream.append_commit import Append
from strandline.log.stream.block_slice import OpenBlock, RowGroup
from strandline.log.stream.log import Log
from strandline.log.stream.partial_log import PartialLog
from strandline.log.upkeep import retention
from strandline.log.upkeep.compaction import compact
from strandline.operators.one_table import one_table
from strandline.testing.hand_clock import ManualClock
from strandline.testing.memory_storage import MemoryStorage
from strandline.units import END_OF_TIME
from tests.support.items import Item, append_items, item_spec
from tests.support.serialised_streams import Feed, Place, Reader, places

BEGIN = Position(0, None)


class WatchedStorage(MemoryStorage):
    """Counts how often each block is read, and lets somebody else act just before."""

    def __init__(self) -> None:
        super().__init__(ManualClock(1_000_000))
        self.reads: Counter[str] = Counter()
        self.meanwhile = lambda: None
        self.bytes_read = 0

    def read(self, key: str) -> bytes:
        self._look(key)
        data = super().read(key)
        self.bytes_read += len(data)
        return data

    def read_range(self, key: str, begin: int, end: int) -> bytes:
        self._look(key)
        self.bytes_read += end - begin
        return super().read(key)[begin:end]

    def _look(self, key: str) -> None:
        if key.startswith("blocks/"):
            act, self.meanwhile = self.meanwhile, lambda: None
            act()
            self.reads[key] += 1


def stream(times: Sequence[Sequence[int]], name: str = "items", lateness: int = 0) -> Log:
    """A stream of one partition, a commit for each list of times; the value of a tuple is its offset."""
    log = Log.create(WatchedStorage(), item_spec(1, lateness=lateness, name=name), ManualClock(1_000_000))
    at = 0
    for own in times:
        rows: list[Item] = [(0, at + i, t) for i, t in enumerate(own)]
        append_items(log, {0: rows})
        at += len(own)
    return log


def read(logs: Sequence[Log], until: int, rows: int = 1000, begin: Position = BEGIN) -> list[Place]:
    inputs = [InputStream(log, ("v", "t")) for log in logs]
    return [place for piece in pieces(inputs, 0, begin, until, rows) for place in places(piece)]


def reads(log: Log) -> Counter[str]:
    assert isinstance(log.storage, WatchedStorage)
    return log.storage.reads


def test_equal_times_come_by_input_and_then_by_offset() -> None:
    logs = [stream([[5, 3, 5], [5]], lateness=9), stream([[5, 5, 2]], lateness=9)]
    assert read(logs, 6) == [(1, 2), (0, 1), (0, 0), (0, 2), (0, 3), (1, 0), (1, 1)]


def test_what_is_not_before_the_bound_waits() -> None:
    logs = [stream([[1, 2, 3]]), stream([[2, 3, 4]])]
    assert read(logs, 3) == [(0, 0), (0, 1), (1, 0)]
    assert read(logs, 5, begin=Position(3, 3)) == [(0, 2), (1, 1), (1, 2)]


def test_a_piece_ends_within_one_time_only_if_that_has_too_many_tuples() -> None:
    inputs = [InputStream(stream([[1, 2, 2, 2, 2, 3]]), ("v", "t")), InputStream(stream([[2, 2, 4]]), ("v", "t"))]
    found = [(piece.tuples, piece.boundary) for piece in pieces(inputs, 0, BEGIN, 5, 4)]
    assert found == [(1, 2), (4, None), (4, 5)]


def test_no_tuples_still_say_how_far_time_has_come() -> None:
    inputs = [InputStream(stream([[1]]), ("v", "t")), InputStream(stream([[1]]), ("v", "t"))]
    (piece,) = pieces(inputs, 0, Position(2, 3), 9, 10)
    assert (piece.tuples, piece.position) == (0, Position(2, 9))
    assert piece.tables[0].schema.names == ["v", "t", "_offset"]


def test_tuples_at_the_last_time_there_is_are_taken_at_the_end_and_all_together() -> None:
    last = END_OF_TIME
    logs = [stream([[1, last], [last, last]]), stream([[last, last]])]
    inputs = [InputStream(log, ("v", "t")) for log in logs]
    found = list(pieces(inputs, 0, BEGIN, END_OF_TIME, 2))
    assert [p for piece in found for p in places(piece) if p != (0, 0)] == [(0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    assert [piece.end for piece in found if piece.boundary == END_OF_TIME] == [6]


def test_blocks_in_order_are_read_once_or_twice_in_all() -> None:
    logs = [stream([range(i * 50, i * 50 + 50) for i in range(40)], f"s{n}") for n in range(3)]
    for log in logs:
        log.append(Append(finished=True))
    reader = Reader(Random(1), logs)
    while reader.batch(600):
        pass
    assert len(reader.got[0]) == 6000
    for log in logs:
        assert len(reads(log)) == 40
        assert max(reads(log).values()) <= 2


def test_blocks_outside_of_the_times_asked_for_are_not_read() -> None:
    log = stream([range(i * 50, i * 50 + 50) for i in range(200)])
    assert len(read([log, stream([[9]])], 5_100, begin=Position(7, 5_000))) == 100
    assert sum(reads(log).values()) == 2


def test_memory_holds_what_overlaps_and_not_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = [stream([range(i * 50, i * 50 + 50) for i in range(60)], f"s{n}") for n in range(2)]
    inputs = [InputStream(log, ("v", "t")) for log in logs]
    for piece in pieces(inputs, 0, BEGIN, 3_000, 100):
        ahead = sum(len(reads(log)) for log in logs) * 50 - piece.end
        assert ahead <= 250


def test_a_reader_in_flight_outlives_compaction_without_a_double() -> None:
    for before in range(8):
        logs = [stream([range(i * 50, i * 50 + 50) for i in range(20)], f"s{n}") for n in range(2)]
        inputs = [InputStream(log, ("v", "t")) for log in logs]
        found: list[Place] = []
        for i, piece in enumerate(pieces(inputs, 0, BEGIN, 1_000, 100)):
            found += places(piece)
            if i == before:
                storage = logs[0].storage
                assert isinstance(storage, WatchedStorage)
                storage.meanwhile = lambda storage=storage: _compacted(Log.open(storage, ManualClock(2_000_000)))
        assert found == [(n, v) for v in range(1_000) for n in (0, 1)]


def _compacted(log: Log) -> None:
    compact(log, target_bytes=20_000, blocks_min=2)
    retention.collect(log, grace_us=0)
    retention.collect(log, grace_us=0)


def test_a_block_that_is_gone_for_good_is_named() -> None:
    logs = [stream([[1, 2]]), stream([[1, 2]])]
    (block,) = logs[1].blocks(0)
    logs[1].storage.delete(block.file)
    with pytest.raises(CorruptBlockError, match="gone"):
        read(logs, 3)


def test_a_share_that_knows_only_some_blocks_is_enough() -> None:
    logs = [stream([range(i * 50, i * 50 + 50) for i in range(20)], f"s{n}") for n in range(2)]
    shares = []
    for log in logs:
        found = blocks_between(log, 0, 0, 420, 530)
        assert len(found) == 3
        shares.append(InputStream(PartialLog(log.storage, log.spec, found), ("v",), found[0].first))
    tables = [piece.tables for piece in pieces(shares, 0, Position(840, 420), 530, 1000)]
    assert [t.column("v").to_pylist() for t in tables[0]] == [list(range(420, 530))] * 2


def test_dropped_tuples_that_are_needed_are_an_error() -> None:
    logs = [stream([[1, 2], [3, 4]]), stream([[1, 2], [3, 4]])]
    retention.truncate(logs[0], before_offset={0: 2})
    with pytest.raises(TruncatedError):
        read(logs, 3)


def test_a_replay_that_does_not_find_as_many_tuples_says_so() -> None:
    inputs = [InputStream(stream([[1, 2, 3]]), ("v", "t")), InputStream(stream([[1, 2]]), ("v", "t"))]
    assert len(list(replayed(inputs, 0, 1, BEGIN, Position(4, 3), 10))) == 1
    for many in (3, 5):
        with pytest.raises(CorruptManifestError, match=f"4 tuples .* taken in {many}"):
            list(replayed(inputs, 0, 1, BEGIN, Position(many, 3), 10))


def test_an_input_that_went_back_is_refused() -> None:
    logs = [stream([[1], [2], [3]], "a"), stream([[1], [2], [3]], "b")]
    marks = [moved(m, logs, 0, Position(4, 3), BEGIN, [last_seen(log) for log in logs]) for m in fresh_marks(logs)]
    require_same_inputs(logs, marks)
    with pytest.raises(InputWentBackError, match="ends at commit 1"):
        require_same_inputs([logs[0], stream([[1], [2]], "b")], marks)
    with pytest.raises(InputWentBackError, match="not the one"):
        require_same_inputs([logs[0], stream([[1], [2], [9]], "b")], marks)


def test_what_must_be_kept_is_what_may_hold_a_later_time() -> None:
    log = stream([[10], [1, 2], [12], [30]], lateness=20)
    assert [first_needed(log, 0, bound, 0) for bound in (1, 10, 11, 12, 13, 30, 31, END_OF_TIME)] == [
        0,
        0,
        3,
        3,
        4,
        4,
        5,
        5,
    ]
    _compacted(log)
    assert first_needed(log, 0, 12, 3) == 3, "what was not needed before is not needed again"


def test_a_month_in_one_go_is_cut_into_batches_of_about_the_size_asked_for() -> None:
    logs = [stream([range(i * 50, i * 50 + 50) for i in range(400)], f"s{n}") for n in range(3)]
    reader, sizes = Reader(Random(0), logs), []
    while reader.batch(3_000):
        sizes.append(len(reader.got[0]) - sum(sizes))
    assert sum(sizes) == 3 * 19_999
    assert max(sizes) <= 3_300
    assert min(sizes[:-1]) >= 2_500


def test_one_input_far_behind_holds_up_the_others_and_costs_nothing() -> None:
    ahead, behind = stream([range(i * 50, i * 50 + 50) for i in range(400)], "ahead"), stream([[0, 70]], "behind")
    assert next_bounds([ahead, behind], fresh_marks([ahead, behind]), 1_000_000) == [70]
    assert len(read([ahead, behind], 70)) == 71
    assert sum(reads(ahead).values()) == 2


def test_an_input_without_a_boundary_keeps_all_waiting() -> None:
    logs = [stream([[1, 2]], "a"), stream([], "b")]
    assert next_bounds(logs, fresh_marks(logs), 10) == [None]


def test_a_quiet_input_with_a_heartbeat_lets_the_others_go_on() -> None:
    rng = Random(3)
    feeds = [Feed(rng, n, 1, ManualClock(0)) for n in range(2)]
    feeds[0].append(30)
    while (feeds[1].log.state.boundary or 0) <= 60 + feeds[0].now:
        feeds[1].beat()
    assert next_bounds([f.log for f in feeds], fresh_marks([f.log for f in feeds]), 1000) == [
        feeds[0].log.state.boundary
    ]


@pytest.mark.parametrize("apart", [3, 10, 50])
def test_a_piece_knows_places_inside_of_it_at_which_a_replay_can_begin(
    apart: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serialised_input, "_EDGE_EVERY", apart)
    rng = Random(apart)
    own = [sorted(rng.randrange(60) for _ in range(200)) for _ in range(2)]
    own[0][100:130] = [own[0][100]] * 30  # more of one time than lie between two places
    logs = [stream([sorted(times)]) for times in own]
    times = sorted(t for log in own for t in log)
    for rows in (70, 1000):
        found = list(pieces([InputStream(log, ("v", "t")) for log in logs], 0, BEGIN, 60, rows))
        edges = [edge for piece in found for edge in piece.edges]
        assert edges == sorted(set(edges), key=lambda e: e.ordinal)
        for m, b in ((edge.ordinal, edge.bound) for edge in edges):
            assert times[m - 1] < b <= times[m], "all before it and nothing else comes before"
        known = [0, *sorted(e.ordinal for e in edges), *(piece.end for piece in found)]
        most = max(times.count(t) for t in times)
        assert max(b - a for a, b in itertools.pairwise(sorted(known))) <= 2 * apart + most


def test_edges_are_few_and_lead_back_to_a_place_before_the_one_asked_for() -> None:
    edges = Edges([BEGIN])
    for m in range(1, 5_000):
        edges.add(Position(m * 10, m))
    assert len(edges.words) <= EDGES_MAX
    edges = Edges.of_words(edges.words)
    for ordinal in (5, 2_000, 30_000, 49_990):
        found = edges.before(ordinal)
        assert found.ordinal <= ordinal
        assert ordinal - found.ordinal <= 1_000
    edges.add(Position(49_990, 7_777))
    assert edges.before(60_000) == Position(49_990, 7_777)


def test_marks_survive_their_json() -> None:
    marks = Marks(Position(7, 20), BEGIN, (InputMark(1, 0, 5, "xxh3:1"), InputMark(2, 2)))
    assert Marks.from_json(json.loads(json.dumps(marks.to_json()))) == marks
    standing = Standing(input=7, commit=-1, open=2, oldest=3, extent=0, replay=4)
    assert "marks" not in standing.to_json(), "as streams of one input have always been written"
    for each in (standing, replace(standing, marks=marks)):
        assert Standing.from_json(json.loads(json.dumps(each.to_json()))) == each


def test_one_table_holds_all_tuples_in_order_and_says_whose_they_are() -> None:
    inputs = [InputStream(log, ("v",)) for log in (stream([[1, 3, 5]]), stream([[2, 3]]), stream([[1]]))]
    (piece,) = pieces(inputs, 0, BEGIN, 9, 100)
    table = one_table(piece.tables, [["v"]] * 3, numbered=True)
    assert table.column("_offset").to_pylist() == list(range(6))
    assert table.column("_input").to_pylist() == [0, 2, 1, 0, 1, 0]
    assert one_table(piece.tables, [["v"]] * 3).column("v").to_pylist() == [0, 0, 0, 1, 1, 2]
    empty = [t.slice(0, 0) for t in piece.tables]
    assert len(one_table(empty, [["v"]] * 3)) == 0
    assert isinstance(one_table(empty, [["v"]] * 3), pa.Table)


class GroupReads:
    """Counts tuples of row groups as they are read, not before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tuples = 0
        read = RowGroup.read

        def counted(group: RowGroup, columns: Sequence[str]) -> pa.Table:
            self.tuples += group.rows
            return read(group, columns)

        monkeypatch.setattr(RowGroup, "read", counted)


def test_row_groups_outside_of_the_times_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.log.stream.block.ROWS_PER_GROUP", 100)
    log, counted = stream([range(1_000)]), GroupReads(monkeypatch)
    assert read([log, stream([[0]])], 350, begin=Position(250, 250)) == [(0, v) for v in range(250, 350)]
    assert counted.tuples == 200


def test_an_input_far_ahead_is_read_by_what_is_wanted_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.log.stream.block.ROWS_PER_GROUP", 100)
    monkeypatch.setattr(block_slice, "BYTES_HELD_MAX", 0)
    ahead, behind = stream([range(i * 100, i * 100 + 100) for i in range(200)], "ahead"), stream([[0]], "behind")
    compact(ahead, target_bytes=1 << 20, blocks_min=2)
    (block,) = ahead.blocks(0)
    storage = ahead.storage
    assert isinstance(storage, WatchedStorage)
    costs = []
    for bound in range(0, 10_000, 100):
        storage.bytes_read = 0
        assert len(read([ahead, behind], bound + 100, begin=Position(bound + (bound > 0), bound or None))) >= 100
        costs.append(storage.bytes_read)
    assert block.size_bytes <= costs[0] <= 1.1 * block.size_bytes, "verified once, as a whole"
    assert max(costs[1:]) < block.size_bytes / 50


def test_what_rots_after_the_block_was_verified_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_slice, "BYTES_HELD_MAX", 0)
    log, other = stream([range(500)], "rotten"), stream([[0]])
    assert len(read([log, other], 100)) == 101
    (block,) = log.blocks(0)
    data = bytearray(log.storage.read(block.file))
    (group,) = OpenBlock(log, block).groups()
    spot = (group.opened._contents.parts[0][1].begin + group.opened._contents.parts[0][1].end) // 2
    data[spot] ^= 4
    log.storage.put(block.file, bytes(data))
    with pytest.raises(CorruptBlockError, match="not what they were"):
        read([log, other], 200, begin=Position(101, 100))


def test_tuples_of_one_time_are_not_all_in_memory_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.log.stream.block.ROWS_PER_GROUP", 10)
    logs = [stream([[5] * 50] * 10, f"day{n}") for n in range(3)]
    inputs = [InputStream(log, ("v", "t")) for log in logs]
    counted, found, edges = GroupReads(monkeypatch), [], []
    for piece in pieces(inputs, 0, BEGIN, 6, 20):
        assert counted.tuples - len(found) <= 30, "a piece, and a row group"
        found += places(piece)
        edges.append(piece.boundary)
    assert found == [(n, v) for n in range(3) for v in range(500)]
    assert edges == [None] * (len(edges) - 1) + [6], "a step cannot end among them"


def test_a_time_that_does_not_fit_ends_the_piece_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.log.stream.block.ROWS_PER_GROUP", 10)
    inputs = [
        InputStream(stream([[1, 2, 3, *([5] * 47)], [5] * 50]), ("v", "t")),
        InputStream(stream([[5]]), ("v", "t")),
    ]
    found = [(piece.end, piece.boundary) for piece in pieces(inputs, 0, BEGIN, 9, 20)]
    assert (3, 5) in found
    assert found[-1] == (101, 9)


def test_wide_overlaps_are_read_by_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.log.stream.block.ROWS_PER_GROUP", 10)
    logs = [stream([range(0, 1_000, 2), range(1, 1_000, 2)], f"wide{n}", lateness=1_000) for n in range(2)]
    inputs = [InputStream(log, ("v", "t")) for log in logs]
    counted, found = GroupReads(monkeypatch), 0
    for piece in pieces(inputs, 0, BEGIN, 1_000, 50):
        assert counted.tuples - found <= 50 + 4 * 20
        found += piece.tuples
    assert found == 2_000


@pytest.mark.parametrize("before", range(12))
def test_compaction_among_tuples_of_one_time_makes_no_double(monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    monkeypatch.setattr("strandline.log.stream.block.ROWS_PER_GROUP", 10)
    logs = [stream([[1, *([5] * 24)], [5] * 25, [*([5] * 20), *([6] * 5)]], f"s{n}") for n in range(2)]
    inputs = [InputStream(log, ("v", "t")) for log in logs]
    found: list[Place] = []
    for i, piece in enumerate(pieces(inputs, 0, BEGIN, 7, 15)):
        found += places(piece)
        if i == before:
            monkeypatch.setattr("strandline.log.stream.block.ROWS_PER_GROUP", 7)
            for log in logs:
                _compacted(Log.open(log.storage, ManualClock(2_000_000)))
    fives = [(n, v) for n in (0, 1) for v in range(1, 70)]
    assert found == [(0, 0), (1, 0), *fives, *((n, v) for n in (0, 1) for v in range(70, 75))]


def test_pieces_are_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.log.stream.block.ROWS_PER_GROUP", 10)
    logs = [stream([range(500)], f"wide{n}") for n in range(2)]
    inputs = [InputStream(log, ("v", "t")) for log in logs]
    whole = [place for piece in pieces(inputs, 0, BEGIN, 500, 1_000) for place in places(piece)]
    monkeypatch.setattr(one_stream, "PIECE_BYTES_MAX", 1_000)
    counted, found = GroupReads(monkeypatch), []
    for piece in pieces(inputs, 0, BEGIN, 500, 1_000):
        assert sum(table.nbytes for table in piece.tables) <= 1_000
        assert counted.tuples - len(found) <= 100
        found += places(piece)
    assert found == whole


@pytest.mark.parametrize("reach", ["to the same end", "a little further each"])
def test_the_work_for_overlapping_blocks_grows_with_their_number_and_not_with_its_square(reach: str) -> None:
    def work(blocks: int) -> int:
        end = blocks * 4
        times = [[i, end if reach == "to the same end" else i + end // 2] for i in range(blocks)]
        inputs = [InputStream(stream(times, lateness=end), ("v", "t"), 0), InputStream(stream([[0]]), ("v", "t"))]
        calls = 0

        def count(frame: Any, event: str, _: Any) -> None:
            nonlocal calls
            calls += event == "call" and frame.f_code.co_filename in LOOKED_AT

        sys.setprofile(count)
        try:
            found = sum(piece.tuples for piece in pieces(inputs, 0, BEGIN, END_OF_TIME, 1 << 17))
        finally:
            sys.setprofile(None)
        assert found == 2 * blocks + 1
        return calls

    assert work(160) < 2.5 * work(80)


LOOKED_AT = (input_stream.__file__, serialised_input.__file__)
