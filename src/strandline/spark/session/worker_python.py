"""Spark's Python workers: whether they can do our tasks, found out before anything is created.

Their interpreter need not be the driver's. What it must have is the same Python, and the libraries with compiled code;
Strandline itself is sent to it.
"""

from __future__ import annotations

import atexit
import inspect
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strandline.errors import OptionError
from strandline.spark.operator.affinity import is_local
from strandline.spark.session import worker_probe

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_PACKAGE = Path(__file__).parents[2]
_known: set[str] = set()
"""The Sparks whose workers have been looked at."""
_looking = threading.Lock()
_PATIENCE_S = 60.0


def require_workers(spark: SparkSession) -> None:
    """Raises unless this Spark's Python workers can do our tasks; sends Strandline to them if they have none.

    Looks once a Spark, on a cluster with a job of one task, unless workers run the driver's own interpreter anyway.
    """
    context = spark.sparkContext
    with _looking:
        if context.applicationId in _known:
            return
        if not _is_this_python(context):
            facts = _looked_at(context)
            if facts["missing"]:
                raise _unfit(context, f"lacks {', '.join(facts['missing'])}")
            if facts["version"] != (_PACKAGE / "version.py").read_text():
                _send(context)
        _known.add(context.applicationId)


def _is_this_python(context: SparkContext) -> bool:
    """Returns whether workers run here, with this interpreter, and find us as it does."""
    if not is_local(context) or context.pythonExec != sys.executable:
        return False
    paths = (Path(p).resolve() for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p)
    return _PACKAGE.parent in paths or _is_installed()


def _is_installed() -> bool:
    try:
        metadata.version("strandline")
    except metadata.PackageNotFoundError:
        return False
    return True


def _looked_at(context: SparkContext) -> dict[str, Any]:
    """Returns the facts of the workers' Python. Raises if it is another one, or none."""
    facts = _asked(context.pythonExec) if is_local(context) else _asked_by_a_task(context)
    ours = list(sys.version_info[:2])
    if facts is None:
        raise _unfit(context, "does not start")
    if facts["python"] != ours:
        raise _unfit(context, f"is not Python {ours[0]}.{ours[1]}, as the driver's is")
    return facts


def _asked(python: str) -> dict[str, Any] | None:
    """Asks an interpreter on this machine without Spark, which would log what goes wrong at length."""
    program = f"{inspect.getsource(worker_probe)}\nimport json\nprint(json.dumps(look(None)))"
    try:
        done = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=_PATIENCE_S, check=True)
        facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        return None
    return facts


def _asked_by_a_task(context: SparkContext) -> dict[str, Any] | None:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(worker_probe)  # type: ignore[no-untyped-call]
    try:
        (facts,) = context.parallelize([0], 1).map(worker_probe.look).collect()
    except Exception as problem:
        text = str(problem)
        if "PYTHON_VERSION_MISMATCH" in text:
            return {"python": "another"}
        if "Cannot run program" in text:
            return None
        raise
    finally:
        cloudpickle.unregister_pickle_by_value(worker_probe)  # type: ignore[no-untyped-call]
    return dict(facts)


def _unfit(context: SparkContext, why: str) -> OptionError:
    return OptionError(
        f"the Python of Spark's workers cannot run Strandline: it {why}",
        where=f"{context.pythonExec}, workers of {context.master}",
        todo="before you make the session, set PYSPARK_PYTHON to a Python with the same packages as this one: "
        f"{sys.executable}",
    )


def _send(context: SparkContext) -> None:
    """Lets Spark unpack our sources where its workers look for modules: as files, which kernels are cached by."""
    folder = tempfile.mkdtemp(prefix="strandline-sent-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # until then executors that come later fetch it
    archive = Path(folder) / "strandline.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for file in sorted(_PACKAGE.rglob("*.py")):
            packed.write(file, file.relative_to(_PACKAGE))
    context.addArchive(f"{archive}#strandline")
