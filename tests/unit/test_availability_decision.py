"""What a driver decides when inputs are missing: a function of the clock, of boundaries, and of the last append."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.log.operator_state.outage import ForkStanding, Outage
from strandline.running.decision import Decision, Situation, decide, ended
from strandline.running.promise import Promise
from strandline.running.watch import Sight, Watch
from strandline.units import END_OF_TIME

BOUND = 3_000
PROCESS = Promise(BOUND)
DELAY = Promise(BOUND, "delay", "delay")
SUSPEND = Promise(BOUND, "suspend", "suspend")
Looks = list[tuple[int, list[Sight]]]


def at(boundary: int | None, latest: int | None = None) -> Sight:
    return Sight(boundary, latest)


UNREACHABLE = Sight(None, is_reachable=False)


def watched(looks: Looks, taken: int | None = None, inputs: int = 2, before: Outage | None = None) -> Watch:
    """After these looks, each at its time; `before` is what was published before the second."""
    watch = Watch.fresh(inputs)
    for number, (now_us, sights) in enumerate(looks):
        watch = watch.looked(sights, now_us, taken, BOUND, before if number else None)
    return watch


def situation(now_us: int, looks: Looks, **what: object) -> Situation:
    taken: int | None = what.pop("taken", None)  # type: ignore[assignment]
    fixed = {"before": Outage(since_us=1), "moves": False, "catches_up": False, **what}
    return Situation(now_us=now_us, watch=watched(looks, taken), taken=taken, since_us=now_us, **fixed)  # type: ignore[arg-type]


def forks(bound: int) -> tuple[ForkStanding, ...]:
    return (ForkStanding(bound, 5, bound, 0, 2, 2, "attempt"),)


FAILING = Outage("UP_FAILURE", 2, (1,), (1,), forks=forks(30))

# ---------------------------------------------------------------------- who is missing


@pytest.mark.parametrize(
    ("looks", "missing"),
    [
        ([(0, [at(30, 20), at(10)]), (2_999, [at(30), at(10)])], ()),
        ([(0, [at(30, 20), at(10)]), (3_000, [at(30), at(10)])], (1,)),
        ([(0, [at(30, 20), at(20)]), (3_000, [at(30), at(20)])], (1,)),
        ([(0, [at(30, 20), at(21)]), (3_000, [at(30), at(21)])], ()),
        ([(0, [at(30), at(10)]), (9_000, [at(60), at(10)])], ()),
        ([(0, [at(30, 20), at(None)]), (3_000, [at(30), at(None)])], (1,)),
        ([(0, [at(30, 20), at(None)]), (2_999, [at(30), at(None)])], ()),
        ([(0, [at(None), at(None)]), (9_000, [at(None), at(None)])], ()),
        ([(0, [at(None), UNREACHABLE]), (9_000, [at(None), UNREACHABLE])], ()),
        ([(0, [at(30, 20), at(10)]), (3_000, [at(30), at(40)])], ()),
        ([(0, [at(30, 20), at(25, 24)]), (3_000, [at(30), at(25)])], ()),
        ([(0, [at(30, 20), at(60)]), (3_000, [at(30), UNREACHABLE])], (1,)),
        ([(0, [at(30, 20), at(60, 50)]), (3_000, [at(30), UNREACHABLE])], (1,)),
        ([(0, [at(30, 20), at(END_OF_TIME)]), (3_000, [at(30), at(END_OF_TIME)])], ()),
    ],
    ids=[
        "the bound has not passed",
        "it has",
        "a tuple at the boundary waits, too",
        "one before it does not",
        "boundaries without tuples wait for nobody",
        "an input that has never had a boundary",
        "the same before the bound has passed",
        "inputs without any boundary miss nobody",
        "nor does one that cannot be reached",
        "one that is back",
        "the last one is missing for nobody",
        "one that cannot be reached",
        "one that cannot be reached makes nobody miss its tuples",
        "one that is finished",
    ],
)
def test_who_holds_up_others_tuples_for_the_bound_is_missing(looks: Looks, missing: tuple[int, ...]) -> None:
    taken = 5
    assert watched(looks, taken).missing(looks[-1][0], BOUND, taken) == missing


@pytest.mark.parametrize("sights", [[at(None)], [UNREACHABLE], [at(None), at(None)], [at(30, 20), at(None)]], ids=str)
def test_before_the_bound_has_passed_no_input_is_missing_although_nothing_was_published(sights: list[Sight]) -> None:
    watch = watched([(0, sights)], inputs=len(sights))
    assert watch.missing(2_999, BOUND, None) == ()


def test_tuples_that_are_in_the_stable_lineage_wait_for_nobody() -> None:
    looks = [(0, [at(30, 20), at(10)]), (3_000, [at(30), at(10)])]
    assert watched(looks, taken=21).missing(3_000, BOUND, 21) == ()


def test_what_a_driver_remembers_does_not_grow_with_time() -> None:
    looks = [(now, [at(now, now - 1), at(0)]) for now in range(1, 100_000, 100)]
    kept = [len(own) for own in watched(looks, taken=0).arrivals]
    assert kept == [BOUND // 100 + 1, 1]


def test_what_has_waited_is_not_forgotten_with_what_is_pruned() -> None:
    looks = [(now, [at(now, now - 1), at(0)]) for now in range(1, 10_000, 100)]
    watch = watched(looks, taken=0)
    assert watch.overdue(9_901, BOUND, 0) == {0: 6_900}


def test_a_driver_that_goes_on_counts_what_the_fork_had_as_waited_for() -> None:
    watch = Watch.resumed([40, 10], FAILING, 50_000, BOUND).looked([at(40, 35), at(10)], 50_000, 10, BOUND)
    assert watch.missing(50_000, BOUND, 10) == (1,)
    assert watch.overdue(50_000, BOUND, 10) == {0: 29}
    assert Watch.resumed([40, 10], Outage("UP_FAILURE", 2, (1,)), 50_000, BOUND) == Watch.fresh(2)


def test_and_nothing_that_an_input_does_not_have() -> None:
    healed = replace(FAILING, missing=(), left_out=())
    watch = Watch.resumed([20, None], healed, 50_000, BOUND)
    assert [watch.boundary(i) for i in range(2)] == [20, None]
    assert watch.overdue(50_000, BOUND, 10) == {0: 19}


# ---------------------------------------------------------------------- inputs that guess


def guessing(boundary: int, guessed: int, latest: int | None = None, undone: int = 5) -> Sight:
    return Sight(boundary, guessed=guessed, latest_guess=latest, undone=(undone,))


def test_an_input_that_only_guesses_is_missing_for_results_and_there_for_the_fork() -> None:
    looks: Looks = [(0, [guessing(10, 30, 25), at(90)]), (3_000, [guessing(10, 40), at(90)])]
    watch = watched(looks, 10)
    assert watched(looks[:1], 10).missing(0, BOUND, 10) == ()
    assert watch.missing(3_000, BOUND, 10) == (0,)
    assert watch.missing_for_fork(3_000, BOUND, 10) == ()
    found = decide(situation(3_000, looks, taken=10), PROCESS)
    assert (found.fork_until, found.left_out, found.outage.missing) == (40, (0,), (0,))
    assert decide(situation(3_000, looks, taken=10), DELAY).fork_until == 26


def test_the_fork_goes_on_without_guesses_that_stand_still() -> None:
    looks: Looks = [(0, [guessing(10, 30, 25), at(90, 80)]), (3_000, [guessing(10, 30), at(90)])]
    assert watched(looks, 10).missing_for_fork(3_000, BOUND, 10) == (0,)
    assert decide(situation(3_000, looks, taken=10), PROCESS).fork_until == 90


def test_guesses_behind_an_undo_are_others_and_late_for_a_fork_that_has_passed_them() -> None:
    before = Outage("UP_FAILURE", 2, (0,), (0,), forks=forks(30))
    first: Looks = [(0, [guessing(10, 30, 25), at(90)]), (1_000, [guessing(10, 30), at(90)])]
    assert watched(first, 10, before=before).late(4_000, BOUND, 10) == frozenset()
    again: Looks = [*first, (2_000, [guessing(10, 30, 25, undone=9), at(90)])]
    watch = watched(again, 10, before=before)
    assert watch.late(4_999, BOUND, 10) == frozenset()
    assert watch.late(5_000, BOUND, 10) == {0}
    assert watch.all_eaten().late(5_000, BOUND, 10) == frozenset()


def test_guesses_that_a_fork_passed_while_they_could_not_be_read_are_late() -> None:
    before = Outage("UP_FAILURE", 2, (0,), (0,), forks=forks(30))
    cut_off: Looks = [(0, [guessing(10, 30, 25), at(90)]), (1_000, [UNREACHABLE, at(90)])]
    assert watched(cut_off, 10, before=before).late(9_000, BOUND, 10) == frozenset()
    back: Looks = [*cut_off, (2_000, [guessing(10, 30), at(90)])]
    assert watched(back, 10, before=before).late(3_000, BOUND, 10) == {0}
    complete = replace(before, left_out=())
    assert watched(back, 10, before=complete).late(3_000, BOUND, 10) == frozenset()


def test_a_fork_stays_until_what_came_late_takes_its_place() -> None:
    before = Outage("UP_FAILURE", 2, (0,), (0,), forks=forks(30))
    looks: Looks = [(0, [guessing(10, 30, 25), at(10)]), (2_000, [at(30, 25), at(10)])]
    watch = watched(looks, 10, before=before)
    found = decide(Situation(2_000, watch, before, 10, moves=False, catches_up=True, since_us=2_000), PROCESS)
    assert not found.ends
    found = decide(Situation(5_000, watch, before, 10, moves=False, catches_up=True, since_us=5_000), PROCESS)
    assert (found.begins_anew, found.undoes, found.outage.missing) == (True, True, (1,))


# ---------------------------------------------------------------------- what is done

HELD: Looks = [(0, [at(30, 20), at(10)]), (2_000, [at(50, 45), at(10)]), (3_000, [at(60, 55), at(10)])]
BACK: Looks = [*HELD, (4_000, [at(60), at(70, 65)])]


def test_nothing_happens_before_the_bound() -> None:
    found = decide(situation(2_000, HELD[:2], taken=10), PROCESS)
    assert found == Decision(Outage(since_us=1), undoes=False, begins_anew=False, ends=False, fork_until=None)


@pytest.mark.parametrize(("promise", "until"), [(PROCESS, 60), (DELAY, 21), (SUSPEND, None)])
def test_then_the_fork_goes_as_far_as_it_can_or_as_it_must(promise: Promise, until: int | None) -> None:
    found = decide(situation(3_000, HELD, taken=10), promise)
    assert found.outage == Outage("UP_FAILURE", 3_000, (1,))
    assert found.fork_until == until


def test_a_failure_keeps_the_time_at_which_it_began() -> None:
    found = decide(situation(3_000, HELD, taken=10, before=FAILING), PROCESS)
    assert found.outage == FAILING
    assert found.fork_until == 60
    assert not found.undoes


def test_a_fork_does_not_go_back() -> None:
    found = decide(situation(3_000, HELD, taken=10, before=replace(FAILING, forks=forks(60))), PROCESS)
    assert found.fork_until is None


def test_when_the_stable_lineage_moves_what_was_tentative_is_void() -> None:
    found = decide(situation(4_000, BACK, taken=10, before=FAILING, moves=True), PROCESS)
    assert found.outage == Outage("STABILIZATION", 4_000, (), (1,), 30, FAILING.forks)
    assert found.undoes
    assert not found.ends
    assert found.fork_until == 60


def test_and_only_once() -> None:
    before = Outage("STABILIZATION", 3, (), (), 30, FAILING.forks)
    found = decide(situation(4_000, BACK, taken=10, before=before, moves=True), PROCESS)
    assert not found.undoes
    assert found.outage == before


def test_when_it_takes_in_all_the_fork_ends() -> None:
    found = decide(situation(4_000, BACK, taken=10, before=FAILING, moves=True, catches_up=True), PROCESS)
    assert found.ends
    assert ended(found.outage, 9) == Outage("STABLE", 9)


def test_a_fork_of_which_nothing_is_left_to_correct_ends_without_a_step() -> None:
    found = decide(situation(4_000, BACK, taken=60, before=FAILING, catches_up=True), PROCESS)
    assert found.ends
    assert not found.undoes


def test_while_inputs_are_missing_it_ends_behind_the_target_and_that_is_another_failure() -> None:
    half: Looks = [*HELD, (4_000, [at(60), at(15)])]
    before = Outage("STABILIZATION", 3, (1,), (1,), 30, FAILING.forks)
    what = {"taken": 12, "moves": True, "catches_up": True}
    assert not decide(situation(4_000, half, before=before, **what), PROCESS).ends
    found = decide(situation(4_000, half, before=replace(before, target=15), **what), PROCESS)
    assert found.ends
    assert ended(found.outage, 9) == Outage("UP_FAILURE", 9, (1,))


@pytest.mark.parametrize(
    ("failing", "stabilizing", "moves", "until"),
    [
        ("process", "suspend", True, None),
        ("process", "suspend", False, 60),
        ("delay", "process", True, 60),
        ("process", "delay", True, 46),
    ],
)
def test_the_fork_goes_on_as_the_lineage_that_moves_says(
    failing: str, stabilizing: str, moves: bool, until: int | None
) -> None:
    looks: Looks = [*HELD, (5_000, [at(60), at(12)])]
    before = Outage("STABILIZATION", 3, (1,), (1,), 30, FAILING.forks)
    promise = Promise(BOUND, failing, stabilizing)  # type: ignore[arg-type]
    assert decide(situation(5_000, looks, taken=10, before=before, moves=moves), promise).fork_until == until


def test_what_came_back_while_others_are_missing_is_taken_in_by_another_fork() -> None:
    looks: Looks = [(0, [at(60, 55), at(10), at(10)]), (4_000, [at(60), at(70, 25), at(10)])]
    before = Outage("UP_FAILURE", 2, (1, 2), (1, 2), forks=forks(60))

    def after(now_us: int) -> Decision:
        watch = watched(looks, 10, 3, before).looked([at(60), at(70), at(10)], now_us, 10, BOUND, before)
        return decide(Situation(now_us, watch, before, 10, moves=False, catches_up=False, since_us=now_us), PROCESS)

    assert not after(6_999).begins_anew
    found = after(7_000)
    assert (found.begins_anew, found.undoes, found.fork_until) == (True, True, 60)
    assert found.outage.missing == (2,)
