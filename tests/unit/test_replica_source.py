"""The reader of replicas that Spark calls, without Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from strandline.errors import OptionError, StreamMismatchError
from strandline.spark.read.read_options import ReadOptions
from strandline.spark.read.replica_source import ReplicaChangesReader, ReplicaStreamReader
from strandline.spark.read.source import StrandlineDataSource
from strandline.spark.read.source_schema import replicas_schema
from tests.unit.test_replicas_builder import written

ENDS = [10, 20, 30, 40]


def options(folder: Path, **given: str) -> dict[str, str]:
    return {"replicas": json.dumps([str(folder / "a"), str(folder / "b")]), **given}


def reader(folder: Path, **given: str) -> ReplicaStreamReader:
    checked = ReadOptions.of(options(folder, **given))
    kind = ReplicaChangesReader if checked.tentative else ReplicaStreamReader
    return kind(checked, replicas_schema(checked.spec(), positions=checked.positions, tentative=checked.tentative))


def rows(found: ReplicaStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    parts = found.partitions(*(json.loads(json.dumps(one)) for one in (start, end)))
    return [row for part in parts for batch in found.read(part) for row in batch.to_pylist()]


@pytest.mark.parametrize("tentative", ["false", "true"])
def test_a_batch_that_is_repeated_after_a_replica_is_gone_has_the_same_results(tmp_path: Path, tentative: str) -> None:
    written(tmp_path / "a", ENDS)
    written(tmp_path / "b", ENDS)
    first = reader(tmp_path, tentative=tentative, positions="true")
    start = first.initialOffset()
    end = first.latestOffset(start, ReadAllAvailable())
    before = rows(first, start, end)
    assert [(row["window_end"], row["_partition"], row["_result"]) for row in before] == [
        (end_, 0, number) for number, end_ in enumerate(ENDS)
    ]
    shutil.rmtree(tmp_path / "a")
    again = reader(tmp_path, tentative=tentative, positions="true")
    assert rows(again, start, end) == before
    assert again.latestOffset(end, ReadAllAvailable())["partitions"] == end["partitions"]


def test_a_batch_is_as_large_as_it_may_be_and_a_query_of_what_is_there_comes_to_its_end(tmp_path: Path) -> None:
    written(tmp_path / "a", ENDS)
    written(tmp_path / "b", ENDS[:1])
    found = reader(tmp_path)
    found.prepareForTriggerAvailableNow()
    start = found.initialOffset()
    middle = found.latestOffset(start, ReadMaxRows(3))
    end = found.latestOffset(middle, ReadMaxRows(3))
    assert [len(rows(found, *pair)) for pair in ((start, middle), (middle, end))] == [3, 1]
    assert found.latestOffset(end, ReadMaxRows(3)) == end


def test_a_query_begins_where_it_is_told_to(tmp_path: Path) -> None:
    written(tmp_path / "a", ENDS)
    written(tmp_path / "b", ENDS[:2])
    starts = {"earliest": 0, "latest": 4, "+25": 2, "+99": 4}
    for start, results in starts.items():
        assert reader(tmp_path, start=start).initialOffset()["partitions"][0]["results"] == results


def test_a_place_of_other_streams_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "a", ENDS)
    written(tmp_path / "b", ENDS)
    with pytest.raises(StreamMismatchError, match="this query has read other streams"):
        reader(tmp_path).latestOffset({"offsets": {"0": 1}, "stream": "a"}, ReadAllAvailable())


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"replicas": "streams/a"}, "replicas is not a JSON list of paths"),
        ({"replicas": "[]"}, "replicas is not a JSON list of paths"),
        ({"replicas": '["a", 3]'}, "replicas is not a JSON list of paths"),
        ({"replicas": '["a", "b"]', "path": "c"}, "path= and replicas= cannot be used together"),
        ({"replicas": '["a", "b"]', "patience": "soon"}, "patience='soon' is not a duration"),
        ({}, "needs a path"),
    ],
)
def test_options_that_make_no_replicas_are_refused(given: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionError) as caught:
        ReadOptions.of(given)
    assert problem in caught.value.what


def test_the_format_knows_what_replicas_have(tmp_path: Path) -> None:
    written(tmp_path / "a", ENDS)
    written(tmp_path / "b", ENDS)
    plain = StrandlineDataSource(options(tmp_path))
    assert "_result" not in plain.schema().names
    assert isinstance(plain.streamReader(plain.schema()), ReplicaStreamReader)
    with pytest.raises(OptionError, match="replicas of format"):
        plain.reader(plain.schema())
    told = StrandlineDataSource(options(tmp_path, tentative="true"))
    assert told.schema().names[-3:] == ["_kind", "_partition", "_result"]
    assert isinstance(told.streamReader(told.schema()), ReplicaChangesReader)
    with pytest.raises(OptionError, match="since, until and moment are for batch reads"):
        StrandlineDataSource(options(tmp_path, since="5")).streamReader(plain.schema())
