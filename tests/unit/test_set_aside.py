"""What an operator cannot compute: it stops, or sets it aside once and goes on."""

from typing import Any

import pytest

from strandline.checkpoint.policy import Policy, cec, instant
from strandline.errors import AggregateOverflowError, InputError
from strandline.log.stream.append_commit import Append
from strandline.log.upkeep.compaction import compact
from strandline.operators import aside_tables
from strandline.operators.aggregate import aggregates as agg
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.aggregate.windows import count_window, session_window, time_window
from strandline.operators.kernels import arrow_words, key_codec
from tests.simulation.machines import KeptStates
from tests.support.operator_streams import (
    LATENESS,
    Row,
    Streams,
    plan,
    set_aside,
    uninterrupted,
    uninterrupted_and_aside,
    write_rows,
)

BIG = 1 << 62
SUMS = {
    "tumbling count": plan(count_window(4), ["k"], total=agg.sum("v"), n=agg.count_all()),
    "sliding count": plan(count_window(4, advance=2), ["k"], total=agg.sum("v"), least=agg.min("s")),
    "time": plan(time_window(12, advance=4), ["s"], total=agg.sum("v"), mean=agg.avg("x")),
    "session": plan(session_window(8), ["k"], total=agg.sum("v"), last=agg.last("s")),
}
every_sum = pytest.mark.parametrize("p", SUMS.values(), ids=SUMS)
POLICIES = [cec(), cec(extent="1x"), cec(extent=10_000), instant("1 ms"), instant("1 hour")]


def rows(count: int, first: int = 0, **changes: Any) -> list[Row]:
    return [
        {"k": i % 3, "s": f"s{i % 3}", "v": i, "x": float(i), "t": 2 * i, **changes}
        for i in range(first, first + count)
    ]


class Case(Streams):
    """An operator that may set aside, and loses its state whenever a test wants."""

    def __init__(self, p: AggregateDefinition, on_error: Any = "set_aside") -> None:
        self.kept = KeptStates()
        super().__init__(p, lambda _: self.kept, on_error=on_error)  # type: ignore[arg-type,return-value]

    def forget(self) -> None:
        self.kept.states.clear()


@every_sum
def test_a_sum_that_overflows_stops_the_operator_and_says_how_to_go_on(p: AggregateDefinition) -> None:
    case = Case(p, "stop")
    case.append(rows(6, v=BIG))
    with pytest.raises(AggregateOverflowError, match="does not fit 64 bits") as raised:
        case.drain()
    assert "window k=0, window_start=" in raised.value.where or "window s='s0'" in raised.value.where
    assert 'on_error="set_aside"' in raised.value.todo
    assert case.output.state.seq == -1


@every_sum
@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("lossy", [False, True], ids=["kept", "lost"])
def test_a_window_that_overflows_is_set_aside_once_and_all_others_have_their_results(
    p: AggregateDefinition, policy: Policy, lossy: bool
) -> None:
    commits = [rows(7), rows(4, 7, v=BIG), rows(9, 11), rows(3, 20, v=-BIG), rows(40, 23), rows(1, 63)]
    commits = [[{**row, "t": row["t"] + 20 * (n // 2)} for row in commit] for n, commit in enumerate(commits)]
    # A window that is older than all others and stays open: what was saved since counts in a recovery.
    if not p.window.has_times:
        commits[0] = [{"k": 9, "s": "s9", "v": 1, "x": 0.0, "t": 0}, *commits[0]]
    case = Case(p)
    for commit in commits:
        case.append(commit)
        for done in case.drain(policy):
            assert not any(d.recovery and d.recovery.is_older for d in done)
        if lossy:
            case.forget()
    every = [row for commit in commits for row in commit]
    results, expected = uninterrupted_and_aside(p, every, case.input.state.boundaries[0])
    assert len(results) > 0
    assert expected
    assert case.results().equals(results)
    found = set_aside(case.output)
    assert list(found) == ["overflow"]
    assert found["overflow"] == expected
    assert all(row["total"] is None and row["_total_n"] == -1 for row in expected)
    compact(case.output, blocks_min=2)
    assert set_aside(case.output) == found


def test_a_window_that_overflowed_stops_an_operator_that_is_to_stop_when_it_closes() -> None:
    case = Case(SUMS["tumbling count"])
    case.append(rows(6, v=BIG))
    case.drain()
    case.on_error = "stop"
    case.append(rows(6, 6))
    with pytest.raises(AggregateOverflowError):
        case.drain()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> int:
    """Values of more than 100 bytes are too long, keys a little before."""
    for module in (aside_tables, arrow_words, key_codec):
        monkeypatch.setattr(module, "LENGTH_MAX", 100)
    return 100


POISON = {
    "time": ({"t": (1 << 62) + 1}, "time", plan(time_window(10), ["k"], n=agg.count_all())),
    "time, far back": ({"t": -(1 << 62) - 1}, "time", plan(session_window(5), ["k"], n=agg.count_all())),
    "key": ({"s": "k" * 99}, "key", plan(count_window(2), ["s"], n=agg.count_all())),
    "keys": ({"s": "k" * 90}, "key", plan(count_window(2), ["k", "s"], n=agg.count_all())),
    "value": ({"s": "v" * 101}, "value", plan(count_window(2), ["k"], last=agg.last("s"))),
    "value, time": ({"s": "v" * 101}, "value", plan(time_window(10), ["k"], least=agg.min("s"))),
}


@pytest.mark.parametrize(("change", "reason", "p"), POISON.values(), ids=POISON)
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_tuple_that_no_window_takes_is_set_aside_once_and_changes_nothing_else(
    change: Row, reason: str, p: AggregateDefinition, policy: Policy, short: int
) -> None:
    good = [*rows(9), *rows(9, 9), *rows(9, 18)]
    bad = {**rows(1)[0], **change}
    case = Case(p)
    for commit in ([good[0], bad, *good[1:9], bad], good[9:18], good[18:]):
        _append(case, commit)
        case.drain(policy)
        case.forget()
    found = set_aside(case.output)
    assert list(found) == [reason]
    assert [row["_input"] for row in found[reason]] == [1, 10]
    assert all(row[c] == bad[c] for row in found[reason] for c, _ in p.key)
    boundary = case.input.state.boundaries[0]
    got, expected = case.results().to_pylist(), uninterrupted(p, good, boundary).to_pylist()
    assert expected
    if p.window.has_times:
        assert got == expected
    else:  # windows of count are where their tuples are
        assert [row[p.accumulators[0].name] for row in got] == [row[p.accumulators[0].name] for row in expected]


def _append(case: Case, commit: list[Row]) -> None:
    """A commit with the boundary of its good tuples, as an old version of the entry point would have let them in."""
    base = case.input.state
    block = write_rows(case.input, 0, base.ends[0], commit, f"commit{base.seq + 1}")
    boundary = max(r["t"] for r in commit if abs(r["t"]) < 1 << 60) - LATENESS
    case.input.append(Append([block], boundaries=[boundary]), base=base)


@pytest.mark.parametrize(("change", "reason", "p"), POISON.values(), ids=POISON)
def test_without_leave_such_a_tuple_stops_the_operator_and_says_where_it_is(
    change: Row, reason: str, p: AggregateDefinition, short: int
) -> None:
    case = Case(p, "stop")
    _append(case, [*rows(5), {**rows(1)[0], **change}])
    with pytest.raises(InputError, match=r"the \w+ window cannot take a tuple") as raised:
        case.drain()
    assert raised.value.where == "input offset 5"
    assert "set_aside" in raised.value.todo
