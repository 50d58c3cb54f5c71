"""Figures 3.8 and 3.9: filters in a row, each a process, whose logs are spread over several stores."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.harness import rounds, say
from benchmarks.papers.figure import Claim, Data, Experiment, Figure, Panel, Size
from benchmarks.papers.thesis.filtered import BLOCK, Filter, Receiver, Tuples, created, mb_per_s, publish
from benchmarks.papers.thesis.processes import Worked, seconds, side_by_side
from strandline.clock import SYSTEM_CLOCK
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.storage.storage import Durability
from strandline.log.stream.log import Log

LENGTHS = (1, 2, 4, 8)
_STORES: Mapping[Size, Sequence[int]] = {"tiny": (1, 8), "small": (1, 8), "full": (1, 2, 4, 8)}
_TUPLE_BYTES = 4096
_BLOCKS = {"tiny": 2, "small": 30, "full": 100}
_ROUNDS = {"tiny": 1, "small": 2, "full": 5}
_LOOK_S = 0.005
_SHARED_MEMORY = Path("/dev/shm")
NONE = "none"
"""The contender that keeps all logs in memory."""


def measure(size: Size, folder: Path) -> Data:
    """Sends tuples through chains of 1 to 8 filters, with logs in memory, and with stable writes to 1 to 8 folders."""
    tuples, blocks = Tuples(_TUPLE_BYTES), _BLOCKS[size]
    contenders = [NONE, *(str(stores) for stores in _STORES[size])]
    lengths = (1, 8) if size == "tiny" else LENGTHS
    cpu: dict[tuple[str, int], list[float]] = {}

    def run(contender: str, length: int) -> float:
        found = _through(tuples, blocks, contender, length, folder)
        cpu.setdefault((contender, length), []).append(sum(one.cpu_s for one in found))
        return seconds(found)

    runs = [(contender, length) for length in lengths for contender in contenders]
    taken = rounds({str(one): functools.partial(run, *one) for one in runs}, _ROUNDS[size])
    rates: dict[str, dict[str, float]] = {contender: {} for contender in contenders}
    work: dict[str, dict[str, float]] = {contender: {} for contender in contenders}
    for contender, length in runs:
        best_s = min(taken[str((contender, length))])
        rates[contender][str(length)] = mb_per_s(blocks * BLOCK, _TUPLE_BYTES, best_s)
        worked_s = min(cpu[contender, length])
        work[contender][str(length)] = mb_per_s(blocks * BLOCK * length, _TUPLE_BYTES, worked_s)
    say(f"chains: {rates} MB/s; {work} MB a second of the processor")
    return {"mb_per_s": rates, "mb_per_cpu_s": work, "cores": len(os.sched_getaffinity(0))}


def _through(tuples: Tuples, blocks: int, contender: str, length: int, folder: Path) -> list[Worked]:
    """Lets each filter take in the log before it until all tuples are through; checks what the receiver gets."""
    is_memory = contender == NONE
    root = (_SHARED_MEMORY if is_memory and _SHARED_MEMORY.is_dir() else folder) / f"strandline-chain-{os.getpid()}"
    durability: Durability = "os" if is_memory else "fsync"
    stores = 1 if is_memory else int(contender)
    places = [root / "source", *(root / f"store-{k % stores}" / f"filter-{k}" for k in range(length))]
    try:
        # The source is a machine of its own in the thesis: what it has sent is there before the filters begin.
        source = created(LocalStorage(places[0], "os"))
        for _ in range(blocks):
            publish(source, tuples, BLOCK, "os")
        logs = [source]
        for number, place in enumerate(places[1:]):
            logs.append(Filter(logs[-1], LocalStorage(place, durability), root / f"cache-{number}", durability).log)

        found = side_by_side(
            [
                functools.partial(_filter, places[k], places[k + 1], root / f"cache-{k}", durability, blocks * BLOCK)
                for k in range(length)
            ]
        )
        receiver = Receiver(Log.open(LocalStorage(places[-1])))
        receiver.take()
        if receiver.received != blocks * BLOCK:
            raise AssertionError(f"{receiver.received:,} of {blocks * BLOCK:,} tuples came through")
        return found
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _filter(items: Path, place: Path, cache: Path, durability: Durability, many: int) -> Callable[[], None]:
    """Returns the work of a filter, with its logs open."""
    operator = Filter(Log.open(LocalStorage(items, durability)), LocalStorage(place, durability), cache, durability)

    def work() -> None:
        while operator.log.state.ends[0] < many:
            if not operator.step():
                SYSTEM_CLOCK.sleep(_LOOK_S)

    return work


# ---------------------------------------------------------------------- the figures


def _name(contender: str) -> str:
    if contender == NONE:
        return "no persistence"
    return f"{contender} store{'s' * (contender != '1')}"


def _lines(found: Mapping[str, Mapping[str, float]], times: bool) -> dict[str, list[tuple[float, float]]]:
    return {
        _name(contender): [(int(length), rate * (int(length) if times else 1)) for length, rate in rates.items()]
        for contender, rates in found.items()
    }


def _panels(data: Data) -> Sequence[Panel]:
    return [
        Panel(
            "Throughput of the stream",
            "filters in a row",
            "MB/s",
            ours=_lines(data["mb_per_s"], times=False),
            paper={"no persistence": [(1, 62), (8, 52)], "1 store": [(8, 10)]},
        ),
        Panel(
            "Work: what a processor's second takes through a filter",
            "filters in a row",
            "MB a second of the processor",
            ours=_lines(data["mb_per_cpu_s"], times=False),
        ),
    ]


def _aggregate_panels(data: Data) -> Sequence[Panel]:
    persistent = {contender: rates for contender, rates in data["mb_per_s"].items() if contender != NONE}
    return [
        Panel(
            "Throughput of all filters",
            "filters in a row",
            "MB/s, written by all filters",
            ours=_lines(persistent, times=True),
            paper={"1 store": [(8, 80)]},
        )
    ]


def _kept(data: Data, contender: str, key: str = "mb_per_s") -> float:
    """Returns which part of the throughput of one filter the longest chain has."""
    rates: Mapping[str, float] = data[key][contender]
    return rates[max(rates, key=int)] / rates["1"]


def _example(none: Sequence[float], one: Sequence[float], eight: Sequence[float], work: float = 60) -> Data:
    found = {NONE: none, "1": one, "8": eight}
    rates = {
        name: {str(length): rate for length, rate in zip(LENGTHS, row, strict=True)} for name, row in found.items()
    }
    return {"mb_per_s": rates, "mb_per_cpu_s": {name: {"1": 60, "8": work} for name in found}}


_PAPER = _example([62, 60, 56, 52], [28, 25, 18, 10], [31, 30, 28, 26])
"""62 to 52 MB/s without persistence; less than half to 10 with one store, half with eight (3.3.2)."""
_SETTING = (
    "eight nodes of the paper have processors of their own; our filters share two cores, so that a chain of eight "
    "has a quarter of a core for each. The work for each MB and filter, on the right, says what machines of their "
    "own would do."
)

CLAIMS = (
    Claim(
        "without persistence, 8 filters in a row keep most of the throughput of one (62 to 52 MB/s)",
        holds=lambda data: _kept(data, NONE) >= 0.75,
        shown_by=_PAPER,
        refuted_by=_example([62, 40, 20, 10], [28, 25, 18, 10], [31, 30, 28, 26]),
        why_not=_SETTING,
    ),
    Claim(
        "the work of a filter for each MB grows by no more than that in a chain of 8",
        holds=lambda data: all(_kept(data, contender, "mb_per_cpu_s") >= 0.75 for contender in data["mb_per_cpu_s"]),
        shown_by=_PAPER,
        refuted_by=_example([62, 60, 56, 52], [28, 25, 18, 10], [31, 30, 28, 26], work=30),
    ),
    Claim(
        "one filter with stable writes has about half of the throughput without persistence",
        holds=lambda data: data["mb_per_s"]["8"]["1"] >= 0.45 * data["mb_per_s"][NONE]["1"],
        shown_by=_PAPER,
        refuted_by=_example([62, 60, 56, 52], [10, 9, 8, 7], [12, 11, 10, 9]),
        why_not="a filter of ours waits for the disk with each block of 736 KB and again with its commit, one after "
        "the other. Borealis has several I/Os under way. An entry point or an operator in Spark writes blocks that "
        "are larger by far, and of all partitions at once, see Figure 3.6.",
    ),
    Claim(
        "the drop over 8 filters is steeper with one store than with eight",
        holds=lambda data: _kept(data, "8") >= 1.5 * _kept(data, "1"),
        shown_by=_PAPER,
        refuted_by=_example([62, 60, 56, 52], [28, 25, 18, 10], [31, 26, 20, 11]),
        why_not="our stores are folders of one disk: eight of them are no faster than one. The limit that the paper "
        "found, a server's file system under many writers, would show with several disks.",
    ),
)

FIGURE = Figure(
    "thesis-fig3.8",
    "Filters in a row, over 1 to 8 stores",
    "1 to 8 Borealis nodes in a row, a filter each, over 1 to 8 PVFS2 servers with stable writes; tuples of 4 KB.",
    "Without persistence 62 MB/s with one node fall to 52 with eight. One node with persistence has less than half of "
    "that, and half with more servers. Eight nodes on one server have 10 MB/s.",
    "a process for each filter, without Spark; each takes in the log of the one before it as it grows, 184 tuples a "
    "step. Stores are folders on one disk. Without persistence the logs are in memory. One machine cannot show what "
    "more machines would bring: all filters share two cores and one disk. It shows whether a longer chain costs more "
    "for each filter, and what waiting for the disk costs.",
    _panels,
    CLAIMS,
)


def _all(data: Data, stores: str, length: str) -> float:
    return float(data["mb_per_s"][stores][length]) * int(length)


AGGREGATE_CLAIMS = (
    Claim(
        "with eight stores, the throughput of all filters grows with their number",
        holds=lambda data: _all(data, "8", "8") > 2 * _all(data, "8", "1"),
        shown_by=_PAPER,
        refuted_by=_example([62, 60, 56, 52], [28, 14, 7, 3.5], [31, 16, 8, 4]),
        why_not=_SETTING,
    ),
    Claim(
        "one store takes in more from 8 filters than from one (80 MB/s)",
        holds=lambda data: _all(data, "1", "8") > 1.3 * _all(data, "1", "1"),
        shown_by=_PAPER,
        refuted_by=_example([62, 60, 56, 52], [28, 14, 7, 3.5], [31, 30, 28, 26]),
        why_not=_SETTING,
    ),
)

AGGREGATE = Figure(
    "thesis-fig3.9",
    "Filters in a row: the throughput of all of them",
    "Figure 3.8; the number of nodes times the throughput towards PVFS2.",
    "It grows with the number of nodes. The least number of servers for the throughput of 1, 2, 4 and 8 nodes is 8; "
    "eight nodes write 80 MB/s to one server.",
    "Figure 3.8, in the same way. Folders of one disk share its throughput, and filters share two cores: that the sum "
    "grows up to there is all that one machine can show.",
    _aggregate_panels,
    AGGREGATE_CLAIMS,
)

EXPERIMENT = Experiment("thesis-chained", "thesis", measure, (FIGURE, AGGREGATE))
