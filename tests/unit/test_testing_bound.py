"""The kit for users' tests, of operators with a bound: feeds fall silent, are lost and come back."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import strandline as sl
from tests.specification.plain_availability import Entry, counted

READINGS = "room string, at timestamp, celsius long"
Feeds = list[Any]


def feeds(many: int = 2, **options: Any) -> Feeds:
    clock = sl.testing.HandClock()
    given = {"key": "room", "time": "at", "lateness": "0 s", "partitions": 1, "clock": clock, **options}
    return [sl.testing.stream(READINGS, **given) for _ in range(many)]


def counts(feeds: Feeds, **options: Any) -> Any:
    windows = sl.union(*feeds).window(sl.time_window("10 s")).aggregate(n=sl.count_all())
    return windows.availability(bound="3 s", **options)


def measure(at: int, *feeds: Any) -> None:
    """Adds a tuple at this second of the day."""
    for feed in feeds:
        feed.add([("hall", f"2026-01-01 00:{at // 60:02d}:{at % 60:02d}", at)])


def numbers(table: pa.Table) -> list[int]:
    found: list[int] = table.column("n").to_pylist()
    return found


def kinds(run: Any) -> list[str]:
    found: list[str] = run.changes.column("_kind").to_pylist()
    return found


def pause(run: Any, duration: str = "3 s") -> pa.Table:
    run.clock.advance(duration)
    return run.step()


def test_a_silent_feed_is_bridged_and_its_tuples_correct_the_guesses() -> None:
    north, south = feeds()
    run = sl.testing.run(counts([north, south]))
    measure(1, north, south)
    measure(10, north, south)
    assert numbers(run.step()) == [2]
    assert (run.state, run.missing, run.tentative.num_rows) == ("STABLE", [], 0)

    south.fall_silent()
    measure(12, north, south)
    measure(20, north, south)
    assert south.tuples().num_rows == 2, "the source is down: nobody publishes what it measures"
    run.step()
    assert pause(run, "2 s").num_rows == 0
    assert run.state == "STABLE", "the bound has not run out"
    assert pause(run, "1 s").num_rows == 0
    assert (run.state, run.missing) == ("UP_FAILURE", [south])
    assert numbers(run.tentative) == [3], "two readings at 10, and one at 12"
    assert [row["n"] for row in run.rows] == [2], "results are stable ones"

    south.come_back()
    assert numbers(run.step()) == [4]
    assert (run.state, run.missing, run.tentative.num_rows) == ("STABLE", [], 0)
    assert kinds(run) == ["stable", "tentative", "undo", "stable", "rec_done"]
    assert run.changes.column("_offset").to_pylist() == [0, 1, 2, 3, 4]


def test_a_feed_that_has_never_had_a_tuple_is_missing_once_the_bound_has_run_out() -> None:
    north, south = feeds()
    run = sl.testing.run(counts([north, south]))
    run.step()
    pause(run)
    assert (run.state, run.missing) == ("STABLE", []), "no tuple waits"
    measure(1, north)
    measure(11, north)
    run.step()
    pause(run, "2 s")
    assert (run.state, run.missing) == ("STABLE", []), "the bound has not run out"
    pause(run, "1 s")
    assert (run.state, run.missing) == ("UP_FAILURE", [south])
    assert numbers(run.tentative) == [1]
    measure(2, south)
    measure(12, south)
    assert numbers(run.step()) == [2]
    assert (run.state, kinds(run)) == ("STABLE", ["tentative", "undo", "stable", "rec_done"])


@pytest.mark.parametrize("is_aggregate", [True, False], ids=["aggregate", "columns"])
def test_a_single_feed_that_has_never_had_a_tuple_is_not_missing(is_aggregate: bool) -> None:
    (feed,) = feeds(1)
    windows = feed.window(sl.time_window("10 s"))
    operator = windows.aggregate(n=sl.count_all()) if is_aggregate else feed.select("room", "at")
    run = sl.testing.run(operator.availability(bound="3 s"))
    run.step()
    pause(run)
    assert (run.state, run.missing) == ("STABLE", [])


def test_a_lost_feed_is_bridged_and_what_it_published_meanwhile_is_there_in_the_end() -> None:
    north, south = feeds()
    run = sl.testing.run(counts([north, south]))
    south.lose()
    measure(1, north, south)
    measure(10, north, south)
    assert south.tuples().num_rows == 2, "only operators cannot read it"
    run.step()
    pause(run)
    assert (run.missing, numbers(run.tentative)) == ([south], [1])
    south.come_back()
    assert numbers(run.step()) == [2]
    assert kinds(run) == ["tentative", "undo", "stable", "rec_done"]


def test_without_a_bound_a_lost_feed_is_an_error_and_a_silent_one_is_waited_for() -> None:
    north, south = feeds()
    run = sl.testing.run(sl.union(north, south).window(sl.time_window("10 s")).aggregate(n=sl.count_all()))
    south.fall_silent()
    measure(10, north, south)
    assert pause(run, "1 h").num_rows == 0
    assert (run.state, run.missing, run.changes.num_rows) == ("STABLE", [], 0)
    south.lose()
    with pytest.raises(sl.StorageError, match=r"(?s)lost.*come_back"):
        run.step()
    south.come_back()
    measure(20, north, south)
    assert numbers(run.step()) == [2]


def test_a_silent_feed_has_no_heartbeat() -> None:
    north, south = feeds(heartbeat="1 s")
    run = sl.testing.run(counts([north, south]))
    measure(1, north, south)
    assert pause(run, "30 s").num_rows == 1
    south.fall_silent()
    measure(31, north)
    for _ in range(4):
        assert pause(run, "10 s").num_rows == 0
    assert (run.missing, numbers(run.tentative)) == ([south], [1])
    south.come_back()
    assert numbers(run.step()) == [1]


def test_tentative_results_pass_a_chain() -> None:
    north, south = feeds()
    first = sl.testing.run(counts([north, south]))
    busy = first.window(sl.time_window("20 s")).aggregate(n=sl.max("n")).availability(bound="3 s")
    second = sl.testing.run(busy)
    south.fall_silent()
    for at in (1, 2, 11, 25, 40):
        measure(at, north, south)
    for _ in range(3):
        pause(first)
        second.step()
    assert numbers(first.tentative) == [2, 1, 1]
    assert (second.missing, numbers(second.tentative)) == ([first], [2, 1])
    south.come_back()
    assert numbers(first.step()) == [4, 2, 2]
    assert numbers(second.step()) == [4, 2]
    assert kinds(second) == ["tentative", "tentative", "undo", "stable", "stable", "rec_done"]


def test_a_class_goes_on_without_an_input() -> None:
    class Largest(sl.Operator):
        output = "room string, at timestamp, celsius long"
        time = "at"

        def __init__(self) -> None:
            self.most = 0

        def process(self, tuples: pa.Table) -> pa.Table | None:
            before, self.most = self.most, max(self.most, *tuples.column("celsius").to_pylist())
            return tuples.slice(0, 1) if self.most > before else None

        def get_checkpoint(self) -> Any:
            return {"most": self.most}

        def restore_checkpoint(self, state: dict[str, Any]) -> None:
            self.most = state["most"]

    north, south = feeds()
    run = sl.testing.run(sl.union(north, south).apply(Largest()).checkpoint(sl.instant("1 s")).availability("3 s"))
    measure(1, north, south)
    measure(2, north)
    run.step()
    pause(run)
    assert run.tentative.num_rows == 1
    measure(3, south)
    run.step()
    assert "tentative" in kinds(run)
    assert run.state == "STABLE"


@pytest.mark.parametrize("options", [{}, {"failing": "delay"}, {"reconcile": "undo"}, {"failing": "suspend"}], ids=str)
def test_stable_results_are_those_of_a_run_without_failures(options: dict[str, Any]) -> None:
    guessed = 0
    for seed in range(2):
        rng = Random(seed)
        calm, inputs = feeds(3, partitions=2, lateness="5 s"), feeds(3, partitions=2, lateness="5 s")
        right, run = (sl.testing.run(counts(own, **options)) for own in (calm, inputs))
        for at in range(0, 100, 5):
            for n in range(3):
                rows = [
                    (rng.choice("abc"), f"2026-01-01 00:{(at + i) // 60:02d}:{(at + i) % 60:02d}", at) for i in range(5)
                ]
                calm[n].add(rows)
                inputs[n].add(rows)
                rng.choice([*[lambda: None] * 4, inputs[n].fall_silent, inputs[n].lose, *[inputs[n].come_back] * 2])()
            if rng.random() < 0.1:
                run.crash()
            right.step()
            pause(run, "2 s")
            if at % 20 == 0:
                check_what_counts(run)
        for feed in inputs:
            feed.come_back()
        for feed in (*calm, *inputs):
            feed.finish()
        right.step()
        run.step()
        assert sorted(map(str, run.rows)) == sorted(map(str, right.rows))
        assert (run.state, run.tentative.num_rows) == ("STABLE", 0)
        guessed += kinds(run).count("tentative")
    assert (guessed > 0) == (options.get("failing") != "suspend")


def check_what_counts(run: Any) -> None:
    """Compares results and tentative results with what the changes amount to."""
    stable, tentative = 0, 0
    rows = run.changes.to_pylist()
    for p in {row["_partition"] for row in rows}:
        found = counted(Entry(row["_kind"], row) for row in rows if row["_partition"] == p)
        stable += len(found[0])
        tentative += len(found[1])
    assert stable == run.results.num_rows
    assert run.tentative.num_rows <= tentative, "those before the stable boundary are corrected already"
    assert run.state != "UP_FAILURE" or run.tentative.num_rows == tentative


def test_mistakes_are_told_at_once() -> None:
    north, south = feeds()
    south.fall_silent()
    with pytest.raises(sl.OptionError, match=r"come_back\(\)"):
        south.finish()
    with pytest.raises(sl.NullTimeError):
        south.add([("hall", None, 1)])
    with pytest.raises(sl.OptionError, match=r"clock=clock"):
        sl.testing.run(counts([north, *feeds(1)]))
    south.lose()
    assert repr(south).startswith("Feed(room, at, celsius;")


def test_the_example_of_the_docs_runs() -> None:
    text = (Path(__file__).parents[2] / "docs" / "availability.md").read_text()
    program = next(code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "sl.testing" in code)
    names: dict[str, Any] = {}
    exec(program, names)
    (test,) = (test for name, test in names.items() if name.startswith("test_"))
    test()
