"""Measures how slow this machine is, as one number. Time limits grow by it, and large groups of tests shrink.

The limits in the tests were chosen on a quiet machine on which `_WORK` takes `REFERENCE_S` in two processes at once.
The first process of a test run measures. Its children inherit the number: test processes, programs that tests start.
It measures several times and the fastest counts, so that a short load, which is over before the tests have begun, does
not change what they do. On a quiet machine the first measurement is as fast as the reference, and is the only one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache

from strandline.clock import stopwatch_s

VARIABLE = "STRANDLINE_TEST_SLOWNESS"
REFERENCE_S = 0.75
LARGEST = 8.0
MEASUREMENTS = 5
_WORK = "sum(i * i for i in range(4_000_000))"
_PROCESSES = 2


@lru_cache(maxsize=1)
def slowness() -> float:
    """Returns how many times slower than the reference this machine is: at least 1, at most `LARGEST`."""
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = f"{slowness_by(_measure_s):.2f}"
    return float(os.environ[VARIABLE])


def slowness_by(measure_s: Callable[[], float]) -> float:
    """Returns the number that the fastest of some measurements gives; stops at one that is as fast as the reference."""
    fastest = LARGEST
    for _ in range(MEASUREMENTS):
        fastest = min(fastest, measure_s() / REFERENCE_S)
        if fastest <= 1.0:
            return 1.0
    return fastest


def patience(seconds: float) -> float:
    """Returns how long a test waits, at most, for something that takes less than `seconds` on the reference machine."""
    return seconds * slowness()


def _measure_s() -> float:
    """Returns the seconds that some work takes in two processes at once, their starts included."""
    began_s = stopwatch_s()
    processes = [subprocess.Popen([sys.executable, "-S", "-c", _WORK]) for _ in range(_PROCESSES)]
    for process in processes:
        process.wait()
    return stopwatch_s() - began_s
