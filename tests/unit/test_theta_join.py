"""Theta joins: a tuple meets all tuples of the other side's window, and a condition says which pairs count."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import strandline as sl
from strandline.errors import InputError, OptionError, SchemaError
from strandline.operators.join import join_operator
from strandline.operators.join.definition import JoinDefinition, JoinInput
from strandline.operators.join.join_windows import JoinWindows, join_windows
from strandline.operators.join.predicate import Predicate

MIDNIGHT = dt.datetime(2026, 1, 1)


def feed(columns: str, **options: Any) -> Any:
    given = {"key": "id", "time": "at", "lateness": "5 s", "partitions": 1, **options}
    return sl.testing.stream(f"id long, at timestamp, {columns}", **given)


def at(second: int) -> str:
    return str(MIDNIGHT + dt.timedelta(seconds=second))


def finished(*streams: Any) -> None:
    for stream in streams:
        stream.finish()


def test_a_tuple_meets_the_whole_window_whatever_the_keys_are() -> None:
    orders, payments = feed("amount double"), feed("paid double")
    join = orders.join(
        payments,
        left=sl.count_window(2),
        right=sl.count_window(0),
        per="partition",
        match="any",
        where=lambda left, right: left.amount <= right.paid,
    )
    run = sl.testing.run(join)
    orders.add([(1, at(1), 5.0), (2, at(2), 7.0), (3, at(3), 1.0), (None, at(6), 2.0)])
    payments.add([(9, at(4), 6.0), (None, at(5), 7.5), (9, at(7), 2.0)])
    finished(orders, payments)
    found = [(r["id"], r["right_id"], r["amount"], r["paid"]) for r in run.step().to_pylist()]
    assert found == [(3, 9, 1.0, 6.0), (2, None, 7.0, 7.5), (3, None, 1.0, 7.5), (3, 9, 1.0, 2.0), (None, 9, 2.0, 2.0)]
    assert run.results.column_names[:7] == ["id", "time", "left_at", "amount", "right_id", "right_at", "paid"]
    assert "join of the last 2 of left and the last 0 of right, of a partition, whatever the keys" in repr(join)


def test_a_band_of_any_keys_lets_tuples_come_out_alone_under_their_own_key() -> None:
    orders, payments = feed("amount double"), feed("paid double")
    join = orders.join(payments, within=("0 s", "5 s"), how="full", per="partition", match="any")
    run = sl.testing.run(join.where(lambda left, right: left.amount == right.paid))
    orders.add([(1, at(0), 5.0), (2, at(1), 7.0)])
    payments.add([(8, at(5), 5.0), (9, at(6), 5.0)])
    finished(orders, payments)
    found = {(r["id"], r["right_id"], r["amount"], r["paid"]) for r in run.step().to_pylist()}
    assert found == {(1, 8, 5.0, 5.0), (2, None, 7.0, None), (9, 9, None, 5.0)}
    assert "full join, right 0 s to 5 s after left, whatever the keys" in repr(join)


def test_without_a_condition_all_pairs_of_a_window_count_and_a_crash_changes_nothing() -> None:
    orders, payments = feed("amount double"), feed("paid double")
    join = orders.join(payments, left=sl.count_window(3), right=sl.count_window(1), per="partition", match="any")
    run = sl.testing.run(join.checkpoint(sl.cec(replay=1)))
    expected = []
    for i in range(12):
        orders.add([(i, at(2 * i), float(i))])
        payments.add([(i, at(2 * i + 1), float(i))])
        expected += [(i, i - 1)] if i else []
        expected += [(j, i) for j in range(max(0, i - 2), i + 1)]
        run.step()
        run.crash()
    finished(orders, payments)
    run.step()
    assert [(r["id"], r["right_id"]) for r in run.rows] == expected
    assert run.recoveries > 5


@pytest.mark.parametrize("room", [3, 1 << 17])
def test_a_pair_for_which_the_condition_raises_stops_the_join_or_is_set_aside_once(
    monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr(join_operator, "PAIRS_MAX", room)
    windows = {"left": sl.count_window(4), "right": sl.count_window(3), "per": "partition", "match": "any"}
    found: list[Any] = []
    for on_error in ("stop", "set_aside"):
        orders, payments = feed("n long"), feed("m long")
        join = orders.join(payments, **windows, where=lambda left, right: 12 // (left.n - right.m) > 0)
        run = sl.testing.run(join, on_error=on_error)
        orders.add([(i, at(i), i) for i in range(4)])
        payments.add([(7, at(5 + i), i) for i in range(4)])
        orders.add([(7, at(10), 3)])
        finished(orders, payments)
        if on_error == "stop":
            with pytest.raises(InputError, match=r"where raised ZeroDivisionError") as refused:
                run.step()
            assert "id=0" in refused.value.where
            assert "right_id=7" in refused.value.where
            continue
        run.step()
        found = run.rows
        aside = run.set_aside.to_pylist()
        assert [(r["n"], r["m"], r["_reason"]) for r in aside] == [
            *((i, i, "where") for i in range(4)),
            (3, 3, "where"),
        ]
        run.crash()
        run.step()
        assert run.set_aside.num_rows == 5
    kept = [(n, m) for m in range(4) for n in range(4)] + [(3, m) for m in (1, 2, 3)]
    assert [(r["n"], r["m"]) for r in found] == [(n, m) for n, m in kept if n != m and 12 // (n - m) > 0]


def test_texts_constants_and_nulls_of_a_condition_are_those_of_the_pair() -> None:
    one, other = feed("name string, tag string"), feed("name string")
    join = one.join(
        other,
        left=sl.count_window(0),
        right=sl.count_window(10),
        per="partition",
        match="any",
        where=lambda left, right: (left.name == right.name and left.id < right.id) or left.tag == "all",
    )
    run = sl.testing.run(join)
    names = ["a", "", "é", None, "a"]
    other.add([(i, at(i), name) for i, name in enumerate(names)])
    run.step()
    one.add([(0, at(20), "a", "x"), (0, at(21), "é", "all"), (3, at(22), "", "x"), (-1, at(23), None, "all")])
    finished(one, other)
    run.step()
    found = [(r["left_name"], r["right_name"], r["right_id"]) for r in run.rows]
    # A null in a column that the condition names makes it false.
    assert found == [("a", "a", 4), ("é", "a", 0), ("é", "", 1), ("é", "é", 2), ("é", "a", 4)]


def test_many_steps_with_wide_rows_give_what_a_nested_loop_gives() -> None:
    """The window is longer than a step, and a step than the window, and the ring is written over again and again."""
    kinds = {"id": "string", "at": "long", "n": "long", "text": "string"}
    side = JoinInput(kinds, ("id",), "at")
    windows = JoinWindows("partition", sizes=(50, 7), match="any")
    join = JoinDefinition.of(side, side, windows, lambda left, right: (left.n * right.n + left.at) % 7 == 0)
    rng, operator = np.random.default_rng(5), join.fresh()
    kept: tuple[list[Any], list[Any]] = [], []
    found, expected, place = [], [], 0
    for many in (1, 3, 200, 0, 17, 120, 1, 1, 90):
        sides = rng.integers(0, 2, many)
        rows = [
            {
                "id": f"key{i % 3}",
                "at": place + i,
                "n": int(rng.integers(0, 50)),
                "text": "x" * (i % 90),
                "_offset": place + i,
            }
            for i in range(many)
        ]
        place += many
        schema = pa.schema(
            [
                ("id", pa.string()),
                *((c, pa.int64()) for c in ("at", "n")),
                ("text", pa.string()),
                ("_offset", pa.int64()),
            ]
        )
        operator.begin()
        tables = [pa.Table.from_pylist([r for r, s in zip(rows, sides, strict=True) if s == k], schema) for k in (0, 1)]
        for columns in operator.feed(tables):
            names = [name for name, _ in join.result_columns]
            found += pa.table(list(columns), names=names).to_pylist()
        operator.end()
        for row, s in zip(rows, sides, strict=True):
            for old in kept[1 - s]:
                left, right = (old, row) if s else (row, old)
                if (left["n"] * right["n"] + left["at"]) % 7 == 0:
                    expected.append((left["at"], right["at"], left["id"], right["id"], left["text"], right["text"]))
            kept[s].append(row)
            del kept[s][: -windows.sizes[s]]
    assert len(expected) > 100
    names = ("left_at", "right_at", "id", "right_id", "left_text", "right_text")
    assert [tuple(r[n] for n in names) for r in found] == expected


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"match": "all"}, "match='all' is not known"),
        ({"match": "any"}, 'match="any" needs per="partition"'),
        ({"match": "any", "within": "5 s", "left": None, "right": None}, 'match="any" needs per="partition"'),
        ({"match": "any", "per": "partition", "how": "left"}, "how='left' needs within="),
        ({"match": "any", "per": "partition", "within": "5 s"}, "within= cannot be combined with these options"),
        (
            {"within": "5 s", "per": "partition", "left": None, "right": None},
            "within= cannot be combined with these options",
        ),
    ],
)
def test_windows_that_no_theta_join_has_are_refused(given: dict[str, Any], what: str) -> None:
    windows = {"left": sl.count_window(3), "right": sl.count_window(0), **given}
    with pytest.raises(OptionError, match=what):
        feed("n long").join(feed("m long"), **windows)


def test_a_condition_that_does_not_fit_is_refused_at_once() -> None:
    windows = {"left": sl.count_window(3), "right": sl.count_window(0), "per": "partition", "match": "any"}
    join = feed("n long, name string").join(feed("m long"), **windows)
    with pytest.raises(OptionError, match="left has no column 'm'"):
        join.where(lambda left, right: left.m > right.m)
    with pytest.raises(OptionError, match="texts can be compared with == and != only"):
        join.where(lambda left, right: left.name > "a")
    with pytest.raises(OptionError, match="it does not compile"):
        join.where(lambda left, right: print(left.n) is None and open("x") is None)  # noqa: SIM115
    with pytest.raises(OptionError, match="a join has one condition"):
        join.where(lambda left, right: left.n > right.m).where(lambda left, right: True)


def test_a_column_that_is_called_like_the_key_of_right_is_refused() -> None:
    windows = {"left": sl.count_window(3), "right": sl.count_window(0), "per": "partition", "match": "any"}
    with pytest.raises(SchemaError, match="two columns of the results would be called 'right_id'"):
        feed("right_id long").join(feed("m long"), **windows)


def test_what_is_met_is_part_of_the_identity_and_joins_by_key_say_what_they_ever_said() -> None:
    by_key, of_any = (
        join_windows(None, sl.count_window(3), sl.count_window(0), "partition", match=m) for m in ("key", "any")
    )
    assert by_key.to_json() == {"left": 3, "right": 0, "per": "partition"}
    assert of_any.to_json() == {"left": 3, "right": 0, "per": "partition", "match": "any"}
    band = join_windows("5 s", per="partition", match="any")
    assert band.to_json() == {"within": [-5_000_000, 5_000_000], "how": "inner", "match": "any"}
    for windows in (by_key, of_any, band):
        assert JoinWindows.from_json(windows.to_json()) == windows


def test_a_condition_with_nothing_to_name_holds_for_all_or_none() -> None:
    side = JoinInput({"id": "long", "at": "long"}, ("id",), "at")
    for always in (True, False):
        where = Predicate.of((lambda left, right: True) if always else (lambda left, right: False))
        join = JoinDefinition.of(side, side, JoinWindows("band", 0, 9, match="any"), where).fresh()
        join.begin()
        tables = [pa.table({"id": [1, 2], "at": [3, 4], "_offset": [0 + s, 2 + s]}) for s in (0, 1)]
        assert sum(len(columns[0]) for columns in join.feed(tables)) == (3 if always else 0)
