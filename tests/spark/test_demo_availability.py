"""`strandline demo availability`, a short one: it says what happened, draws it, and its results are the right ones."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.machine import patience


@pytest.mark.long
@pytest.mark.spark
def test_the_demo_draws_an_outage_and_what_became_of_it(tmp_path: Path) -> None:
    program = "from strandline.cli.app import main; main()"
    command = [sys.executable, "-c", program, "demo", "availability", "--silence", "4 s", "--json"]
    environment = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(
        command, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=patience(400)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(done.stdout)
    assert seen["identical"]
    assert seen["tentative"] > 0
    assert 0 < seen["wait_s"] < seen["stable_wait_s"]
    assert (tmp_path / seen["picture"]).read_text().startswith("<svg")
    assert "\x1b" not in done.stderr, "no colours where nobody looks"
    assert max(map(len, done.stderr.splitlines())) <= 80
    for told in ("UP_FAILURE after", "missing: south", "STABLE after", "tentative", "x UP_FAILURE", "R undo"):
        assert told in done.stderr
