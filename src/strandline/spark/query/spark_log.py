"""The file that takes what Spark, its JVM and its Python workers would write to the terminal."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from strandline.clock import SYSTEM_CLOCK
from strandline.errors import StrandlineError
from strandline.private_folder import private_folder, temporary_folder

VARIABLE = "STRANDLINE_SPARK_LOG"
_TERMINAL = "-"
_KEPT_S = 7 * 24 * 3600
_current: Path | None = None


def current() -> Path | None:
    """Returns the file of the Spark that `sl.session()` has started in this process; None if there is none."""
    return _current


def begin() -> Path | None:
    """Returns a new file for a Spark that is about to start; None if its output is to stay on the terminal.

    Its place is STRANDLINE_SPARK_LOG ("-": the terminal), or a name of its own in the private folder for temporary
    files, where files of earlier programs are deleted after a week.
    """
    global _current
    wanted = os.environ.get(VARIABLE)
    if wanted == _TERMINAL:
        _current = None
    elif wanted:
        _current = Path(wanted).absolute()
        _current.parent.mkdir(parents=True, exist_ok=True)
    else:
        folder = private_folder(temporary_folder() / "logs")
        _forget_old(folder)
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(SYSTEM_CLOCK.now_us() // 1_000_000))
        _current = folder / f"spark-{stamp}-{os.getpid()}.log"
    return _current


def named(error: StrandlineError) -> StrandlineError:
    """Returns the error without its history, with the name of the log's file behind what to do."""
    log = f"Spark's log: {_current}" if _current is not None else ""
    return type(error)(
        error.what, where=error.where, todo="; ".join(filter(None, (error.todo, log))), stream=error.stream
    )


def last_line(path: Path | None) -> str:
    """Returns the last line of a file that is not empty."""
    if path is None or not path.exists():
        return ""
    lines = path.read_text(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _forget_old(folder: Path) -> None:
    before_s = SYSTEM_CLOCK.now_us() / 1e6 - _KEPT_S
    for file in folder.glob("spark-*.log"):
        with contextlib.suppress(OSError):  # another program was faster
            if file.stat().st_mtime < before_s:
                file.unlink()
