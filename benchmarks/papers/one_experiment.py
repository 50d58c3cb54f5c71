"""Runs one experiment: `python -m benchmarks.papers.one_experiment NAME SIZE FOLDER FILE`.

In a process of its own, because it has a Spark of its own, and gives all of its memory back. It works in FOLDER, and
writes what it has found into FILE.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.papers.catalogue import experiments


def main(name: str, size: str, folder: str, file: str) -> None:
    """Measures, and writes what was found as JSON."""
    experiment = next(one for one in experiments() if one.name == name)
    data = experiment.measure(size, Path(folder))  # type: ignore[arg-type]
    Path(file).write_text(json.dumps(data, allow_nan=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
