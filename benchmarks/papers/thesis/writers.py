"""Figure 3.7: concurrent writers of one store, with synchronous and asynchronous updates of its metadata."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.harness import rounds, say
from benchmarks.papers.figure import Claim, Data, Experiment, Figure, Panel, Size
from benchmarks.papers.thesis.filtered import BLOCK, Tuples, WithoutNames, created, mb_per_s, publish
from benchmarks.papers.thesis.processes import seconds, side_by_side
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log

WRITERS = (1, 4, 8)
_TUPLE_BYTES = 4096
_BLOCKS = {"tiny": 2, "small": 24, "full": 100}
_ROUNDS = {"tiny": 1, "small": 3, "full": 9}
MODES = {"sync": "data and names", "async": "data only", "os": "neither"}
"""What is synced to the disk before an append returns."""


def measure(size: Size, folder: Path) -> Data:
    """Lets 1, 4 and 8 processes write streams of their own into one folder."""
    blocks = _BLOCKS[size]
    runs = [(mode, writers) for writers in WRITERS for mode in MODES]
    taken = rounds(
        {str(run): functools.partial(_written, blocks, *run, folder / "store") for run in runs}, _ROUNDS[size]
    )
    found: dict[str, dict[str, float]] = {mode: {} for mode in MODES}
    for mode, writers in runs:
        rate = mb_per_s(writers * blocks * BLOCK, _TUPLE_BYTES, min(taken[str((mode, writers))]))
        found[mode][str(writers)] = rate
    say(f"writers: {found} MB/s")
    return {"mb_per_s": found}


def _written(blocks: int, mode: str, writers: int, store: Path) -> float:
    """Returns the seconds in which all writers have published so many blocks each."""
    places = [store / f"writer-{writer}" for writer in range(writers)]
    took = seconds(side_by_side([functools.partial(_writer, place, blocks, mode) for place in places]))
    for place in places:
        written = Log.open(LocalStorage(place)).state.ends[0]
        if written != blocks * BLOCK:
            raise AssertionError(f"{written:,} of {blocks * BLOCK:,} tuples were written")
    shutil.rmtree(store)
    return took


def _writer(place: Path, blocks: int, mode: str) -> Callable[[], None]:
    """Returns the work of a writer, with its log open and its tuples made."""
    storage = WithoutNames(place) if mode == "async" else LocalStorage(place, "os" if mode == "os" else "fsync")
    log, tuples = created(storage), Tuples(_TUPLE_BYTES)

    def write() -> None:
        for _ in range(blocks):
            publish(log, tuples, BLOCK, "os" if mode == "os" else "fsync")

    return write


# ---------------------------------------------------------------------- the figure


def _panels(data: Data) -> Sequence[Panel]:
    return [
        Panel(
            "One store",
            "writers",
            "MB/s of all writers",
            ours={
                MODES[mode]: [(int(writers), rate) for writers, rate in rates.items()]
                for mode, rates in data["mb_per_s"].items()
            },
            paper={"asynchronous": [(4, 68), (8, 86)], "synchronous": [(4, 56), (8, 68)]},
        )
    ]


def _lost(data: Data, writers: int) -> float:
    """Returns the part of the throughput that synchronous updates of metadata cost."""
    rates: Mapping[str, Mapping[str, float]] = data["mb_per_s"]
    return 1 - rates["sync"][str(writers)] / rates["async"][str(writers)]


def _example(sync: Sequence[float], without: Sequence[float]) -> Data:
    names = [str(writers) for writers in WRITERS]
    return {"mb_per_s": {"sync": dict(zip(names, sync, strict=True)), "async": dict(zip(names, without, strict=True))}}


_PAPER = _example([30, 56, 68], [30, 68, 86])
"""The text has the values of 4 and 8 writers, and that one writer has the same with both."""

CLAIMS = (
    Claim(
        "one writer has the same throughput with both",
        holds=lambda data: abs(_lost(data, 1)) <= 0.1,
        shown_by=_PAPER,
        refuted_by=_example([20, 56, 68], [30, 68, 86]),
        why_not="a block of ours is a file of its own, and its commit another one, which readers find by its name: so "
        "each name is synced, two of each block. Borealis appends to one file, whose name is there already; only its "
        "length changes. What the names cost shows with one writer already.",
    ),
    Claim(
        "synchronous updates of metadata cost 4 and 8 writers about a fifth",
        holds=lambda data: all(0.05 <= _lost(data, writers) <= 0.3 for writers in (4, 8)),
        shown_by=_PAPER,
        refuted_by=_example([30, 30, 34], [30, 68, 86]),
        surpassed=lambda data: all(_lost(data, writers) < 0.05 for writers in (4, 8)),
        why_not="the journal of the file system takes the names of several writers to the disk at once, and with them "
        "what was written before: how much is left to wait for depends on the disk.",
    ),
    Claim(
        "more writers have more throughput, with both",
        holds=lambda data: all(
            rates["8"] > 1.1 * rates["1"] and rates["4"] > 1.1 * rates["1"]
            for rates in (data["mb_per_s"]["sync"], data["mb_per_s"]["async"])
        ),
        shown_by=_PAPER,
        refuted_by=_example([60, 56, 50], [60, 62, 61]),
        why_not="all writers share two cores and one disk here: once these are busy, more writers add nothing.",
    ),
)

FIGURE = Figure(
    "thesis-fig3.7",
    "Concurrent writers of one store: updates of metadata",
    "1, 4 and 8 Borealis nodes that write to one PVFS2 server, stable data in any case; the server updates its "
    "metadata synchronously or asynchronously.",
    "One writer has the same throughput with both. With 4 writers synchronous updates reduce 68 MB/s to 56, with 8 "
    "writers 86 to 68.",
    "1, 4 and 8 processes, each with the log of a stream of its own in one folder of one disk, blocks of 736 KB, "
    'without Spark. "Data and names" is durability="fsync": an append returns when blocks and commits are on the '
    "disk, and so are their names. To compare with the paper's default, the names are left to the operating system "
    'in a storage of the benchmark, and with durability="os" the data are, too. All writers share two cores and the '
    "disk.",
    _panels,
    CLAIMS,
)

EXPERIMENT = Experiment("thesis-writers", "thesis", measure, (FIGURE,))
