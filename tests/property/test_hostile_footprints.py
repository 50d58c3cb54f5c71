"""Forged footprints of every operator, with bounds checks in all compiled code: an error of ours, or it goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hostile_footprints import NAMES
from tests.support.machine import patience

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_compiled_code_stays_inside_of_its_arrays_whatever_a_footprint_says(name: str) -> None:
    command = [sys.executable, "-m", "tests.support.hostile_footprints", name, "0", "40"]
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "PYTHONPATH": os.pathsep.join([p for p in sys.path if p])}
    run = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=patience(600), check=False
    )
    assert run.returncode == 0, run.stdout[-200:] + run.stderr[-4_000:]
    refused = int(run.stdout.split("refused: ")[1].split()[0])
    assert 0 < refused < 40, "none was forged, or none was sound"
