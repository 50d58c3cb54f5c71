"""The kit for tests: storage in memory, storage that fails on purpose, and a stream made of lists to compare with.

    MemoryStorage   keys and bytes in a dictionary
    FaultyStorage   any storage, with crashes, errors, bit flips, delays; one seed reproduces a run
    FaultPlan       how often what goes wrong
    NO_FAULTS       the plan in which nothing does
    Crash           how a simulated process dies
    ModelStream     the specification of a stream in plain lists

What can go wrong is said in `strandline.testing.faulty_storage`. Small real streams come from
`strandline.testing.items`; `strandline.testing.plain_codec` lets a simulation do without Parquet.
"""

from __future__ import annotations

from strandline.testing.faulty_storage import NO_FAULTS, Crash, FaultPlan, FaultyStorage
from strandline.testing.memory_storage import MemoryStorage
from strandline.testing.model import ModelStream

__all__ = ["NO_FAULTS", "Crash", "FaultPlan", "FaultyStorage", "MemoryStorage", "ModelStream"]
