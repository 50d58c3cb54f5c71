"""The kit for tests: storage in memory, and storage that fails on purpose.

    MemoryStorage   keys and bytes in a dictionary
    FaultyStorage   any storage, with crashes, errors, bit flips, delays; one seed reproduces a run
    FaultPlan       how often what goes wrong
    NO_FAULTS       the plan in which nothing does
    Crash           how a simulated process dies

What can go wrong is said in `strandline.testing.faulty_storage`.
"""

from __future__ import annotations

from strandline.testing.faulty_storage import NO_FAULTS, Crash, FaultPlan, FaultyStorage
from strandline.testing.memory_storage import MemoryStorage

__all__ = ["NO_FAULTS", "Crash", "FaultPlan", "FaultyStorage", "MemoryStorage"]
