"""The name of this boot of the machine. Files that were mapped when a machine crashed cannot be trusted after it."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path

from strandline.clock import SYSTEM_CLOCK, uptime_s

_PROC = Path("/proc/sys/kernel/random/boot_id")
_SYSCTL = b"kern.bootsessionuuid"
_ABOUT = "about "
_TOLERANCE_S = 60.0
"""The tolerance for clocks that are set now and then. A machine that lives for less does not leave much state."""


@lru_cache(maxsize=1)
def boot() -> str:
    """Returns a name of this boot, the same in every process: from Linux, from macOS, or from about when it began."""
    return _by_proc() or _by_sysctl() or f"{_ABOUT}{_began_s():.0f}"


def is_of_this_boot(written: str) -> bool:
    """Returns whether `boot()` wrote this in the current boot of the machine; False in doubt."""
    if written.startswith(_ABOUT) and boot().startswith(_ABOUT):
        try:
            return abs(float(written.removeprefix(_ABOUT)) - _began_s()) <= _TOLERANCE_S
        except ValueError:
            return False
    return written == boot()


def _by_proc() -> str:
    try:
        return _PROC.read_text().strip()
    except OSError:
        return ""


def _by_sysctl() -> str:
    try:
        sysctl = ctypes.CDLL(None).sysctlbyname
    except (AttributeError, OSError):
        return ""
    text, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
    failed = sysctl(_SYSCTL, text, ctypes.byref(size), None, ctypes.c_size_t(0))
    return "" if failed else text.value.decode("ascii", "replace")


def _began_s() -> float:
    return SYSTEM_CLOCK.now_us() / 1e6 - uptime_s()
