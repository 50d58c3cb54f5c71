"""The elements of a pipeline without Spark: what belongs to it, in which order, and what cannot run together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import strandline as sl
from strandline.errors import OptionError
from strandline.spark.pipeline.network import Network
from tests.support.plain_context import jvm_context

ITEMS = "id long, at timestamp, price double"


def feed() -> Any:
    return sl.testing.stream(ITEMS, key="id", time="at", lateness="5 s")


def counted(input_: Any) -> sl.Aggregation:
    return input_.window(sl.time_window("1 min")).aggregate(n=sl.count_all(), price=sl.max("id"))  # type: ignore[no-any-return]


def stages(folder: Path, inputs: Mapping[str, Sequence[str]]) -> dict[str, sl.Stage]:
    """Returns stages by their names, each over these others; over a feed if it has none."""
    made: dict[str, sl.Stage] = {}
    for name, others in inputs.items():
        given = [made[other] for other in others] or [feed()]
        made[name] = counted(sl.union(*given) if len(given) > 1 else given[0]).into(str(folder / name))
    return made


def names(urls: Sequence[str] | Mapping[str, Any]) -> list[str]:
    return [url.rpartition("/")[2] for url in urls]


DIAMOND = {"first": [], "left": ["first"], "right": ["first"], "both": ["left", "right"], "last": ["both"]}


def test_elements_that_others_are_made_of_come_along_and_come_first(tmp_path: Path) -> None:
    found = Network.of([stages(tmp_path, DIAMOND)["last"]])
    order = names(found.elements)
    assert sorted(order) == sorted(DIAMOND)
    assert all(order.index(other) < order.index(name) for name, others in DIAMOND.items() for other in others)
    assert len(found.others) == 1


def test_an_element_that_is_given_and_made_of_appears_once(tmp_path: Path) -> None:
    made = stages(tmp_path, DIAMOND)
    assert (
        Network.of([made["last"], made["first"], made["both"]]).elements.keys()
        == Network.of([made["last"]]).elements.keys()
    )


def test_what_stands_behind_an_element_is_all_that_needs_its_results(tmp_path: Path) -> None:
    made = stages(tmp_path, {**DIAMOND, "other": []})
    found = Network.of([made["last"], made["other"]])
    assert set(names(found.behind(str(tmp_path / "left")))) == {"both", "last"}
    assert set(names(found.behind(str(tmp_path / "first")))) == {"left", "right", "both", "last"}
    assert names(found.behind(str(tmp_path / "left"), but={str(tmp_path / "both")})) == []
    assert found.behind(str(tmp_path / "other")) == []


@pytest.mark.parametrize(("name", "length"), [("first", 4), ("left", 4), ("both", 4), ("short", 2), ("last", 4)])
def test_the_longest_path_through_an_operator_counts_all_operators_on_it(
    tmp_path: Path, name: str, length: int
) -> None:
    made = stages(tmp_path, {**DIAMOND, "short": ["first"]})
    assert Network.of([made["last"], made["short"]]).longest_path(str(tmp_path / name)) == length


def test_tuples_pass_the_operators_whose_results_have_times_of_the_inputs(tmp_path: Path) -> None:
    made = stages(tmp_path, DIAMOND)
    first, other = made["first"], counted(feed()).into(str(tmp_path / "other"))
    joined = first.join(other, within="10 s", how="left").into(str(tmp_path / "joined"))
    by_count = first.window(sl.count_window(5)).aggregate(n=sl.count_all()).into(str(tmp_path / "by_count"))
    found = Network.of([made["last"], joined, by_count])
    until = {names([passage.output])[0]: passage.result_boundary(60_000_000) for passage in found.passages}
    assert until == {**dict.fromkeys([*DIAMOND, "other"], 60_000_000), "joined": 50_000_000}


def test_two_elements_with_one_output_are_refused(tmp_path: Path) -> None:
    one, two = (counted(feed()).into(str(tmp_path / "out")) for _ in range(2))
    with pytest.raises(OptionError, match="two elements of the pipeline write into the same stream"):
        sl.pipeline(one, two)


def test_elements_that_read_each_other_are_refused_with_the_circle(tmp_path: Path) -> None:
    made = stages(tmp_path, {"a": [], "b": ["a"], "c": ["b"]})
    made["a"]._operator = counted(made["c"])
    with pytest.raises(OptionError, match="in a circle") as caught:
        sl.pipeline(made["b"])
    circle = names(caught.value.where.split(" -> "))
    assert circle[0] == circle[-1]
    assert "".join(circle[:-1]) in ("abc", "bca", "cab")


def test_what_has_no_output_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"has no output[^§]*\.into\("):
        sl.pipeline(counted(feed()))
    with pytest.raises(OptionError, match="writes none"):
        sl.pipeline("streams/a")
    with pytest.raises(OptionError, match="without elements"):
        sl.pipeline()


def test_a_bound_from_end_to_end_leaves_no_room_for_another(tmp_path: Path) -> None:
    both = counted(sl.union(feed(), feed()))
    flow = sl.pipeline(both.into(str(tmp_path / "both")))
    with pytest.raises(OptionError, match="unit"):
        flow.availability(9)
    assert flow.availability("9 s")._bounded[str(tmp_path / "both")].promise.bound_us == 9_000_000
    with pytest.raises(OptionError, match="so has this operator"):
        sl.pipeline(both.availability("1 s").into(str(tmp_path / "own"))).availability("9 s")


def test_a_bound_of_a_pipeline_that_makes_no_sense_is_refused_by_its_own_name(tmp_path: Path) -> None:
    flow = sl.pipeline(stages(tmp_path, {"first": [], "second": ["first"]})["second"])
    with pytest.raises(OptionError, match="availability: within=9 has no unit") as caught:
        flow.availability(within=9)
    assert caught.value.todo.startswith('write within="9 s"')
    with pytest.raises(OptionError, match="availability: within='soon' is not a duration"):
        flow.availability(within="soon")
    with pytest.raises(OptionError, match="within='1 us' is too short for 2 operators in a row") as caught:
        flow.availability(within="1 us")
    assert caught.value.where.endswith("/first")


def test_a_bound_of_a_pipeline_names_the_operator_whose_policy_loses_tuples(tmp_path: Path) -> None:
    lossy = counted(feed()).checkpoint(sl.partial()).into(str(tmp_path / "lossy"))
    flow = sl.pipeline(counted(lossy).into(str(tmp_path / "last")))
    with pytest.raises(OptionError, match="a failure would lose tuples") as caught:
        flow.availability(within="9 s")
    assert caught.value.where == str(tmp_path / "lossy")
    assert "sl.cec" in caught.value.todo


def test_a_share_of_the_bound_below_two_trigger_intervals_is_refused_at_the_start(tmp_path: Path) -> None:
    made = stages(tmp_path, {"first": [], "second": ["first"]})
    flow = sl.pipeline(made["second"]).availability("3 s")
    spark: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(_jsc=jvm_context()), conf={"spark.sql.session.timeZone": "UTC"}
    )
    with pytest.raises(OptionError, match=r"(?s)1500 ms is shorter than two trigger intervals.*/first"):
        flow.start(spark, trigger="1 s")
    assert not list(tmp_path.iterdir())


def test_a_diagram_has_every_element_once_and_escapes_what_mermaid_would_read(tmp_path: Path) -> None:
    made = stages(tmp_path, DIAMOND)
    text = str(sl.pipeline(made["last"]).graph())
    assert text.splitlines()[0] == "flowchart LR"
    assert text.count("-->") == 6
    assert all(text.count(f"{name}<br/>") == 1 for name in DIAMOND)
    strange = counted(feed()).into(str(tmp_path / 'a"b<c>#d'))
    shown = str(sl.pipeline(strange).graph())
    assert "a#quot;b#lt;c#gt;#35;d" in shown


def test_a_notebook_draws_the_diagram(tmp_path: Path) -> None:
    flow = sl.pipeline(stages(tmp_path, {"a": []})["a"])
    assert flow._repr_markdown_().startswith("```mermaid\nflowchart LR\n")
    assert flow.paths == (str(tmp_path / "a"),)
    assert "1 element" in repr(flow)
