"""A stream with losses on record is read, checked and gone on with as the version that made it would have."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from strandline.log.audit.stream_audit import verify
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from tests.golden import make_lossy as made
from tests.golden import make_operators


def test_what_it_has_lost_is_known_and_it_goes_on(tmp_path: Path) -> None:
    expected = json.loads((made.FOLDER / "expected.json").read_text())
    shutil.copytree(made.FOLDER, tmp_path / "golden")
    input_, output = (Log.open(LocalStorage(tmp_path / "golden" / stream)) for stream in ("input", "output"))
    assert not verify(output).problems
    assert made.losses(output) == expected["losses"] == [[20, 41, 6, 0, 1, "skipped"]]
    for first, end in ((60, 75), (75, 90)):
        make_operators.append(input_, first, end)
        make_operators.work(make_operators.plan(made.NAME), input_, output, tmp_path / "cache", made.POLICY)
    assert made.losses(output) == expected["losses_later"]
    assert len(expected["losses_later"]) == 2
    assert make_operators.results(output) == expected["results"]
