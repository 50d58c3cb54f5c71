"""Figure 3.5: a filter without persistence, over tuple sizes and batching factors of its source."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.harness import rounds, say
from benchmarks.papers.figure import Claim, Data, Experiment, Figure, Panel, Size
from benchmarks.papers.thesis.filtered import (
    BLOCK,
    SIZES_BYTES,
    Filter,
    Receiver,
    Stopwatch,
    Tuples,
    created,
    mb_per_s,
    publish,
)
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.storage.storage import Durability, Storage
from strandline.testing.memory_storage import MemoryStorage

FACTORS = (1, 16, 32, 64)
_STORAGES = ("memory", "os", "fsync")
_ROUNDS = {"tiny": 1, "small": 5, "full": 15}
_TUPLES = {"tiny": 32, "small": 2 * BLOCK, "full": 8 * BLOCK}
_SYNCED = {"tiny": 8, "small": 64, "full": BLOCK}
"""Tuples that are synced to the disk in each round, since that takes long one by one."""


def measure(size: Size, folder: Path) -> Data:
    """Sends tuples through a source, a filter and a receiver: all sizes in memory, the largest on disk, too."""
    tuples = {tuple_bytes: Tuples(tuple_bytes) for tuple_bytes in SIZES_BYTES}
    runs = [("memory", tuple_bytes, factor) for tuple_bytes in SIZES_BYTES for factor in FACTORS]
    runs += [(storage, SIZES_BYTES[-1], factor) for storage in _STORAGES[1:] for factor in FACTORS]
    many = {storage: (_SYNCED if storage == "fsync" else _TUPLES)[size] for storage in _STORAGES}
    busy = dict.fromkeys(runs, 0.0)

    def run(storage: str, tuple_bytes: int, factor: int) -> Callable[[], float]:
        def once() -> float:
            seconds, cpu_s = _sent(tuples[tuple_bytes], many[storage], factor, storage, folder)
            key = storage, tuple_bytes, factor
            busy[key] = max(busy[key], cpu_s / seconds)
            return seconds

        return once

    seconds = rounds({str(key): run(*key) for key in runs}, _ROUNDS[size])
    rates = {key: mb_per_s(many[key[0]], key[1], min(seconds[str(key)])) for key in runs}
    say(f"batching: {rates['memory', 4096, 1]} MB/s one by one, {rates['memory', 4096, 16]} by 16")
    return {
        "memory": {str(b): {str(f): rates["memory", b, f] for f in FACTORS} for b in SIZES_BYTES},
        "largest": {s: {str(f): rates[s, SIZES_BYTES[-1], f] for f in FACTORS} for s in _STORAGES},
        "busy": {s: round(min(part for key, part in busy.items() if key[0] == s), 3) for s in _STORAGES},
    }


def _sent(tuples: Tuples, many: int, factor: int, storage: str, folder: Path) -> tuple[float, float]:
    """Sends so many tuples, `factor` at once; returns the seconds on the clock and of the processor."""
    place = folder / "run"

    def made(name: str) -> Storage:
        if storage == "memory":
            return MemoryStorage()
        return LocalStorage(place / name, durability="os" if storage == "os" else "fsync")

    durability: Durability = "os" if storage == "os" else "fsync"
    source = created(made("items"))
    operator = Filter(source, made("filtered"), place / "cache", durability)
    receiver = Receiver(operator.log)
    watch = Stopwatch()
    sent = filtered = 0
    while sent < many:
        publish(source, tuples, min(factor, many - sent), durability)
        sent += min(factor, many - sent)
        while sent - filtered >= BLOCK or filtered < sent == many:
            filtered += operator.step()
            receiver.take()
    used = watch.read()
    if receiver.received != many:
        raise AssertionError(f"{receiver.received:,} of {many:,} tuples were received")
    shutil.rmtree(place, ignore_errors=True)
    return used.seconds, used.cpu_s


# ---------------------------------------------------------------------- the figure


def _panels(data: Data) -> Sequence[Panel]:
    lines = {
        f"{factor} at once": [(int(b), rates[str(factor)]) for b, rates in data["memory"].items()] for factor in FACTORS
    }
    names = {"memory": "no disk", "os": 'durability="os"', "fsync": 'durability="fsync"'}
    return [
        Panel(
            "Without persistence",
            "bytes of a tuple",
            "MB/s",
            ours=lines,
            paper={"16 at once": [(4096, 63)]},
        ),
        Panel(
            "Tuples of 4 KB",
            "tuples that the source sends at once",
            "MB/s",
            ours={names[s]: [(int(f), rate) for f, rate in rates.items()] for s, rates in data["largest"].items()},
            paper={"no persistence": [(16, 63)]},
        ),
    ]


def _gain(data: Data, factor: int, over: int) -> float:
    return float(data["memory"]["4096"][str(factor)] / data["memory"]["4096"][str(over)])


def _example(rates: Sequence[Sequence[float]], busy: float = 1.0) -> Data:
    """Returns values with these rates: rows by tuple size, columns by batching factor."""
    table = zip(SIZES_BYTES, rates, strict=True)
    return {
        "memory": {str(b): {str(f): r for f, r in zip(FACTORS, row, strict=True)} for b, row in table},
        "busy": {"memory": busy},
    }


_AS_IN_THE_PAPER = _example([[4, 12, 12, 12], [13, 35, 35, 35], [31.5, 63, 63, 63]])
"""The text has 63 MB/s, and half as much without batching; smaller tuples have less."""

CLAIMS = (
    Claim(
        "throughput grows with the size of tuples at every batching factor",
        holds=lambda data: all(
            data["memory"]["4096"][str(f)]
            > 1.5 * data["memory"]["1024"][str(f)]
            > 1.5**2 * data["memory"]["256"][str(f)]
            for f in FACTORS
        ),
        shown_by=_AS_IN_THE_PAPER,
        refuted_by=_example([[30, 60, 60, 60], [31, 60, 60, 60], [31.5, 63, 63, 63]]),
    ),
    Claim(
        "16 tuples of 4 KB at once have at least about twice the throughput of one by one",
        holds=lambda data: _gain(data, 16, 1) >= 1.8,
        shown_by=_AS_IN_THE_PAPER,
        refuted_by=_example([[4, 4, 4, 4], [13, 13, 13, 13], [31.5, 40, 60, 60]]),
    ),
    Claim(
        "batching helps to a certain degree: the step from 16 to 64 gains less than that from 1 to 16",
        holds=lambda data: _gain(data, 64, 16) < 0.9 * _gain(data, 16, 1),
        shown_by=_AS_IN_THE_PAPER,
        refuted_by=_example([[4, 8, 16, 32], [13, 20, 40, 80], [16, 32, 64, 128]]),
    ),
    Claim(
        "the processor is saturated: the work does not wait for anything else",
        holds=lambda data: data["busy"]["memory"] >= 0.9,
        shown_by=_AS_IN_THE_PAPER,
        refuted_by=_example([[4, 12, 12, 12], [13, 35, 35, 35], [31.5, 63, 63, 63]], busy=0.5),
    ),
)

FIGURE = Figure(
    "thesis-fig3.5",
    "A filter without persistence, over tuple sizes and batching factors",
    "one Borealis node with a filter between a source and a receiver, two processors; tuples of 256 bytes to 4 KB, of "
    "which the source sends 1, 16, 32 or 64 at once.",
    "Larger tuples have a higher throughput, since each tuple costs processor time. Batching helps to a certain "
    "degree: 63 MB/s with 16 tuples of 4 KB at once, twice as much as one by one. All processors are saturated.",
    "the library's filter between two logs in memory: everything but the disk, in one thread without Spark, whose "
    "micro-batch of 16 tuples would measure nothing but Spark. A commit of the source has as many tuples as the "
    "batching factor says; the filter takes in 184 tuples a step, as Borealis did, and the receiver reads each "
    "block. There is no network: one machine cannot show the paper's limit, which is its link. On the right the same "
    "on disk. Time in which another program had the core is left out.",
    _panels,
    CLAIMS,
)

EXPERIMENT = Experiment("thesis-batching", "thesis", measure, (FIGURE,))
