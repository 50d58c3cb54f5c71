"""`where` and `select` before an operator: what is read, computed and refused, and what stream.json says of it."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from strandline.errors import FormatVersionError, InputError, OptionError, SchemaError, StreamMismatchError
from strandline.inputs.stream_definition import definition_of
from strandline.log.stream import spec as spec_module
from strandline.log.stream.spec import SHAPED_FORMAT, StreamSpec
from strandline.operators.aggregate import aggregates as agg
from strandline.operators.aggregate.aggregate_operator import AggregateOperator
from strandline.operators.aggregate.windows import count_window
from strandline.operators.expressions.expressions import Formula
from strandline.operators.expressions.shape import AS_IS, Shape, Where
from tests.support.operator_streams import FAILING, PLANS, SCHEMA, output_spec, plan, rows_table, select, struct, where

K, V, X = pc.field("k"), pc.field("v"), pc.field("x")


def _rows(*values: int) -> list[dict[str, Any]]:
    return [{"k": 1, "s": "a", "v": v, "x": float(v), "t": i} for i, v in enumerate(values)]


def _results(operator: AggregateOperator, table: pa.Table) -> list[dict[str, Any]]:
    names = [name for name, _ in operator.definition.result_columns]
    return [row for columns in operator.feed([table]) for row in pa.table(columns, names=names).to_pylist()]


def test_a_count_window_counts_the_tuples_that_pass_and_keeps_their_offsets() -> None:
    operator = plan(count_window(2), ["k"], where(V > 0), total=agg.sum("v")).fresh()
    operator.begin()
    found = _results(operator, rows_table(_rows(-1, 5, -1, -1, 7, -2, 3, -1), first=100))
    assert found == [{"k": 1, "window_start": 101, "window_end": 104, "total": 12}]
    assert operator.input_end == 108


def test_steps_follow_each_other_in_any_order() -> None:
    shape = where(pc.field("twice") > 4, select("k", where(V > 0), twice=V * 2, x="x"))
    table = shape.over(rows_table(_rows(-9, 1, 2, 3)))
    assert table.to_pylist() == [{"k": 1, "t": 3, "twice": 6, "x": 3.0, "_offset": 3}]
    assert shape.types_over({}, SCHEMA) == {"k": "long", "t": "long", "twice": "long", "x": "double"}


def test_only_the_columns_that_are_needed_are_read_and_computed() -> None:
    shape = where(pc.field("a") > 0, select("k", a=V + 1, b=X * 2, c="s"))
    p = plan(count_window(2), ["k"], shape, n=agg.count("c"))
    assert sorted(p.reads[0]) == ["k", "s", "t", "v"]
    assert p.own_shaping.over(rows_table(_rows(1))).column_names == ["k", "t", "a", "c", "_offset"]


def test_key_and_time_have_to_stay_what_they_are() -> None:
    for how, given in (("leaves out 'k'", {"x": X}), ("changes 'k'", {"k": K + 1, "t": pc.field("t")})):
        with pytest.raises(SchemaError, match=how) as error:
            AS_IS.select([], given, SCHEMA, ["k", "t"])
        assert "rekey" in error.value.todo
    with pytest.raises(SchemaError, match="leaves out 't'"):
        AS_IS.select(["k"], {}, SCHEMA, ["k", "t"])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: where(pc.field("nothing") > 0), "there is no column 'nothing'"),
        (lambda: where(X * 2), "not true or false"),
        (lambda: where(pc.field("s") > 3), "cannot be computed"),
        (lambda: select("k", a="nothing"), "there is no column 'nothing'"),
        (lambda: select("k", a=pc.field("t").cast("uint64")), "which a stream cannot hold"),
        (lambda: select("k", _a=V), "reserved"),
        (lambda: where(pc.field("x") > 0, select("k", y=X)), "there is no column 'x'"),
    ],
)
def test_what_cannot_be_is_refused_at_once(wrong: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        wrong()


def test_what_is_no_expression_is_refused() -> None:
    with pytest.raises(OptionError, match="is not a pyarrow expression"):
        where("v > 0")
    with pytest.raises(OptionError, match="does not name a column"):
        AS_IS.select([V], {}, SCHEMA, [])


def test_a_tuple_that_cannot_be_computed_stops_the_operator_or_is_set_aside() -> None:
    rows = rows_table(_rows(900, 5, 600, 0, -900))
    operator = FAILING.fresh()
    operator.begin()
    with pytest.raises(InputError, match="divide by zero") as error:
        list(operator.feed([rows]))
    assert error.value.where == "input offset 1: k=1, s=a, v=5, x=5.0, t=1"
    with pytest.raises(InputError, match="divide by zero"):
        FAILING.shape.read(rows.drop_columns(["_offset"]))
    operator = FAILING.fresh("set_aside")
    operator.begin()
    list(operator.feed([rows]))
    assert operator.aside.tables["value"][0].column("_input").to_pylist() == [1, 3]
    assert operator.input_end == 5


@pytest.mark.parametrize("at", [[], [0], [99], [17, 18, 60], range(100)])
def test_rows_that_cannot_be_computed_are_found_each_and_the_first(at: Any) -> None:
    shape = select("k", v=V / (V - 1), w=V * 2)
    table = rows_table(_rows(*(1 if i in at else 5 for i in range(100))))
    assert shape.failing(table).tolist() == list(at)
    assert shape.failing(table, only_first=True).tolist() == list(at)[:1]


def test_to_stop_takes_a_few_tries_however_many_tuples_cannot_be_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []
    over = Formula.over
    monkeypatch.setattr(Formula, "over", lambda formula, table: tries.append(1) or over(formula, table))
    table = rows_table(_rows(*[5] * 1_000, *[0] * 3_000))
    operator = FAILING.fresh()
    operator.begin()
    with pytest.raises(InputError, match="divide by zero"):
        list(operator.feed([table]))
    assert len(tries) < 200


@pytest.mark.parametrize("on_error", ["stop", "set_aside"])
def test_tuples_are_not_blamed_for_an_expression_that_works_for_none(on_error: Any) -> None:
    wrong = Shape((Where(Formula.of(pc.field("x") > pc.scalar(1) / 0, "x")),))  # as on a machine that lacks something
    for shape, given in ((wrong, None), (AS_IS, pc.field("x") > pc.scalar(1) / 0)):
        p = plan(count_window(2), ["k"], n=agg.count_all(where=X > 0))
        if given is not None:
            broken = replace(p.accumulators[0].aggregate, where=Formula.of(given, "x"))
            p = replace(p, accumulators=(replace(p.accumulators[0], aggregate=broken),))
        operator = replace(p, shape=shape).fresh(on_error)
        operator.begin()
        with pytest.raises(SchemaError, match="cannot be computed"):
            list(operator.feed([rows_table(_rows(1, 2, 3))]))
        assert not operator.aside.tables


def test_the_advice_about_a_division_by_zero_works() -> None:
    rows = rows_table(_rows(3, 0))
    with pytest.raises(pa.ArrowInvalid):
        select("k", y=pc.if_else(V != 0, V / V, 0)).over(rows)
    error = select("k", y=V / V).error(rows, 1)
    assert "where(pc.field(" in error.todo
    assert select("k", where(V != 0), y=V / V).over(rows).column("y").to_pylist() == [1]


# ---------------------------------------------------------------------- stream.json


@pytest.mark.parametrize("name", ["where, count", "select and where, session"])
def test_a_plan_comes_back_from_stream_json_and_from_a_pickle(name: str) -> None:
    p = PLANS[name]
    data = replace(output_spec(p), format=SHAPED_FORMAT).to_json()
    again = definition_of(StreamSpec.from_json(data, "here"), "here")
    assert again.shape == p.shape
    rows = rows_table(_rows(1, -600, 30))
    assert again.shape.over(rows).equals(p.shape.over(rows))
    assert pickle.loads(pickle.dumps(p)) == p
    assert hash(pickle.loads(pickle.dumps(p))) == hash(p)


def test_another_expression_over_an_old_stream_is_refused() -> None:
    def stream(shape: Shape) -> StreamSpec:
        return output_spec(plan(count_window(2), ["k"], shape, n=agg.count_all()))

    ours = stream(where(V > 0))
    ours.require_same(stream(where(V > 0)), "here")
    for other, words in (
        (where(V > 1), r"before it there is where \(v > 0\), in this program where \(v > 1\)"),
        (where(V > 0.0), r"\(v > 0\).*\(v > 0\.0\)"),
        (AS_IS, "in this program no where and no select"),
    ):
        with pytest.raises(StreamMismatchError, match=words):
            ours.require_same(stream(other), "here")
    with pytest.raises(StreamMismatchError, match="there is no where and no select, in this program where"):
        stream(AS_IS).require_same(ours, "here")


def test_expressions_that_differ_in_a_type_only_are_two() -> None:
    shape = select("k", whole=V / 2, exact=V / 2.0)
    p = plan(count_window(1), ["k"], shape, whole=agg.sum("whole"), exact=agg.sum("exact"))
    again = definition_of(replace(output_spec(p), format=SHAPED_FORMAT), "here")
    for one in (p.shape, again.shape):
        assert [(r["whole"], r["exact"]) for r in one.over(rows_table(_rows(3))).to_pylist()] == [(1, 1.5)]
    shapes = [where(e) for e in (V > 2, V > 2.0, pc.greater(V, pa.scalar(2, pa.int8())))]
    plans = [plan(count_window(1), ["k"], shape, total=agg.sum("v")) for shape in shapes]
    assert len(set(plans)) == 3, "workers keep what they have compiled by plans"


def test_an_operator_goes_on_where_another_arrow_has_called_its_expressions_otherwise() -> None:
    p = plan(count_window(2), ["k"], where(V > 0, select("k", v=V / 2)), n=agg.sum("v", where=V < 9))
    ours = output_spec(p).operator
    assert ours is not None
    renamed = {text: f"old {text}" for text in ours["expressions"]}
    stored = {
        "window": ours["window"],
        "aggregates": {"n": ["sum", "v", "long", {"where": renamed["(v < 9)"]}]},
        "shape": [{"select": {n: renamed[n if n != "v" else "(v / 2)"] for n in "ktv"}}, {"where": renamed["(v > 0)"]}],
        "expressions": {renamed[text]: arrow for text, arrow in ours["expressions"].items()},
        "footprints": ours["footprints"],
    }
    assert p.continuing(stored) == p
    output_spec(p.continuing(stored)).require_same(replace(output_spec(p), operator=stored), "here")
    assert p.continuing(ours).to_json() == p.to_json()


def test_a_rekeyed_stream_is_made_of_the_same_stream_in_the_same_shape() -> None:
    def stream(shape: Shape | None, made_of: str = "5f") -> StreamSpec:
        facts = {"stream": made_of, "path": "items"}
        upstream = None if shape is None else {**facts, "shape": shape.to_json(), "expressions": {}}
        return StreamSpec("other", struct([("k", "long"), ("t", "long")]), ("k",), "t", 1, upstream=upstream)

    ours = stream(where(V > 0))
    ours.require_same(stream(where(V > 0)), "here")
    for other, words in (
        (stream(where(V < 0)), r"by rekey of items \(5f\), where \(v > 0\), .* where \(v < 0\)"),
        (stream(where(V > 0), "77"), r"by rekey of items \(5f\).*by rekey of items \(77\)"),
        (stream(AS_IS), r"makes it by rekey of items \(5f\)$"),
        (stream(None), "makes it without rekey"),
    ):
        with pytest.raises(StreamMismatchError) as error:
            ours.require_same(other, "here")
        assert re.search(words, error.value.what)
    older = replace(stream(None), upstream={"format": "rate"})
    older.require_same(stream(None), "here")


def test_a_column_is_plain_whatever_its_name_is() -> None:
    schema = pa.schema([("a b", pa.int64()), ("t", pa.int64()), ("list", pa.list_(pa.int64()))])
    shape = AS_IS.select(["a b", "t", "list"], {}, schema, ["a b", "t"])
    assert shape.schema_over(schema) == schema


def test_how_arrow_writes_an_expression_does_not_count() -> None:
    ours = output_spec(PLANS["where, count"])
    other = {**(ours.operator or {}), "expressions": {"(x > -0.3)": "written by another Arrow"}}
    ours.require_same(replace(ours, operator=other), "here")


def test_a_library_that_knows_of_no_shapes_does_not_touch_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    data = replace(output_spec(PLANS["where, count"]), format=SHAPED_FORMAT).to_json()
    monkeypatch.setattr(spec_module, "_READABLE", (1, 2))
    with pytest.raises(FormatVersionError, match="format version 3"):
        StreamSpec.from_json(data, "here")
