"""Keyed functions as a program writes them, on streams of the testing kit: results, recoveries, refusals, errors."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import strandline as sl
from strandline.errors import InputError, OptionError, SchemaError
from strandline.operators.keyed.keyed_function import EXPIRE_MAX
from strandline.units import TIME_MAX

SCHEMA = "device long, at timestamp, value double, name string, note string"


def feed(**options: Any) -> Any:
    return sl.testing.stream(SCHEMA, key="device", time="at", **{"partitions": 1, "lateness": "1 s", **options})


def rows(*values: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Device, second, value, and perhaps a name."""
    return [
        {"device": d, "at": f"2026-01-01 00:{s // 60:02d}:{s % 60:02d}", "value": v, "name": more[0] if more else None}
        for d, s, v, *more in values
    ]


def gone(state: Any, out: Any) -> int:
    out.n = state.n
    return sl.EMIT


@sl.keyed(state="n long", output="n long", expire="10 s", on_expire=gone)
def sessions(state: Any, row: Any, out: Any) -> int:
    state.n += 1
    if row.name == "stop":
        out.n = -state.n
        return sl.EMIT + sl.CLOSE
    return 0


def counts_up(state: Any, row: Any, out: Any) -> int:
    state.n += 1
    return 0


def test_a_function_is_called_once_a_tuple_with_the_state_of_its_key() -> None:
    readings = feed()
    run = sl.testing.run(readings.apply(sessions))
    readings.add(rows((1, 0, 0.0), (2, 0, 0.0), (1, 1, 0.0), (2, 1, 0.0, "stop"), (1, 2, 0.0, "stop")))
    found = run.step()
    assert found.column_names == ["device", "time", "n"]
    assert found.column("device").to_pylist() == [2, 1]
    assert found.column("n").to_pylist() == [-2, -3]


def test_a_crash_changes_nothing() -> None:
    some = [(i % 3, i, float(i * i % 7), "stop" if i % 10 == 9 else "go") for i in range(60)]
    at_once, in_pieces = feed(), feed()
    expected = sl.testing.run(at_once.apply(sessions))
    at_once.add(rows(*some, (9, 200, 0.0)))
    expected.step()
    run = sl.testing.run(in_pieces.apply(sessions).checkpoint(sl.cec(extent=20, replay=20)))
    for first in range(0, 60, 6):
        in_pieces.add(rows(*some[first : first + 6]))
        run.step()
        run.crash()
    in_pieces.add(rows((9, 200, 0.0)))
    run.step()
    assert run.recoveries == 10
    assert run.rows == expected.rows
    assert run.open_windows == expected.open_windows == 1


@pytest.mark.parametrize("policy", [sl.instant("1 s"), sl.cec()])
def test_any_policy_brings_the_state_back(policy: Any) -> None:
    readings = feed()
    run = sl.testing.run(readings.apply(sessions).checkpoint(policy))
    for i in range(5):
        readings.add(rows((1, i, 0.0)))
        run.step()
        run.crash()
    readings.add(rows((1, 6, 0.0, "stop")))
    assert run.step().column("n").to_pylist() == [-6]


def test_keys_expire_and_may_have_a_last_word_at_the_time_of_their_expiry() -> None:
    readings = feed()
    run = sl.testing.run(readings.apply(sessions))
    readings.add(rows((1, 0, 0.0), (2, 1, 0.0), (1, 2, 0.0)))
    assert run.step().num_rows == 0
    readings.add(rows((3, 20, 0.0)))
    found = run.step()
    assert found.column("device").to_pylist() == [2, 1]
    assert found.column("n").to_pylist() == [1, 2]
    # ten seconds behind the last tuple, and one more, within which others may come late
    assert [str(t) for t in found.column("time").to_pylist()] == [
        "2026-01-01 00:00:12+00:00",
        "2026-01-01 00:00:13+00:00",
    ]
    assert run.open_windows == 1


def test_a_finished_stream_lets_every_key_expire() -> None:
    readings = feed()
    run = sl.testing.run(readings.apply(sessions))
    readings.add(rows((1, 0, 0.0), (2, 1, 0.0)))
    run.step()
    readings.finish()
    assert run.step().column("device").to_pylist() == [1, 2]


def test_unions_are_taken_in_in_the_order_of_time() -> None:
    left, right = feed(), feed()
    run = sl.testing.run(sl.union(left, right).apply(sessions))
    left.add(rows((1, 0, 0.0), (1, 30, 0.0)))
    right.add(rows((1, 5, 0.0), (2, 31, 0.0)))
    left.add(rows((1, 60, 0.0)))
    right.add(rows((1, 60, 0.0)))
    assert run.step().to_pylist()[0]["n"] == 2


