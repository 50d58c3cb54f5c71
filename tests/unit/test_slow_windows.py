"""`sl.cec(slow=H, every=T, at_most=M)`: which windows get G-checks, when, how many, and that nothing else changes."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

import strandline as sl
from strandline.checkpoint.policy import Policy, cec
from strandline.checkpoint.slow_policy import InputTimes, StepEnd
from strandline.errors import OptionError
from strandline.inputs.one_stream import OneStream
from strandline.log.stream.kinds import Kind
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.recovery.recover import Stand, recover
from strandline.running.state.state_cache import StateCache
from tests.support.operator_streams import PLANS, Row, Streams, Tuples

# ---------------------------------------------------------------------- what it accepts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": "1 s"}, "need slow=: without it"),
        ({"at_most": 7}, "need slow=: without it"),
        ({"slow": "0 s"}, "slow='0 s' is not a duration"),
        ({"slow": "long"}, "slow='long' is not a duration"),
        ({"slow": True}, "slow=True is not a duration"),
        ({"slow": "1 s", "every": "0 s"}, "every='0 s' is not a duration"),
        ({"slow": "1 s", "every": 5}, "one has a unit"),
        ({"slow": 5, "every": "1 s"}, "one has a unit"),
        ({"slow": "1 s", "at_most": 0}, "at_most=0 is not a number of windows"),
        ({"slow": "1 s", "at_most": True}, "at_most=True is not a number of windows"),
        ({"slow": "1 s", "at_most": 1.5}, "at_most=1.5 is not a number of windows"),
    ],
)
def test_what_it_cannot_do_is_refused_with_a_way_out(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as raised:
        cec(**options)
    assert message in str(raised.value)
    assert raised.value.todo


def test_what_is_not_said_is_chosen() -> None:
    assert cec(slow="1 min") == cec(slow="60 s", every="1 min", at_most=100_000)
    alone = cec(slow="1 min")
    assert (alone.extent, alone.extent_ratio, alone.replay) == (None, None, None), "other windows get no G-check"
    assert cec(slow="1 min", replay=5).replay == 5


def test_its_repr_is_the_call_that_makes_it() -> None:
    for policy in (
        cec(slow="1 min", every="10 s", at_most=500),
        cec(extent="2x", replay=9, slow=40),
        cec(recover_within="2 s", slow="1 day"),
    ):
        assert eval(repr(policy), {"cec": cec}) == policy
        assert policy.slow is not None
        assert policy.slow.has_unit == ('"1' in repr(policy))


def test_spans_have_the_unit_of_the_times_of_the_input() -> None:
    moments = sl.testing.stream("id long, at timestamp, v double", key="id", time="at")
    numbers = sl.testing.stream("id long, at long, v double", key="id", time="at")
    for items, good, bad, todo in ((moments, "5 s", 5, 'slow="1 min"'), (numbers, 5, "5 s", "slow=1000")):
        average = items.window(sl.count_window(3)).aggregate(v=sl.avg("v"))
        assert average.checkpoint(cec(slow=good)).policy == cec(slow=good)
        with pytest.raises(OptionError, match="in the time of the input") as raised:
            average.checkpoint(cec(slow=bad))
        assert todo in raised.value.todo


# ---------------------------------------------------------------------- what it remembers of times


@pytest.mark.parametrize("spans", [(80, 80), (800, 16), (16, 800)])
def test_times_are_few_and_found_late_by_an_eighth_at_most_and_never_early(spans: tuple[int, int]) -> None:
    rng, times, every = Random(7), InputTimes(), list[StepEnd]()
    now = inputs = outputs = 0
    for _ in range(3_000):
        now += rng.choice([0, 1, 1, 2, 30 if rng.random() < 0.02 else 1])
        inputs, outputs = inputs + rng.randrange(9), outputs + rng.randrange(4)
        end = StepEnd(now, inputs, outputs)
        every = [*(e for e in every if e.time < now), end]
        times = InputTimes.of_words(times.then(end, spans).words)
        assert len(times.ends) < 60
        for span in spans:
            exact = next((e for e in reversed(every) if e.time < now - span), None)
            found = times.before(now - span)
            assert (found is None) == (exact is None)
            if found is not None and exact is not None:
                assert found in every
                assert exact.time - span / 8 <= found.time <= exact.time


# ---------------------------------------------------------------------- what it does


class Watched(Streams):
    """An operator of which every G-check is looked at."""

    def __init__(self, plan: AggregateDefinition, folder: Path, rng: Random) -> None:
        super().__init__(plan, lambda _: StateCache(folder / str(self.life)))
        self.life = 0
        self.rng = rng
        self.tuples = Tuples(rng, keys=30, pace=0.3, skew=3)
        self.reached: list[tuple[int, int]] = []
        """After each step: where it stands in the input, and the largest time in that."""
        self.checked: list[int] = []

    def step(self, policy: Policy) -> None:
        self.append(self.tuples.rows(self.rng.randrange(1, 25)))
        if self.rng.random() < 0.1:
            self.life += 1
        first = self.output.state.ends[0]
        self.drain(policy)
        end, now = self.input.state.ends[0], self.input.state.time_max
        assert now is not None
        self.reached.append((end, now))
        checks = 0
        for table in self.output.read(0, first):
            for row in table.to_pylist():
                if row["_kind"] == Kind.G_CHECK.value:
                    checks += 1
                    assert policy.slow is not None
                    assert now - self._time(row["_opened"]) > policy.slow.open_for, "it is not slow"
        self.checked.append(checks)

    def _time(self, offset: int) -> int:
        """The largest time in the input when the step ended that took in this tuple."""
        return next(time for end, time in self.reached if offset < end)

    def open_windows(self) -> list[Row]:
        """Open windows with their last footprints, as a recovery finds them."""
        stand = Stand.of(self.output, 0)
        operator, _ = recover(self.output, OneStream(self.plan, self.input), self.plan, stand)
        names = [c for c, _ in [*self.plan.result_columns, *self.plan.control_columns]]
        columns = [column.to_pylist() for column in operator.windows()]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def require_young_footprints(self, policy: Policy) -> None:
        """Every slow window has a footprint that is not older than T, but for the eighth of both spans."""
        assert policy.slow is not None
        now = self.reached[-1][1]
        for window in self.open_windows():
            if now - self._time(window["_opened"]) > policy.slow.open_for * 9 / 8:
                assert now - self._time(window["_input"] - 1) <= policy.slow.every * 9 / 8


def _case(name: str, slow: int, every: int, *, is_long: bool = True) -> Any:
    return pytest.param(name, slow, every, marks=[pytest.mark.long] if is_long else [])


@pytest.mark.parametrize(
    ("name", "slow", "every"),
    [
        _case("tumbling count", 8, 8, is_long=False),
        _case("tumbling count", 24, 4, is_long=False),
        _case("tumbling count", 4, 24),
        _case("sliding time", 8, 3),
        _case("session", 24, 4, is_long=False),
        _case("session", 4, 24),
    ],
)
def test_slow_windows_are_saved_in_time_and_no_others(name: str, slow: int, every: int, tmp_path: Path) -> None:
    watched, policy = Watched(PLANS[name], tmp_path, Random(slow)), cec(slow=slow, every=every)
    for i in range(40):
        watched.step(policy)
        if i % 5 == 0:
            watched.require_young_footprints(policy)
    assert name != "tumbling count" or sum(watched.checked) > 10
    plain = Watched(PLANS[name], tmp_path / "plain", Random(slow))
    plain.input, plain.input_storage = watched.input, watched.input_storage
    plain.drain(cec())
    assert watched.results().equals(plain.results())


def test_no_step_saves_more_than_it_may_and_all_come_to_their_turn(tmp_path: Path) -> None:
    watched = Watched(PLANS["tumbling count"], tmp_path, Random(3))
    for _ in range(60):
        watched.step(cec(slow=6, every=3, at_most=2))
    assert max(watched.checked) == 2
    late = [w for w in watched.open_windows() if watched._time(w["_opened"]) < watched.reached[-1][1] - 12]
    assert len(late) > 4
    ends = [end for end, _ in watched.reached]
    since = [len(ends) - 1 - ends.index(w["_input"]) for w in late]
    assert max(since) <= len(late), "one of them was forgotten"


def test_beside_targets_it_only_adds(tmp_path: Path) -> None:
    policy = cec(extent=40, replay=60, slow=6, every=3)
    watched = Watched(PLANS["tumbling count"], tmp_path, Random(5))
    both = with_targets = 0
    for _ in range(40):
        watched.append(watched.tuples.rows(15))
        for (done,) in watched.drain(policy):
            both += done.checked
            assert done.standing.replay <= 60
            assert done.standing.extent <= max(40, done.standing.open)
    other = Watched(PLANS["tumbling count"], tmp_path / "other", Random(5))
    for _ in range(40):
        other.append(other.tuples.rows(15))
        with_targets += sum(done.checked for (done,) in other.drain(cec(extent=40, replay=60)))
    assert both > with_targets > 0


def test_a_standing_speaks_of_times_only_under_such_a_policy(tmp_path: Path) -> None:
    watched = Watched(PLANS["tumbling count"], tmp_path, Random(1))
    watched.step(cec(slow=5))
    standing = watched.output.state.standings[0]
    assert standing.times
    assert type(standing).from_json(standing.to_json()) == standing
    watched.append(watched.tuples.rows(5))
    watched.drain(cec())
    assert not watched.output.state.standings[0].times
    assert "times" not in watched.output.state.standings[0].to_json()
