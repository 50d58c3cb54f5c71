"""The stream of an operator that began in the middle of its inputs is read, and goes on from there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from strandline.log.audit.stream_audit import verify
from strandline.log.operator_state.beginning import Beginning
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream import quiet
from strandline.log.stream.log import Log
from tests.golden import make_since as made
from tests.support.operator_streams import published_results

BEGINS = {
    "time": Beginning(14, ((10,),)),
    "offsets": Beginning({0: 12}, ((12,),)),
    "latest": Beginning("latest", ((15,), (15,)), (16,)),
}


@pytest.mark.parametrize("name", made.SINCE)
def test_it_goes_on_from_its_streams_alone_and_its_results_are_what_they_would_have_been(
    tmp_path: Path, name: str
) -> None:
    shutil.copytree(made.FOLDER, tmp_path / "golden")
    *inputs, output = (Log.open(LocalStorage(tmp_path / "golden" / n)) for n in (*made.INPUTS, name))
    assert output.spec.format == 6
    assert output.spec.begins == BEGINS[name]
    assert output.spec.to_json() == output.storage.read("stream.json")
    wanted = json.loads((made.FOLDER / "expected.json").read_text())[name]
    before = published_results(output, 0).to_pylist()
    assert before == wanted[: len(before)] != []
    made.append(inputs, made.HALF, made.WHOLE)
    for log in inputs:
        quiet.finish(log, "golden-run")
    made.work(name, made.inputs_of(name, inputs), output, tmp_path / "cache")
    assert published_results(output, 0).to_pylist() == wanted
    assert output.state.finished
    assert not verify(output).problems
