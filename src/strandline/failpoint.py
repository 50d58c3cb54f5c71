"""Named places where a test may kill the process for real.

`STRANDLINE_FAILPOINT=name` kills the process with SIGKILL when it reaches `name`; `name@3` lets it
pass twice first. `STRANDLINE_FAILPOINT_ONCE=path` makes it happen once over all processes: the first
one to create `path` dies, so a retry survives. `STRANDLINE_FAILPOINT_SIGNAL=SIGSTOP` freezes the process
instead, until another process sends SIGCONT. Unset, a failpoint costs one look into a dictionary.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "STRANDLINE_FAILPOINT"
ONCE_VARIABLE = "STRANDLINE_FAILPOINT_ONCE"
SIGNAL_VARIABLE = "STRANDLINE_FAILPOINT_SIGNAL"

_passes: dict[str, int] = {}


def failpoint(name: str) -> None:
    """Dies here if the environment says so."""
    wanted = os.environ.get(VARIABLE)
    if wanted is None:
        return
    wanted_name, _, wanted_pass = wanted.partition("@")
    if wanted_name != name:
        return
    _passes[name] = _passes.get(name, 0) + 1
    if _passes[name] < int(wanted_pass or 1):
        return
    once = os.environ.get(ONCE_VARIABLE)
    if once is not None:
        try:
            os.close(os.open(once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
    os.kill(os.getpid(), signal.Signals[os.environ.get(SIGNAL_VARIABLE, "SIGKILL")])
