"""`where=` of an aggregate: which tuples it takes, and how a stream keeps to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from strandline.errors import FormatVersionError, InputError, OptionError, SchemaError, StreamMismatchError
from strandline.inputs.stream_definition import definition_of
from strandline.log.stream import spec as spec_
from strandline.log.stream.log import Log
from strandline.operators.aggregate import aggregates as agg
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.aggregate.windows import count_window, session_window
from strandline.running.state.state_cache import StateCache
from strandline.testing import MemoryStorage
from tests.support.operator_streams import Row, Streams, output_spec, plan, rows_table, set_aside, uninterrupted

POSITIVE = pc.field("v") > 0


def row(v: int | None, x: float | None = 1.0, time: int = 0) -> Row:
    return {"k": 1, "s": None if v is None else f"s{v}", "v": v, "x": x, "t": time}


def result(p: AggregateDefinition, rows: list[Row]) -> Row:
    (found,) = uninterrupted(p, rows, 1_000).to_pylist()
    return {name: found[name] for name in (a.name for a in p.accumulators)}


def test_every_aggregate_takes_the_tuples_for_which_its_condition_is_true() -> None:
    p = plan(
        count_window(6),
        ["k"],
        n=agg.count_all(where=POSITIVE),
        every=agg.count_all(),
        x=agg.count("x", where=POSITIVE),
        total=agg.sum("v", where=POSITIVE),
        least=agg.min("v", where=POSITIVE),
        other=agg.max("s", where=pc.field("v") < 0),
        first=agg.first("s", where=POSITIVE),
        last=agg.last("x", where=POSITIVE),
        all=agg.sum("v"),
    )
    rows = [row(-5), row(None), row(3), row(4, None), row(-7), row(0)]
    found = result(p, rows)
    assert found == {
        "n": 2, "every": 6, "x": 1, "total": 7, "least": 3, "other": "s-7", "first": "s3", "last": None, "all": -5,
    }  # fmt: skip


def test_nothing_that_counts_is_null_or_zero() -> None:
    p = plan(
        count_window(2), ["k"], n=agg.count_all(where=POSITIVE), total=agg.sum("v", where=POSITIVE),
        first=agg.first("s", where=POSITIVE), last=agg.last("s", where=POSITIVE),
    )  # fmt: skip
    assert result(p, [row(-1), row(None)]) == {"n": 0, "total": None, "first": None, "last": None}


def test_first_and_last_of_joined_sessions_go_by_the_tuples_that_count() -> None:
    p = plan(session_window(5), ["k"], first=agg.first("v", where=POSITIVE), last=agg.last("v", where=POSITIVE))
    times = [(0, -1), (10, 2), (1, 3), (5, -4)]  # the later session has the first that counts; the last joins them
    assert result(p, [row(v, time=t) for t, v in times]) == {"first": 2, "last": 3}


def test_what_is_no_condition_is_refused() -> None:
    for where in ("v > 0", True, 1):
        with pytest.raises(OptionError, match=r"sum\(where=…\)"):
            agg.sum("v", where=where)
    for where, text in ((pc.field("v") + 1, "not true or false"), (pc.field("w") > 0, "no column 'w'")):
        with pytest.raises(SchemaError, match=text):
            plan(count_window(2), ["k"], total=agg.sum("v", where=where))


def test_a_condition_is_part_of_what_a_stream_is() -> None:
    p = plan(count_window(2), ["k"], total=agg.sum("v", where=POSITIVE))
    assert p.to_json()["aggregates"] == {"total": ["sum", "v", "long", {"where": "(v > 0)"}]}
    storage = MemoryStorage()
    log = Log.create(storage, output_spec(p))
    assert definition_of(log.spec, "here").accumulators == p.accumulators
    assert definition_of(log.spec, "here").conditions[0].columns == ("v",)
    Log.create(storage, output_spec(plan(count_window(2), ["k"], total=agg.sum("v", where=pc.field("v") > 0))))
    for where in (None, pc.field("v") > 1):
        with pytest.raises(StreamMismatchError, match="another operator"):
            Log.create(storage, output_spec(plan(count_window(2), ["k"], total=agg.sum("v", where=where))))


def test_an_older_version_does_not_read_it_as_if_there_were_no_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    p = plan(count_window(2), ["k"], total=agg.sum("v", where=POSITIVE))
    data = replace(output_spec(p), format=spec_.SHAPED_FORMAT).to_json()
    monkeypatch.setattr(spec_, "_READABLE", (1, 2))
    with pytest.raises(FormatVersionError):
        spec_.StreamSpec.from_json(data, "here")


def test_a_tuple_for_which_it_cannot_be_computed_stops_the_operator_or_is_set_aside(tmp_path: Path) -> None:
    p = plan(count_window(2), ["k"], total=agg.sum("v", where=pc.scalar(10) / pc.field("v") > 0))
    rows: list[Any] = [row(2), row(0), row(5)]
    with pytest.raises(InputError, match="divide by zero"):
        list(p.fresh().feed([rows_table(rows)]))
    s = Streams(p, lambda _: StateCache(tmp_path / "cache"), on_error="set_aside")
    s.append(rows)
    s.drain()
    assert s.results().to_pylist() == [{"k": 1, "window_start": 0, "window_end": 2, "total": 7}]
    assert [r["_input"] for r in set_aside(s.output)["value"]] == [1]


def test_kernels_are_compiled_once_whatever_is_true() -> None:
    p = plan(count_window(2), ["k"], total=agg.sum("v", where=POSITIVE))
    operator = p.fresh()
    for first, rows in ((0, [row(1), row(2)]), (2, [row(None), row(-1)]), (4, [row(0)])):
        operator.begin()
        list(operator.feed([pa.concat_tables([rows_table(rows, first).slice(0, 1), rows_table(rows, first).slice(1)])]))
    assert len(p.step.signatures) == 1  # type: ignore[attr-defined]


def test_conditions_that_differ_in_a_type_only_are_two() -> None:
    whole, halves = agg.count_all(where=pc.field("v") / 2 > 1), agg.count_all(where=pc.field("v") / 2.0 > 1)
    p = plan(count_window(3), ["k"], n=whole, m=halves)
    assert result(p, [row(3), row(3), row(4)]) == {"n": 1, "m": 3}
    assert definition_of(output_spec(p), "here").conditions == p.conditions