def test_a_function_over_a_union_is_told_of_which_input_a_tuple_is() -> None:
    @sl.keyed(state="n long", output="n long")
    def whose(state: Any, row: Any, out: Any) -> int:
        state.n = 10 * state.n + row._input + 1
        out.n = state.n
        return sl.EMIT

    inputs = [feed(), feed(), feed()]
    run = sl.testing.run(sl.union(*inputs).apply(whose))
    for number, second in ((2, 0), (0, 1), (2, 2), (1, 3)):
        inputs[number].add(rows((1, second, 0.0)))
        if second == 2:
            run.step()
            run.crash()
    for one in inputs:
        one.finish()
    run.step()
    assert [row["n"] for row in run.rows] == [3, 31, 313, 3132]
    raises("row has no column '_input'", whose)
    own = [
        sl.testing.stream(
            "device long, at timestamp, _input int", key="device", time="at", lateness="1 s", partitions=1
        )
        for _ in range(2)
    ]
    raises("a column of the stream is called '_input'", whose, on=sl.union(*own), error=SchemaError)


def test_what_is_done_before_a_function_is_done_in_a_replay_as_well() -> None:
    readings = feed()
    good = readings.where(pc.field("value") > 0).select("device", "at", "name")
    run = sl.testing.run(good.apply(sessions))
    for i in range(6):
        readings.add(rows((1, i, float(i % 2))))
        run.step()
        run.crash()
    readings.add(rows((1, 7, 1.0, "stop")))
    assert run.step().column("n").to_pylist() == [-4]
    with pytest.raises(OptionError, match="between a union and a keyed function"):
        sl.union(feed(), feed()).where(pc.field("value") > 0).apply(sessions)


def raises(message: str, function: Any, *, on: Any = None, error: type[Exception] = OptionError) -> str:
    with pytest.raises(error) as caught:
        (on or feed()).apply(function)
    text = str(caught.value)
    assert message in text, text
    return text


def test_what_does_not_compile_is_refused_with_its_line() -> None:
    @sl.keyed(state="n long", output="n long")
    def opens(state: Any, row: Any, out: Any) -> int:
        state.n += 1
        with open("x") as file:
            out.n = len(file.read())
        return sl.EMIT

    text = raises("opens: it does not compile", opens)
    assert "test_keyed.py, line" in text
    assert "class" in text


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("out.n = row.missing", "row has no column 'missing'"),
        ("state.missing = 1", "state has no column 'missing'"),
        ("out.missing = 1", "out has no column 'missing'"),
        ("row.value = 1.0", "row.value is set"),
        ("out.n = len(row.name + 'x')", "row.name is a text"),
        ("out.n = row.name < 'x'", "== and != only"),
        ("out.n = row.is_null(row.name)", "row.is_null is not called with the name of a column"),
        ("out[0].n = 1", "one result"),
        ("print(row)", "row is used as a whole"),
        ("out.n = out.set_null('n')", "set_null(…) inside of an expression"),
        ("out.n = 'text'", "does not compile"),
        ("out.n = 1 if row.value is None else 2", 'write row.is_null("value")'),
        ("out.n = 1 if None != state.n else 2", 'write state.is_null("n")'),
        ("out.n = None", 'write out.set_null("n")'),
        ("out.n = row.name in ('a', 'b')", 'row.name == "a" or row.name == "b"'),
        ("state.s = row.name + 'x'", "nothing can be computed"),
    ],
)
def test_what_cannot_be_said_is_refused_with_its_line(body: str, message: str, tmp_path: Any) -> None:
    file = tmp_path / "program.py"
    file.write_text(f"def wrong(state, row, out):\n    state.n += 1\n    {body}\n    return 1\n")
    names: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), names)
    made = sl.keyed(state="n long, s string", output="n long")(names["wrong"])
    assert f"{file}, line 3" in raises(message, made)


def test_functions_return_numbers() -> None:
    @sl.keyed(state="n long", output="n long")
    def nothing(state: Any, row: Any, out: Any) -> Any:
        state.n += 1

    raises("nothing: it returns nothing", nothing)

    @sl.keyed(state="n long", output="n long")
    def sometimes(state: Any, row: Any, out: Any) -> Any:
        state.n += 1
        if state.n > 1:
            return sl.EMIT

    raises("sometimes: it returns nothing at one of its ends", sometimes)


def test_a_function_is_shown_by_its_name() -> None:
    assert repr(divides) == "<keyed function divides>"
    with pytest.raises(OptionError, match="keyed: <keyed function divides> is a keyed function already"):
        sl.keyed(state="n long", output="n long")(divides)


class Rules:
    @staticmethod
    def twice(n: int) -> int:
        return 2 * n


