"""Columns that are added to a stream: who reads what, who is refused, and what a crash leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from strandline.clock import ManualClock
from strandline.errors import (
    CorruptManifestError,
    FormatVersionError,
    OptionError,
    SchemaError,
    SecondWriterError,
    StreamFinishedError,
)
from strandline.inputs.input import InputSlice
from strandline.inputs.one_stream import OneStream
from strandline.log.audit.stream_audit import verify
from strandline.log.index.index import Snapshot
from strandline.log.operator_state.input_mark import Position
from strandline.log.storage.storage import Storage
from strandline.log.stream import commit_kinds, manifest, quiet, schema_change
from strandline.log.stream.append_commit import Append
from strandline.log.stream.commit_kinds import SchemaCommit
from strandline.log.stream.log import Log
from strandline.log.stream.partial_log import PartialLog
from strandline.log.stream.spec import StreamSpec
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.dropping import drop_commits
from strandline.operators.aggregate import aggregates as agg
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.aggregate.windows import count_window
from strandline.testing import Crash, FaultPlan, FaultyStorage, MemoryStorage
from tests.support.operator_streams import append_rows, input_spec, struct, write_rows

COLUMNS = [("k", "long"), ("t", "long"), ("v", "long")]
MORE = [*COLUMNS, ("note", "string"), ("w", "double")]
CLOCK = ManualClock(1_000_000)


def spec(columns: Sequence[tuple[str, Any]]) -> StreamSpec:
    return replace(input_spec(["k"], 1), schema=struct(columns))


def created(storage: Storage, columns: Sequence[tuple[str, Any]], evolution: str | None = "add") -> Log:
    return schema_change.created(storage, spec(columns), evolution, CLOCK)


def row(i: int, **more: Any) -> dict[str, Any]:
    return {"k": 1, "t": i, "v": 10 * i, **more}


def evolved(storage: Storage, before: int = 3) -> Log:
    """Some commits of old tuples and one of new ones."""
    log = created(storage, COLUMNS)
    for i in range(before):
        append_rows(log, {0: [row(i)]})
    log = created(storage, MORE)
    append_rows(log, {0: [row(before, note="new", w=0.5), row(before + 1, note=None, w=1.5)]})
    return log


def notes(log: Log, columns: list[str] | None = None) -> list[Any]:
    return [r["note"] for table in log.read(0, columns=columns) for r in table.to_pylist()]


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage(CLOCK)


NOTES = [None, None, None, "new", None]


def test_old_blocks_have_nulls_in_new_columns(storage: MemoryStorage) -> None:
    for log in (evolved(storage), Log.open(storage)):
        assert log.spec.columns == ("k", "t", "v", "note", "w")
        assert notes(log) == notes(log, ["note"]) == notes(log, ["w", "note"]) == NOTES
    assert b"note" not in storage.read("stream.json")
    assert verify(Log.open(storage)).problems == ()


def test_compaction_joins_old_and_new_blocks(storage: MemoryStorage) -> None:
    log = evolved(storage)
    assert compact(log, blocks_min=2).blocks_after == 1
    assert notes(Log.open(storage)) == NOTES
    assert verify(Log.open(storage)).problems == ()


def test_tuples_of_the_side_log_have_the_new_columns_too(storage: MemoryStorage) -> None:
    log = created(storage, COLUMNS)
    log.append(Append([write_rows(log, 1, 0, [row(1)], "late")]))
    log = created(storage, MORE)
    log.append(Append([write_rows(log, 1, 1, [row(2, note="late", w=None)], "later")]))
    assert [r["note"] for table in log.read(1) for r in table.to_pylist()] == [None, "late"]


def test_what_commits_add_survives_folding_dropping_and_a_lost_index(storage: MemoryStorage) -> None:
    log = evolved(storage)
    log.fold()
    assert notes(Log.open(storage)) == NOTES
    drop_commits(log, keep_commits=0, keep_us=0, every=1)
    log.fold()
    drop_commits(log, keep_commits=0, keep_us=0, every=1)
    assert "commits/00000000000000000003.json" not in {listed.key for listed in storage.list("commits")}
    assert notes(Log.open(storage)) == NOTES
    storage.delete("snapshots/root.json")
    assert notes(Log.open(storage)) == NOTES
    assert verify(Log.open(storage)).problems == ()


def test_a_task_that_gets_the_stream_as_text_reads_old_and_new_blocks(storage: MemoryStorage) -> None:
    log = evolved(storage)
    sent = StreamSpec.from_json(log.spec.to_json(), "here")
    assert sent == log.spec
    assert notes(PartialLog(storage, sent, list(log.blocks(0)))) == NOTES
    # One that was told before reads what it knows of.
    before = PartialLog(storage, spec(COLUMNS), list(log.blocks(0)))
    assert [r["v"] for table in before.read(0) for r in table.to_pylist()] == [0, 10, 20, 30, 40]


def test_an_operator_over_the_stream_takes_the_new_column_in(storage: MemoryStorage) -> None:
    aggregates = {"mean": agg.avg("w"), "n": agg.count_all(), "least": agg.min("v")}
    operator = AggregateDefinition.of(count_window(5), aggregates, dict(MORE), ["k"], "t").fresh()
    operator.begin()
    found = [
        pa.table(columns, names=[name for name, _ in operator.definition.result_columns]).to_pylist()
        for piece in OneStream(operator.definition, evolved(storage)).ahead(
            InputSlice(Position(0, None), 5, None, 5), 0, 0, rows=2
        )
        for columns in operator.feed(piece.tables)
    ]
    assert found == [[{"k": 1, "window_start": 0, "window_end": 4, "mean": 1.0, "n": 5, "least": 0}]]


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ([("note", "string"), *COLUMNS], "put the new columns last"),
        ([*COLUMNS[:2], ("note", "string")], "'v' is missing"),
        ([*COLUMNS[:2], ("v", "string"), ("note", "string")], "'v' is string"),
        ([*COLUMNS, ("note", "void")], "cannot hold"),
        ([*COLUMNS, ("V", "string")], "same name"),
        ([*COLUMNS, ("_offset", "long")], "reserved"),
    ],
)
def test_everything_but_columns_at_the_end_stays_refused(storage: MemoryStorage, columns: Any, what: str) -> None:
    created(storage, COLUMNS)
    with pytest.raises(SchemaError, match=what):
        created(storage, columns)
    assert list(storage.list("commits")) == []


def test_by_default_new_columns_are_refused_and_the_refusal_says_how_they_are_not(storage: MemoryStorage) -> None:
    created(storage, COLUMNS)
    with pytest.raises(SchemaError, match="'note' is not in the stream") as error:
        created(storage, MORE, None)
    assert 'schema_evolution="add"' in error.value.todo
    with pytest.raises(SchemaError) as error:
        created(storage, COLUMNS[:2], None)
    assert "schema_evolution" not in error.value.todo


def test_a_program_that_lacks_a_column_is_refused(storage: MemoryStorage) -> None:
    evolved(storage)
    for evolution in (None, "add"):
        with pytest.raises(SchemaError, match="'note' is missing; 'w' is missing"):
            created(storage, COLUMNS, evolution)


def test_a_finished_stream_gets_no_columns(storage: MemoryStorage) -> None:
    quiet.finish(created(storage, COLUMNS), "run")
    with pytest.raises(StreamFinishedError):
        created(storage, MORE)


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(OptionError, match="schema_evolution='merge'"):
        schema_change.checked_evolution("merge")


def test_a_writer_with_the_old_columns_is_a_second_writer(storage: MemoryStorage) -> None:
    old = created(storage, COLUMNS)
    append_rows(old, {0: [row(0)]})
    block = write_rows(old, 0, 1, [row(1)], "old")
    created(storage, MORE)
    with pytest.raises(SecondWriterError):
        old.append(Append([block]))
    assert notes(Log.open(storage)) == [None]


def test_two_that_add_the_same_at_once_add_it_once(storage: MemoryStorage) -> None:
    first, second = created(storage, COLUMNS), Log.open(storage, ManualClock(2_000_000))
    assert schema_change.add_columns(first, spec(MORE)) is not None
    assert schema_change.add_columns(second, spec(MORE)) is None
    assert second.spec == first.spec


# ---------------------------------------------------------------------- format, crashes


def test_a_library_that_knows_of_no_added_columns_stops(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = evolved(storage)
    log.fold()
    root = storage.read("snapshots/root.json")
    monkeypatch.setattr(manifest, "_READABLE", (1, 2))
    with pytest.raises(FormatVersionError):
        commit_kinds.decode(storage.read(manifest.commit_key(3)), "here")
    with pytest.raises(FormatVersionError):
        Snapshot.decode(root, "here")
    with pytest.raises(FormatVersionError):
        Log.open(storage)


def test_a_commit_that_adds_what_is_there_cannot_follow(storage: MemoryStorage) -> None:
    log = evolved(storage)
    again = SchemaCommit(log.state.seq + 1, log.spec.id, 0, columns=({"name": "Note", "type": "string"},))
    with pytest.raises(CorruptManifestError, match="one of that name twice"):
        log.state.apply(again)
    with pytest.raises(CorruptManifestError, match="adds 'v' as string"):
        log.spec.with_added([{"name": "v", "type": "string"}])


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_storage_call_leaves_the_old_columns_or_the_new_ones(after: bool) -> None:
    call = 0
    while True:
        call += 1
        storage = FaultyStorage(MemoryStorage(CLOCK), Random(call))
        append_rows(created(storage.other_process(), COLUMNS), {0: [row(0)]})
        process = storage.other_process(FaultPlan(crash_at_call=call, crash_after=after))
        try:
            log = created(process, MORE)
            append_rows(log, {0: [row(1, note="new", w=None)]})
            has_ended = True
        except Crash:
            has_ended = False
        storage.power_loss()
        found = Log.open(storage.other_process(), CLOCK)
        assert found.spec.columns in (("k", "t", "v"), ("k", "t", "v", "note", "w"))
        assert has_ended <= (found.state.ends[0] == 2)
        log = created(storage.other_process(), MORE)
        if log.state.ends[0] == 1:
            block = write_rows(log, 0, 1, [row(1, note="new", w=None)], "again")
            log.append(Append([block]))
        assert notes(Log.open(storage.other_process(), CLOCK)) == [None, "new"]
        assert len(list(storage.other_process().list("commits"))) == 3
        if has_ended:
            break
    assert call > 5
