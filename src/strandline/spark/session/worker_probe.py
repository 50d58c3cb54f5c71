"""The facts of a Python worker of Spark. This module travels by value, to workers that may have none of our files."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

NEEDED = ("numpy", "pyarrow", "numba", "xxhash")


def look(_: object) -> dict[str, Any]:
    """Returns which Python this is, what it lacks, and the text of our `version.py` if it has one."""
    found = importlib.util.find_spec("strandline")
    folders = list(found.submodule_search_locations or []) if found is not None else []
    version = Path(folders[0]) / "version.py" if folders else None
    return {
        "python": list(sys.version_info[:2]),
        "missing": [name for name in NEEDED if importlib.util.find_spec(name) is None],
        "version": version.read_text() if version is not None and version.is_file() else None,
    }
