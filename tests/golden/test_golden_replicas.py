"""The stream of an operator over replicas that exists is read and goes on, from whichever of them is there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from strandline.log.audit.stream_audit import verify
from strandline.log.operator_state.input_mark import ReplicaMark
from strandline.log.operator_state.origin_logs import is_of
from strandline.log.operator_state.upstream import origins_of
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream import quiet
from strandline.log.stream.log import Log
from strandline.recovery.window_report import current_windows
from tests.golden import make_replicas as made
from tests.support.operator_streams import published_results


@pytest.fixture
def streams(tmp_path: Path) -> list[Log]:
    shutil.copytree(made.FOLDER, tmp_path / "golden")
    return [Log.open(LocalStorage(tmp_path / "golden" / name)) for name in made.NAMES]


def test_it_says_of_which_replica_its_marks_are_and_its_windows_are_those_of_any(streams: list[Log]) -> None:
    for log in streams:
        assert not verify(log).problems
    _, one, other, output = streams
    assert output.spec.format == 5
    (origin,) = origins_of(output.spec.upstream)
    assert origin.paths == ("one", "other")
    (standing,) = output.state.standings
    assert standing.marks is not None
    (mark,) = standing.marks.inputs
    assert isinstance(mark.replica, ReplicaMark)
    assert mark.replica.stream == one.spec.id
    assert mark.first > mark.replica.first > 0
    for replica in (one, other):
        assert is_of(origin, replica)
        assert current_windows(output, [replica]).num_rows == standing.open > 0


@pytest.mark.parametrize("read", [0, 1])
def test_it_goes_on_from_either_and_its_results_are_what_they_would_have_been(
    streams: list[Log], tmp_path: Path, read: int
) -> None:
    wanted = json.loads((made.FOLDER / "expected.json").read_text())
    output = streams[-1]
    before = published_results(output, 0).to_pylist()
    assert before == wanted[: len(before)] != []
    made.append(streams[0], made.HALF, made.WHOLE)
    quiet.finish(streams[0], "golden-run")
    made.work_all(streams, tmp_path / "cache", read)
    assert published_results(output, 0).to_pylist() == wanted
    assert output.state.finished
    assert not verify(output).problems
