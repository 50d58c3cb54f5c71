"""`operator.into(path)` as a user writes it, without Spark: the input that it is, and the mistakes that it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import strandline as sl
from strandline.errors import OptionError, SchemaError, StreamMismatchError, StreamNotFoundError

ITEMS = "id long, at timestamp, price double"


def feed(**options: Any) -> Any:
    return sl.testing.stream(ITEMS, **{"key": "id", "time": "at", "lateness": "5 s", **options})


def minute(folder: Path, *, of: Any = None) -> sl.Stage:
    window = (feed() if of is None else of).window(sl.time_window("1 min"))
    return window.aggregate(n=sl.count_all(), total=sl.sum("price")).into(str(folder / "minute"))  # type: ignore[no-any-return]


def test_a_stage_has_the_columns_and_the_key_of_its_results_before_it_runs(tmp_path: Path) -> None:
    stage = minute(tmp_path)
    assert stage.select("id", "window_end", "n").schema.names == ["id", "window_end", "n"]
    hour = stage.where(pc.field("n") > 1).window(sl.time_window("1 h")).aggregate(n=sl.sum("n"))
    assert "minute" in repr(hour)
    pairs = feed().join(stage, within="1 min").into(str(tmp_path / "pairs"))
    most = pairs.window(sl.time_window("1 h")).aggregate(most=sl.max("total"))
    assert most.into(str(tmp_path / "most")).select("id", "window_end", "most").schema.names == [
        "id",
        "window_end",
        "most",
    ]


def test_a_column_that_a_stage_does_not_have_is_an_error_where_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="price"):
        minute(tmp_path).window(sl.time_window("1 h")).aggregate(total=sl.sum("price"))
    with pytest.raises(SchemaError, match="price"):
        minute(tmp_path).where(pc.field("price") > 1.0)


def test_streams_that_cannot_be_read_together_are_refused_where_they_are_written(tmp_path: Path) -> None:
    with pytest.raises(StreamMismatchError, match="partitions"):
        feed(partitions=3).join(minute(tmp_path), within="1 min")
    counted = feed().window(sl.count_window(10)).aggregate(n=sl.count_all()).into(str(tmp_path / "counted"))
    with pytest.raises(OptionError, match="count windows"):
        sl.union(counted, minute(tmp_path))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"max_tuples_per_batch": 0}, "max_tuples_per_batch=0"),
        ({"durability": "maybe"}, "durability='maybe'"),
        ({"on_error": "ignore"}, "on_error='ignore'"),
        ({"compaction": "sometimes"}, "compaction='sometimes'"),
        ({"retention": "soon"}, "retention"),
    ],
)
def test_options_of_the_output_are_checked_where_they_are_written(
    tmp_path: Path, options: dict[str, Any], what: str
) -> None:
    operator = feed().window(sl.time_window("1 min")).aggregate(n=sl.count_all())
    with pytest.raises(OptionError, match=what):
        operator.into(str(tmp_path / "out"), **options)


def test_a_stage_that_was_not_started_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(StreamNotFoundError, match=r"not been started[^§]*sl\.pipeline"):
        minute(tmp_path)._opened_input()


def test_a_stage_shows_its_operator_and_its_output(tmp_path: Path) -> None:
    stage = minute(tmp_path)
    assert repr(stage).startswith("Aggregation(")
    assert repr(stage).endswith("minute")
    assert "Aggregation" in stage._repr_html_()
    assert "minute" in stage._repr_html_()


@pytest.mark.parametrize("path", [None, 7, b"streams/minute"])
def test_what_is_no_path_is_refused_where_it_is_written(path: Any) -> None:
    operator = feed().window(sl.time_window("1 min")).aggregate(n=sl.count_all())
    for call in (operator.into, feed().where(pc.field("price") > 1.0).into, sl.stream):
        with pytest.raises(OptionError, match=r"is not the path of a stream"):
            call(path)


def test_a_path_may_be_a_path_of_pathlib(tmp_path: Path) -> None:
    operator = feed().window(sl.time_window("1 min")).aggregate(n=sl.count_all())
    assert operator.into(tmp_path / "minute")._input_place.url == str(tmp_path / "minute")


def test_a_key_column_is_named_once() -> None:
    with pytest.raises(OptionError, match="names 'id' twice"):
        feed(key=["id", "id"])


@pytest.mark.parametrize("method", ["where", "select", "window", "join", "rekey", "apply"])
def test_an_operator_without_an_output_says_that_it_needs_one(method: str) -> None:
    operator = feed().window(sl.time_window("1 min")).aggregate(n=sl.count_all())
    with pytest.raises(OptionError, match=rf"{method}\(…\) of an operator without an output[^§]*\.into\(path\)"):
        getattr(operator, method)("n")


@pytest.mark.parametrize("method", ["availability", "checkpoint", "into"])
def test_a_stage_says_what_belongs_before_its_output(tmp_path: Path, method: str) -> None:
    with pytest.raises(OptionError, match=rf"{method}\(…\) of an operator that has an output[^§]*before"):
        getattr(minute(tmp_path), method)("3 s")


@pytest.mark.parametrize("make", [lambda: feed().where(pc.field("price") > 1.0), lambda: minute(Path("x")).operator])
def test_options_of_a_start_are_refused_by_into(tmp_path: Path, make: Any) -> None:
    with pytest.raises(OptionError, match=r"into\(…\) takes no trigger=[^§]*start\("):
        make().into(str(tmp_path / "out"), trigger="1 s")
    with pytest.raises(TypeError, match="speed"):
        make().into(str(tmp_path / "out"), speed=1)
