"""Programs that come with the package and are no part of it: the benchmarks and the demo."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

INSTALLED = Path(__file__).parents[1] / "_shipped"
"""Where the wheel has their folders; in a checkout they are at the root, which an editable install knows."""


def shipped(module: str) -> Any:
    """Loads a module of the folder `benchmarks` or `examples`, from the package if it is installed, or the checkout.

    An installed package keeps these folders inside: other programs may have folders of these names, too. The folder
    goes into PYTHONPATH as well, for Spark's workers and other processes that the module starts.
    """
    if INSTALLED.is_dir() and str(INSTALLED) not in sys.path:
        sys.path.insert(0, str(INSTALLED))
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(INSTALLED), *filter(None, paths)])
    return importlib.import_module(module)
