"""Which life of the machine this is. Files that were mapped when a machine crashed cannot be trusted after it."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path

from strandline.clock import SYSTEM_CLOCK, uptime_s

_PROC = Path("/proc/sys/kernel/random/boot_id")
_SYSCTL = b"kern.bootsessionuuid"
_ABOUT = "about "
_TOLERANCE_S = 60.0
"""Clocks are set now and then. A machine that lives for less than that does not get to leave much."""


@lru_cache(maxsize=1)
def boot() -> str:
    """Names this life of the machine, the same in every process: by Linux, by macOS, or by when about it began."""
    return _by_proc() or _by_sysctl() or f"{_ABOUT}{_began_s():.0f}"


def is_of_this_boot(written: str) -> bool:
    """Returns whether `boot()` wrote this in this life of the machine; False in doubt."""
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
