"""`where` and `select` before joins, barriers and unions: the same as if the streams had been like that all along."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import strandline as sl
from strandline.errors import OptionError, SchemaError, StreamMismatchError
from strandline.inputs.stream_definition import output_spec
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.operators.registry import from_json
from strandline.recovery.window_report import current_windows

POSITIVE = pc.field("n") > 0
TWICE = pc.field("n") * 2


def feed(schema: str, **options: Any) -> Any:
    return sl.testing.stream(schema, **{"key": "id", "time": "at", "lateness": 5, **options})


def readings(columns: str = "n long") -> Any:
    return feed(f"id long, at long, {columns}")


def rows_of(rng: Random, begin: int) -> list[tuple[int, int, int]]:
    return [(rng.randrange(3), begin + rng.randrange(5), rng.randint(-3, 3)) for _ in range(rng.choice([1, 4, 20]))]


def shaped_by_hand(rows: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    return [(k, t, 2 * n) for k, t, n in rows if n > 0]


def built(kind: str, a: Any, b: Any) -> Any:
    if kind == "join":
        return a.join(b, within=4, how="full").where(lambda left, right: left.m != right.m)
    if kind == "counts":
        return a.join(b, left=sl.count_window(2), right=sl.count_window(3))
    if kind == "barrier":
        return sl.barrier(a=a, b=b, at_most=3)
    return sl.union(a, b).window(sl.time_window(6)).aggregate(total=sl.sum("m"), n=sl.count_all())


@pytest.mark.parametrize("kind", ["join", "counts", "barrier", "union"])
@pytest.mark.parametrize("policy", [sl.cec(replay=3), sl.instant("1 hour")], ids=["cec", "instant"])
def test_a_shape_before_an_operator_is_as_good_as_a_stream_of_that_shape(kind: str, policy: Any) -> None:
    rng = Random(len(kind))
    stored, other, plain, plain_other = readings(), readings(), readings("m long"), readings("m long")
    left, right = (
        stored.where(POSITIVE).select("id", "at", m=TWICE),
        other.select("id", "at", m="n").where(pc.field("m") < 3),
    )
    run = sl.testing.run(built(kind, left, right).checkpoint(policy), max_tuples_per_batch=7)
    known = sl.testing.run(built(kind, plain, plain_other).checkpoint(policy))
    for begin in range(0, 100, 5):
        mine, theirs = rows_of(rng, begin), rows_of(rng, begin)
        stored.add(mine)
        other.add(theirs)
        plain.add(shaped_by_hand(mine))
        plain_other.add([row for row in theirs if row[2] < 3])
        if rng.random() < 0.6:
            run.step()
        if rng.random() < 0.3:
            run.crash()
        assert current_windows(run.input_log, run._inputs).num_rows == run.open_windows
    for source in (stored, other, plain, plain_other):
        source.finish()
    run.step()
    known.step()
    columns = [c for c in known.results.column_names if not c.startswith("_")]
    order = [(c, "ascending") for c in columns]
    assert run.results.num_rows > 10
    assert run.results.select(columns).sort_by(order).equals(known.results.select(columns).sort_by(order))
    assert run.set_aside.num_rows == known.set_aside.num_rows
    definition = run._element.definition
    again = from_json(definition.to_json(), dict(definition.key), {}, [("at", "long")] * 2) if kind != "union" else None
    assert again is None or again.to_json() == definition.to_json()


@pytest.mark.parametrize("kind", ["join", "barrier", "union"])
def test_tuples_that_cannot_be_computed_before_it_stop_it_or_are_set_aside_once(kind: str) -> None:
    def run(**options: Any) -> Any:
        a, b = readings(), readings()
        left = a.select("id", "at", m=pc.scalar(12) / pc.field("n"))
        made = sl.testing.run(
            built(kind, left, b.select("id", "at", m="n")).checkpoint(sl.instant("1 hour")), **options
        )
        a.add([(1, 3, 0), (1, 4, 6), (2, 5, 0)])
        b.add([(1, 4, 2), (2, 5, 3)])
        a.finish()
        b.finish()
        return made

    with pytest.raises(sl.InputError, match="a tuple cannot be computed: divide by zero"):
        run().step()
    made = run(on_error="set_aside", max_tuples_per_batch=1)
    made.step()
    made.crash()
    made.step()
    aside = made.set_aside.to_pylist()
    assert sorted((row["id"], row["_reason"]) for row in aside) == [(1, "value"), (2, "value")]
    times = [row["window_start"] if kind == "union" else row["time"] for row in aside]
    assert sorted(times) == [3, 5]


def test_another_shape_over_an_old_stream_is_refused(tmp_path: Path) -> None:
    a, b = readings(), readings()

    def spec(left: Any) -> Any:
        return output_spec(left.join(b, within=4).definition, a._input_spec)

    first = spec(a.where(POSITIVE))
    Log.create(LocalStorage(tmp_path), first)
    Log.create(LocalStorage(tmp_path), spec(a.where(pc.field("n") > 0)))
    with pytest.raises(
        StreamMismatchError, match=r"there is where \(n > 0\) in input 1, in this program where \(n > 1\)"
    ):
        Log.create(LocalStorage(tmp_path), spec(a.where(pc.field("n") > 1)))
    with pytest.raises(StreamMismatchError, match="in this program no where and no select"):
        Log.create(LocalStorage(tmp_path), spec(a))


def test_what_a_shape_must_keep_and_what_cannot_be_shaped_is_said() -> None:
    a, b = readings(), readings()
    with pytest.raises(SchemaError, match="leaves out 'at', the key or the time of the stream"):
        a.select("id", m="n").join(b, within=4)
    with pytest.raises(OptionError, match="left of the join is"):
        sl.union(a, b).where(POSITIVE).join(b, within=4)
    with pytest.raises(SchemaError, match="another one has no column 'm'"):
        sl.union(a.select("id", "at", m="n"), b).window(sl.time_window(6)).aggregate(total=sl.sum("m"))


def test_nested_columns_may_be_given_another_name() -> None:
    a, b = feed(pa.schema([("id", pa.int64()), ("at", pa.int64()), ("tags", pa.list_(pa.string()))])), readings()
    run = sl.testing.run(a.select("id", "at", words="tags").join(b, within=4))
    a.add([(1, 3, ["x", "y"])])
    b.add([(1, 4, 2)])
    a.finish()
    b.finish()
    (row,) = run.step().to_pylist()
    assert (row["words"], row["n"]) == (["x", "y"], 2)


def test_three_streams_are_joined_by_two_joins_whose_sides_all_have_a_column_time() -> None:
    orders, payments, parcels = (
        feed(f"id long, time timestamp, {column}", time="time", lateness="1 s")
        for column in ("amount double", "paid double", "weight double")
    )
    paid = sl.testing.run(orders.join(payments, within="10 s"))
    with pytest.raises(SchemaError, match="two columns of the results would be called 'left_time'"):
        paid.join(parcels, within="20 s")
    renamed = paid.select("id", "time", "amount", "paid", ordered="left_time")
    sent = sl.testing.run(renamed.join(parcels, within="20 s", how="left"))
    orders.add([(1, "2026-01-01 00:00:01", 5.0), (2, "2026-01-01 00:00:02", 7.0)])
    payments.add([(1, "2026-01-01 00:00:05", 5.0), (2, "2026-01-01 00:00:06", 7.0)])
    parcels.add([(1, "2026-01-01 00:00:15", 0.5)])
    for number, source in enumerate((orders, payments, parcels)):
        source.finish()
        paid.step()
        if number == 1:
            sent.crash()
        sent.step()
    assert [(r["id"], r["amount"], r["paid"], r["weight"]) for r in sorted(sent.rows, key=lambda r: r["id"])] == [
        (1, 5.0, 5.0, 0.5),
        (2, 7.0, 7.0, None),
    ]
    assert sent.results.column_names == ["id", "time", "left_time", "amount", "paid", "ordered", "right_time", "weight"]


EXAMPLES = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs" / "joins.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_examples_of_the_documentation_of_joins_print_what_they_say(
    code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(compile(code, "docs/joins.md", "exec"), {})
    assert capsys.readouterr().out == code.rstrip().rpartition("# ")[2] + "\n"


@pytest.mark.parametrize("kind", ["join", "counts", "barrier", "union"])
def test_a_computed_column_that_nobody_uses_is_not_computed(kind: str) -> None:
    sources = [readings("n long, unused long") for _ in range(2)]
    more = {"z": pc.field("unused") + 1}
    first = [source.select("id", "at", m=TWICE, **more) for source in sources]
    shaped = first if kind == "union" else [one.select("id", "at", "m") for one in first]
    run = sl.testing.run(built(kind, *shaped))
    for i, source in enumerate(sources):
        source.add([(1, 1, 5 + i, 0)])
        source.finish()
    run.step()
    assert run.results.num_rows == 1
    run.crash()
    assert run.step().num_rows == 0
