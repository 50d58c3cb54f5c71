"""How old this process is: what starting it, and importing everything, has taken."""

from __future__ import annotations

import os
from pathlib import Path

from strandline.clock import uptime_s

_STAT = Path("/proc/self/stat")


def process_age_s() -> float | None:
    """Returns the seconds since this process was started, or forked; None if the system does not tell."""
    try:
        fields = _STAT.read_text().rpartition(")")[2].split()  # behind the command, which may hold anything
        return max(0.0, uptime_s() - int(fields[19]) / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return None


def process_cpu_s() -> float:
    """Returns the seconds that a processor has worked for this process."""
    used = os.times()
    return used.user + used.system
