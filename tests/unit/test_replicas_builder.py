"""`sl.replicas` as a user writes it, without Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import strandline as sl
from strandline.errors import OptionError, StorageError, StreamMismatchError
from strandline.log.operator_state.standing import Standing
from strandline.log.storage.storage import create_once
from strandline.log.storage.storage_url import open_storage
from strandline.log.stream.append_commit import Append
from strandline.log.stream.block_sequence import BlockSequence
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.spark.read.stream import Stream
from tests.support.available_case import hung
from tests.support.operator_streams import PLANS, output_spec


def written(path: Path, ends: Sequence[int], **changed: Any) -> str:
    """A replica's stream with a result for each end of a window, finished."""
    spec = replace(output_spec(PLANS["tumbling time"], input_path="streams/input"), id=path.name, **changed)
    log = Log.create(open_storage(str(path)), spec)
    columns = [pa.array(ends, f.type) if f.name == "window_end" else pa.nulls(len(ends), f.type) for f in spec.arrow]
    blocks = BlockSequence(spec, 0, 0, "first", partial(create_once, log.storage)).write([(Kind.RESULT, columns)])
    standing = Standing(0, -1, 0, 0, 0, 0, results=len(ends))
    log.append(Append(list(blocks) if ends else [], standings=[standing], finished=True))
    return str(path)


def test_replicas_are_read_as_one_stream(tmp_path: Path) -> None:
    found = sl.replicas(written(tmp_path / "a", [10]), written(tmp_path / "b", [10, 20]))
    assert found.to_arrow().column("window_end").to_pylist() == [10, 20]
    assert found.to_arrow(tentative=True).column("_tentative").to_pylist() == [False, False]
    assert repr(found).startswith("Replicas('")
    assert repr(found).endswith("b', 1 partition)")
    one, other = found.describe()
    assert (one.results, one.is_chosen, one.state, one.problem) == (1, False, "STABLE", "")
    assert (other.results, other.is_chosen, other.is_behind) == (2, True, False)
    assert other.path.endswith("/b")


def test_whoever_follows_goes_on_from_a_place(tmp_path: Path) -> None:
    found = sl.replicas(written(tmp_path / "a", [10, 20]), written(tmp_path / "b", [10, 20]))
    ((table, place),) = found.follow()
    assert table.column("window_end").to_pylist() == [10, 20]
    assert table.column("_result").to_pylist() == [0, 1]
    assert list(found.follow(json.loads(json.dumps(place)))) == []


def test_a_replica_that_is_gone_is_told_of(tmp_path: Path) -> None:
    here = written(tmp_path / "a", [10])
    found = sl.replicas(here, str(tmp_path / "b"))
    assert [(one.is_chosen, one.problem) for one in found.describe()] == [
        (True, ""),
        (False, "there is no stream here"),
    ]
    shutil.rmtree(here)
    with pytest.raises(StorageError, match="none of the 2 replicas can be read"):
        found.to_arrow()
    with pytest.raises(StorageError, match="none of the 2 replicas can be read"):
        sl.replicas(here, str(tmp_path / "b"))


def test_spark_reads_the_best(tmp_path: Path) -> None:
    found = sl.replicas(written(tmp_path / "a", [10]), written(tmp_path / "b", [10, 20]))
    with mock.patch.object(Stream, "read", autospec=True) as read:
        found.read(mock.sentinel.spark, since=5, tentative=True)
    (stream, spark), options = read.call_args
    assert spark is mock.sentinel.spark
    assert options == {"since": 5, "until": None, "tentative": True}
    assert stream.offsets() == {0: 2}
    with pytest.raises(OptionError, match="since= of replicas takes times"):
        found.read(mock.sentinel.spark, since={0: 1})
    with pytest.raises(OptionError, match="positions=True does not work for replicas"):
        found.read(mock.sentinel.spark, positions=True)


def test_what_is_no_set_of_replicas_is_refused(tmp_path: Path) -> None:
    one = written(tmp_path / "a", [10])
    with pytest.raises(OptionError, match="1 stream given as replicas"):
        sl.replicas(one)
    with pytest.raises(OptionError, match="is not the path of a replica"):
        sl.replicas([one, one])  # type: ignore[arg-type]
    with pytest.raises(StreamMismatchError, match="one and the same stream"):
        sl.replicas(one, one)
    with pytest.raises(StreamMismatchError, match="the inputs are"):
        sl.replicas(one, written(tmp_path / "b", [10], upstream={"stream": "x", "path": "streams/x"}))


def test_operators_are_built_on_replicas_as_on_a_stream(tmp_path: Path) -> None:
    found = sl.replicas(written(tmp_path / "a", [10]), written(tmp_path / "b", [10, 20]))
    assert found._input_spec.id == found.group
    operator = found.where(pc.field("window_end") > 10).window(sl.time_window(100)).aggregate(n=sl.count_all())
    assert operator.inputs == (found,)
    assert repr(operator).startswith(f"Aggregation({tmp_path}/a or {tmp_path}/b, ")
    with pytest.raises(OptionError, match=r"rekey\(\) needs one stream") as refused:
        found.where(pc.field("window_end") > 10).rekey("s", "elsewhere", lateness=5)
    assert "sl.source(replicas.read_stream(spark), path" in refused.value.todo


def test_a_replica_whose_store_does_not_answer_keeps_nobody_from_reading_another(tmp_path: Path) -> None:
    one, other = written(tmp_path / "a", [10, 20]), written(tmp_path / "b", [10])
    found = sl.replicas(one, other, patience="300 ms")
    assert found.to_arrow().column("window_end").to_pylist() == [10, 20]
    with hung(tmp_path / "a" / "stream.json"), hung(next((tmp_path / "a").rglob("*.parquet"))):
        # Begun anew, as in another process: nothing is known of either.
        again = sl.replicas(one, other, patience="300 ms")
        assert again.to_arrow().column("window_end").to_pylist() == [10]
        (lost, _) = again.describe()
        assert "has not answered" in lost.problem