def test_functions_may_stand_in_functions_and_use_what_is_there() -> None:
    step = 5

    def stepped(n: int) -> int:
        return n + step

    class Inside:
        @sl.keyed(state="n long", output="n long")
        def count(state: Any, row: Any, out: Any) -> int:
            state.n = stepped(state.n) + Rules.twice(0)
            return 0

    step = 7
    assert "n + 5" in Inside.count.main.text
    with pytest.raises(OptionError, match="does not have 3 parameters"):
        sl.keyed(state="n long", output="n long")(lambda state, row, out, by=1: 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"state": "n long", "output": ""}, "output has no columns"),
        ({"state": "n long", "output": "_z double"}, "reserved"),
        ({"state": "is_new long", "output": "z double"}, "reserved"),
        ({"state": "n long, N long", "output": "z double"}, "two columns"),
        ({"state": "n decimal(30,2)", "output": "z double"}, "n of state is a decimal(30,2)"),
        ({"state": "n whatever", "output": "z double"}, "cannot be read"),
        ({"state": "n long", "output": "z double", "emit": 0}, "emit=0"),
        ({"state": "n long", "output": "z double", "version": 0}, "version=0"),
        ({"state": "n long", "output": "z double", "expire": "0 s"}, "expire='0 s'"),
        ({"state": "n long", "output": "z double", "on_expire": gone}, "on_expire without expire"),
    ],
)
def test_options_that_cannot_be_are_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises((OptionError, SchemaError)) as caught:
        sl.keyed(**options)(lambda state, row, out: 0)
    assert message in str(caught.value)


def test_results_have_no_column_twice() -> None:
    for name in ("time", "device"):
        made = sl.keyed(state="n long", output=f"{name} long")(lambda state, row, out: 0)
        raises("results have that column already", made, error=SchemaError)


def test_functions_have_three_parameters() -> None:
    with pytest.raises(OptionError, match="does not have 3 parameters"):
        sl.keyed(state="n long", output="n long")(lambda state, row: 0)


def test_a_number_without_a_unit_says_nothing_of_timestamps() -> None:
    made = sl.keyed(state="n long", output="n long", expire=5)(lambda state, row, out: 0)
    raises("expire=5 has no unit", made)
    sl.testing.stream("device long, at long", key="device", time="at", lateness=1).apply(made)


def test_every_time_that_an_entry_point_lets_in_is_taken() -> None:
    readings = sl.testing.stream("device long, at long", key="device", time="at", partitions=1, lateness=EXPIRE_MAX)
    counting = sl.keyed(state="n long", output="n long", expire=EXPIRE_MAX, on_expire=gone)(counts_up)
    run = sl.testing.run(readings.apply(counting))
    readings.add([{"device": n, "at": at} for n, at in enumerate((-TIME_MAX, 0, TIME_MAX))])
    run.step()
    readings.finish()
    run.step()
    found = run.results
    assert found.column("time").to_pylist() == [at + 2 * EXPIRE_MAX for at in (-TIME_MAX, 0, TIME_MAX)]


def test_keys_that_expire_behind_the_end_of_64_bits_are_refused() -> None:
    late = sl.testing.stream("device long, at long", key="device", time="at", lateness=EXPIRE_MAX + 1)
    raises("lateness", sl.keyed(state="n long", output="n long", expire=1, on_expire=gone)(counts_up), on=late)


def test_keys_of_a_stream_without_lateness_would_never_expire() -> None:
    raises("would never expire", sessions, on=feed(lateness=None))


@sl.keyed(state="n long", output="ratio double, small byte")
def divides(state: Any, row: Any, out: Any) -> int:
    state.n += 1
    out.ratio = 1.0 / row.value
    out.small = int(row.value)
    return sl.EMIT


def test_a_function_that_raises_stops_with_key_offset_and_line() -> None:
    readings = feed()
    run = sl.testing.run(readings.apply(divides))
    readings.add(rows((1, 0, 2.0), (7, 1, 0.0)))
    with pytest.raises(InputError) as caught:
        run.step()
    line = divides.main.function.__code__.co_firstlineno + 3
    assert "divides: ZeroDivisionError" in str(caught.value)
    assert f"test_keyed.py, line {line}; key device=7, input offset 1" in str(caught.value)


def test_a_result_that_does_not_fit_its_type_stops() -> None:
    readings = feed()
    run = sl.testing.run(readings.apply(divides))
    readings.add(rows((1, 0, 300.0)))
    with pytest.raises(InputError, match=r"out.small is 300, which does not fit byte"):
        run.step()


def test_what_a_function_cannot_take_is_set_aside_and_its_state_is_as_before() -> None:
    readings = feed()
    run = sl.testing.run(readings.apply(divides), on_error="set_aside")
    readings.add(rows((1, 0, 2.0), (7, 1, 0.0), (1, 2, 0.0), (1, 3, 300.0), (1, 4, 4.0)))
    assert run.step().column("ratio").to_pylist() == [0.5, 0.25]
    aside = run.set_aside
    assert aside.column("_reason").to_pylist() == ["function"] * 3
    assert run.open_windows == 1
    assert isinstance(aside, pa.Table)
