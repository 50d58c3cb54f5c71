"""`.availability(…)` as a user writes it, without Spark: what is refused, and what people are told of a failure."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.errors import OptionError, StorageError
from strandline.log.operator_state.outage import ForkStanding, Outage, outage_report
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.spark.operator.operator_inputs import OperatorInputs
from tests.support.inputs_over import inputs_over
from tests.support.items import item_spec


def stream(folder: Path, name: str) -> sl.Stream:
    Log.create(LocalStorage(folder / name), item_spec(name=f"{name}-of-{folder.name}"))
    return sl.stream(str(folder / name))


def counted(*inputs: Any) -> Any:
    over = sl.union(*inputs) if len(inputs) > 1 else inputs[0]
    return over.window(sl.time_window(10)).aggregate(n=sl.count_all())


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"bound": "1 s", "failing": "wait"}, "availability: failing='wait' is unknown"),
        ({"bound": "1 s", "stabilizing": "never"}, "availability: stabilizing='never' is unknown"),
        ({"bound": "1 s", "reconcile": "guess"}, "availability: reconcile='guess' is unknown"),
        ({"bound": 3}, "availability: bound=3 has no unit"),
        ({"bound": "0 s"}, "availability: bound='0 s' is not a duration"),
        ({"bound": "soon"}, "availability: bound='soon' is not a duration"),
        ({"bound": "3"}, "availability: bound='3' is not a duration"),
        ({"bound": "-1 s"}, "availability: bound='-1 s' is negative"),
        ({"bound": "3 months"}, "availability: bound='3 months' has an unknown unit 'months'"),
        ({"bound": timedelta(seconds=-1)}, "is negative"),
        ({"bound": None}, "availability: bound=None is not a duration"),
        ({"bound": True}, "availability: bound=True is not a duration"),
        ({"bound": 1.5}, "availability: bound=1.5 is not a duration"),
        ({"bound": "1 s", "failing": None}, "availability: failing=None is unknown"),
        ({"bound": "1 s", "failing": ["process"]}, "availability: failing=['process'] is unknown"),
        ({"bound": "1 s", "reconcile": True}, "availability: reconcile=True is unknown"),
    ],
)
def test_options_that_make_no_sense_are_refused_at_once(tmp_path: Path, options: dict[str, Any], what: str) -> None:
    operator = counted(stream(tmp_path, "a"), stream(tmp_path, "b"))
    with pytest.raises(OptionError, match=re.escape(what)) as caught:
        operator.availability(**options)
    assert caught.value.todo.startswith(("write", "use"))
    assert "plain number" not in caught.value.todo, "a bound goes by the clock"


def test_an_operator_shows_its_bound_as_a_program_says_it(tmp_path: Path) -> None:
    operator = counted(stream(tmp_path, "a"), stream(tmp_path, "b"))
    assert "availability" not in repr(operator)
    bound = operator.availability("1500 ms", failing="delay", reconcile="undo")
    assert repr(bound).endswith(', availability("1500 ms", failing="delay", reconcile="undo"))')
    assert "availability(&quot;1500 ms&quot;" in bound._repr_html_()
    joined = sl.stream(str(tmp_path / "a")).join(sl.stream(str(tmp_path / "b")), within=10)
    assert repr(joined.availability("3 s")).endswith(', availability("3 s"))')


def test_an_operator_over_one_input_has_a_bound_if_that_says_up_to_when_it_is_complete(tmp_path: Path) -> None:
    window = stream(tmp_path, "a").window(sl.time_window(10))
    assert repr(window.aggregate(n=sl.count_all()).availability("1 s")).endswith(', availability("1 s"))')
    feed = sl.testing.stream("id long, at long", key="id", time="at")
    with pytest.raises(OptionError, match="has no lateness"):
        feed.window(sl.count_window(2)).aggregate(n=sl.count_all()).availability("1 s")
    counts = sl.testing.run(feed.window(sl.count_window(2)).aggregate(n=sl.count_all()))
    with pytest.raises(OptionError, match="results of count windows"):
        counts.window(sl.count_window(2)).aggregate(n=sl.count_all()).availability("1 s")


def test_policies_that_lose_tuples_have_no_bound_in_whichever_order_they_come(tmp_path: Path) -> None:
    operator = counted(stream(tmp_path, "a"), stream(tmp_path, "b"))
    with pytest.raises(OptionError, match="a failure would lose tuples"):
        operator.availability("1 s").checkpoint(sl.partial())
    with pytest.raises(OptionError, match="a failure would lose tuples"):
        operator.checkpoint(sl.partial()).availability("1 s")


def test_a_bound_below_two_trigger_intervals_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    operator, nowhere = counted(stream(tmp_path, "a"), stream(tmp_path, "b")), tmp_path / "results"
    no_spark: Any = None
    with pytest.raises(OptionError, match=r"bound of 1500 ms is shorter than two trigger intervals of 1 s"):
        operator.availability("1500 ms").start(no_spark, str(nowhere), trigger="1 s")
    assert not nowhere.exists()


def test_barriers_and_inner_joins_are_blocked_without_an_input_and_say_so(tmp_path: Path) -> None:
    a, b = stream(tmp_path, "a"), stream(tmp_path, "b")
    inner, outer = a.join(b, within=5), a.join(b, within=5, how="full")
    blocked = [sl.barrier(a=a, b=b), inner, a.join(b, left=sl.count_window(3), right=sl.count_window(3))]
    for operator in blocked:
        why = operator.definition.blocked_without_input
        assert "blocked until b is back" in outage_report(Outage("UP_FAILURE", 7, (1,)), ["a", "b"], why)["blocked"]
        assert "blocked" not in outage_report(Outage(), ["a", "b"], why)
    assert outer.definition.blocked_without_input is None
    assert counted(a, b).definition.blocked_without_input is None


def test_a_report_names_the_inputs_that_are_missing_and_counts_what_is_tentative() -> None:
    forks = (ForkStanding(5, 3, 5, 0, 3, 3), ForkStanding(5, 3, 5, 0, 1, 1))
    found = outage_report(Outage("UP_FAILURE", 7, (1,), (1,), None, forks), ["a", "b"], None)
    assert found == {"state": "UP_FAILURE", "since_us": 7, "missing": ["b"], "tentative": 4}


def test_a_report_says_why_a_fork_has_ended(tmp_path: Path) -> None:
    forks = (ForkStanding(5, 3, 5, 0, 3, 3), ForkStanding(None, 0, None, 2, problem="ValueError: no such luck"))
    found = outage_report(Outage("UP_FAILURE", 7, (1,), (1,), None, forks), ["a", "b"], None)
    assert found["problems"] == {1: "ValueError: no such luck"}


def test_inputs_that_cannot_be_read_end_a_look_without_a_bound(tmp_path: Path) -> None:
    a, b = stream(tmp_path, "a"), stream(tmp_path, "b")
    places, logs = [a._input_place, b._input_place], [a._input_place.open(), b._input_place.open()]
    path = tmp_path / "b"
    path.rename(tmp_path / "hidden")
    path.symlink_to(path)
    with pytest.raises(StorageError):
        OperatorInputs(places, inputs_over(logs)).refresh()
