"""The kit for tests, users' and ours: operators without a JVM, storage that fails on purpose, streams to compare with.

For tests of what operators compute:

    stream          a stream in memory that is fed by hand: `feed.add([…])`, `feed.finish()`, `feed.late`
    run             an operator over it: `run.step()`, `run.rows`, `run.crash()`; with a bound, `run.tentative`, and
                    feeds that `fall_silent()`, are lost (`lose()`), and `come_back()`
    HandClock       the clock of both, moved by hand: `feed.clock.advance("1 min")`

    check_operator  raises if the results of a user's operator depend on cuts, losses or restores

For tests of what happens when storage fails:

    MemoryStorage   keys and bytes in a dictionary
    FaultyStorage   any storage, with crashes, errors, bit flips, delays; one seed reproduces a run
    FaultPlan       how often each fault happens
    NO_FAULTS       the plan without any fault
    Crash           how a simulated process dies
    ModelStream     the specification of a stream in plain lists

`strandline.testing.faulty_storage` says what can go wrong.
"""

from __future__ import annotations

from strandline.testing.faulty_storage import NO_FAULTS, Crash, FaultPlan, FaultyStorage
from strandline.testing.feed import Feed, stream
from strandline.testing.hand_clock import HandClock
from strandline.testing.memory_storage import MemoryStorage
from strandline.testing.model import ModelStream
from strandline.testing.operator_check import check_operator
from strandline.testing.run import Run, run

__all__ = [
    "NO_FAULTS",
    "Crash",
    "FaultPlan",
    "FaultyStorage",
    "Feed",
    "HandClock",
    "MemoryStorage",
    "ModelStream",
    "Run",
    "check_operator",
    "run",
    "stream",
]
