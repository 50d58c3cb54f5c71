"""`read(tentative=True)`: the same rows from every kind of storage, whether Spark reads the blocks or Python does."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.errors import OptionError
from strandline.log.operator_state.outage import Outage
from strandline.log.storage.storage_url import open_storage
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.upkeep import compaction
from tests.support import written_replicas
from tests.support.written_outage import STABLE, Output, fork, story

pytestmark = pytest.mark.spark


class Written:
    """A stream with tentative results that somebody has written by hand, and a reader's handle on it."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self.url = url
        self.options = options
        self.output = story(open_storage(url, **options))
        self.stream = sl.stream(url, storage_options=options)

    def rows(self, spark: Any, **part: Any) -> list[tuple[int, bool]]:
        return shown(self.stream.read(spark, tentative=True, **part))

    def corrected(self) -> None:
        """The input is back."""
        self.output.append([(Kind.UNDO, 0), (Kind.RESULT, 30), (Kind.RESULT, 40), (Kind.REC_DONE, 0)], STABLE, 40)


def shown(df: Any) -> list[tuple[int, bool]]:
    return sorted((row["window_end"], row["_tentative"]) for row in df.collect())


@pytest.fixture(params=["file system", "s3", pytest.param("webhdfs", marks=pytest.mark.long)])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Written:
    if request.param == "file system":
        return Written(str(tmp_path / "counts"), {})
    if request.param == "webhdfs":
        return Written(f"{request.getfixturevalue('webhdfs_url')}/{uuid.uuid4().hex}", {})
    region = {"region_name": "us-east-1"}
    options = {"key": "tests", "secret": "tests", "endpoint_url": request.getfixturevalue("s3_endpoint")}
    return Written(f"s3://tests/{uuid.uuid4().hex}", {**options, "client_kwargs": region})


STORY = [(10, False), (20, False), (40, True), (50, True)]
"""What counts of it: 20 and 30 were guessed, and undone."""


def test_tentative_results_that_count_are_read_beside_the_stable_ones(written: Written, spark: Any) -> None:
    assert written.rows(spark) == STORY
    schema = written.stream.read(spark, tentative=True).schema
    assert schema.names == [*written.stream.schema.names, "_tentative"]
    assert schema["_tentative"].dataType.simpleString() == "boolean"
    placed = written.stream.read(spark, tentative=True, positions=True)
    assert sorted((row["_partition"], row["_offset"], row["window_end"]) for row in placed.collect()) == [
        (0, 0, 10),
        (0, 5, 20),
        (0, 7, 40),
        (0, 8, 50),
    ]
    assert sorted(row["window_end"] for row in written.stream.read(spark).collect()) == [10, 20]


def test_bounds_hold_for_tentative_results_too(written: Written, spark: Any) -> None:
    assert written.rows(spark, since=20, until=50) == [(20, False), (40, True)]
    assert written.rows(spark, since={0: 5}) == [(20, False), (40, True), (50, True)]
    assert written.rows(spark, since={0: 8}) == [(50, True)]
    assert written.rows(spark, until={0: 8}) == [(10, False), (20, False), (40, True)]
    some = written.stream.read(spark, tentative=True).where("window_end >= 20 AND window_end < 50")
    assert shown(some) == [(20, False), (40, True)]
    assert shown(some.where("_tentative")) == [(40, True)]


def test_guesses_before_the_stable_boundary_do_not_count(written: Written, spark: Any) -> None:
    failing = Outage("STABILIZATION", 8, (), (1,), 50, fork(5, 2, 4))
    written.output.append([(Kind.RESULT, 30), (Kind.RESULT, 40)], failing, 45)
    assert written.rows(spark) == [(10, False), (20, False), (30, False), (40, False), (50, True)]


def test_a_data_frame_stays_what_it_was_when_it_was_made(written: Written, spark: Any) -> None:
    before, stable = written.stream.read(spark, tentative=True), written.stream.read(spark)
    written.corrected()
    assert shown(before) == STORY
    assert shown(before.where("_tentative")) == STORY[2:]
    assert stable.count() == 2
    assert written.rows(spark) == [(end, False) for end in (10, 20, 30, 40)]
    written.output.clock.advance(1)
    compaction.compact(Log.open(open_storage(written.url, **written.options)))
    assert shown(before.where("window_end > 10")) == STORY[1:], "blocks that were joined are found"


def test_what_is_stable_again_has_no_tentative_results(written: Written, spark: Any) -> None:
    empty = Output(open_storage(f"{written.url}-empty", **written.options))
    df = sl.stream(f"{written.url}-empty", storage_options=written.options).read(spark, tentative=True)
    assert (shown(df), df.schema.names[-1]) == ([], "_tentative")
    empty.append([(Kind.RESULT, 10)], STABLE, 10)
    df = sl.stream(f"{written.url}-empty", storage_options=written.options).read(spark, tentative=True)
    assert shown(df) == [(10, False)]


def test_what_is_late_is_never_tentative(written: Written, spark: Any) -> None:
    with pytest.raises(OptionError, match="late=True does not go with tentative=True"):
        written.stream.read(spark, tentative=True, late=True)


def test_replicas_are_read_with_the_tentative_results_of_the_best(written: Written, spark: Any) -> None:
    names = ("one", "other")
    urls = [f"{written.url}-{name}" for name in names]
    stores = [open_storage(url, **written.options) for url in urls]
    one, other = map(written_replicas.Written, names, stores)
    guessed = [(Kind.RESULT, 10), (Kind.TENTATIVE, 20)]
    one.append([*guessed, (Kind.UNDO, 0), (Kind.TENTATIVE, 25)], "UP_FAILURE", 10)
    other.append(guessed[:1], "UP_FAILURE", 10)
    replicas = sl.replicas(*urls, storage_options=written.options)
    assert shown(replicas.read(spark, tentative=True)) == [(10, False), (25, True)]
    assert shown(replicas.read(spark, until=25, tentative=True)) == [(10, False)]
    other.append([(Kind.RESULT, 20)], "STABLE", 20)
    assert shown(replicas.read(spark, tentative=True)) == [(10, False), (20, False)]
