"""Figure 3.6 and Table 3.1: one node without persistence, with all of it but the disk, and with stable writes or not.

Twice: blocks of 184 tuples as Borealis wrote them, without Spark; and Spark's micro-batches through an entry point.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import strandline as sl
from benchmarks.harness import CORES, Input, batch_seconds, generate, rounds, say
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
    passed_on,
    publish,
)
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.storage.storage import Durability, Storage
from strandline.testing.memory_storage import MemoryStorage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONTENDERS = ("none", "path", "async", "sync")
_NAMES = {
    "none": "no persistence",
    "path": "all but the disk",
    "async": 'durability="os"',
    "sync": 'durability="fsync"',
}
_BLOCKS = {"tiny": 2, "small": 20, "full": 60}
_BATCH_BYTES = {"tiny": 1 << 18, "small": 48 << 20, "full": 128 << 20}
_BATCHES = {"tiny": 2, "small": 3, "full": 8}
_ROUNDS = {"tiny": 1, "small": 3, "full": 7}
_SHARED_MEMORY = Path("/dev/shm")


def measure(size: Size, folder: Path) -> Data:
    """Measures both ways; then the second one with one core and with two."""
    blocks, write_ms = _blocks(size, folder)
    spark = sl.session(f"local[{CORES}]")
    with _without_disk(folder) as memory:
        entries, cores = _entries(spark, size, folder, memory)
    spark.stop()
    return {"blocks": blocks, "write_ms": write_ms, "entries": entries, "cores": cores}


# ---------------------------------------------------------------------- blocks, without Spark


def _blocks(size: Size, folder: Path) -> tuple[dict[str, dict[str, float]], float]:
    """Returns MB/s by contender and tuple size, and how long a stable write of the largest block takes."""
    found: dict[str, dict[str, float]] = {name: {} for name in CONTENDERS}
    writes_s: list[float] = []
    for tuple_bytes in SIZES_BYTES:
        tuples, many = Tuples(tuple_bytes), _BLOCKS[size]

        def run(name: str, tuples: Tuples = tuples, many: int = many) -> Callable[[], float]:
            return lambda: _filtered(tuples, many, name, folder / "blocks", writes_s)

        writes_s.clear()
        seconds = rounds({name: run(name) for name in CONTENDERS}, _ROUNDS[size])
        for name in CONTENDERS:
            found[name][str(tuple_bytes)] = mb_per_s(many * BLOCK, tuple_bytes, min(seconds[name]))
        say(f"storage: blocks of {BLOCK} x {tuple_bytes} B: {[found[n][str(tuple_bytes)] for n in CONTENDERS]} MB/s")
    return found, round(statistics.median(writes_s) * 1e3, 2)


def _filtered(tuples: Tuples, many: int, contender: str, place: Path, writes_s: list[float]) -> float:
    """Returns the seconds in which a filter has taken in, written and handed on so many blocks.

    The source's log is in memory: the paper's source is another machine.
    """
    if contender == "none":
        watch = Stopwatch()
        received = sum(passed_on(tuples, n * BLOCK, BLOCK) for n in range(many))
        return _checked(watch, received, many)
    storage: Storage = MemoryStorage()
    if contender != "path":
        storage = _Timed(place / "filtered", "os" if contender == "async" else "fsync")
    source = created(MemoryStorage())
    operator = Filter(source, storage, place / "cache", "os" if contender == "async" else "fsync")
    receiver = Receiver(operator.log)
    watch = Stopwatch()
    for _ in range(many):
        publish(source, tuples, BLOCK)
        operator.step()
        receiver.take()
    seconds = _checked(watch, receiver.received, many)
    if contender == "sync" and isinstance(storage, _Timed):
        writes_s += storage.writes_s
    shutil.rmtree(place, ignore_errors=True)
    return seconds


class _Timed(LocalStorage):
    """Storage that notes how long the writes of blocks take."""

    def __init__(self, root: Path, durability: Durability) -> None:
        super().__init__(root, durability)
        self.writes_s: list[float] = []

    def create(self, key: str, data: bytes) -> None:
        began = time.perf_counter()
        super().create(key, data)
        if not key.startswith("commits/"):
            self.writes_s.append(time.perf_counter() - began)


def _checked(watch: Stopwatch, received: int, many: int) -> float:
    seconds = watch.read().seconds
    if received != many * BLOCK:
        raise AssertionError(f"{received:,} of {many * BLOCK:,} tuples were received")
    return seconds


# ---------------------------------------------------------------------- entry points of Spark


def _entries(
    spark: SparkSession, size: Size, folder: Path, memory: Path
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, dict[str, float]]]]:
    """Returns MB/s by contender and tuple size; and by contender and cores MB/s and the processor's use."""
    found: dict[str, dict[str, float]] = {name: {} for name in CONTENDERS}
    places = {"path": memory, "async": folder, "sync": folder}

    def run(name: str, data: Input) -> float:
        return _noop(data.stream(spark), folder) if name == "none" else _persisted(spark, data, name, places[name])

    for tuple_bytes in SIZES_BYTES[:: 2 if size == "tiny" else 1]:
        rows = _BATCH_BYTES[size] // tuple_bytes
        data = generate(folder / f"in-{tuple_bytes}", tuple_bytes, rows, _BATCHES[size])
        if tuple_bytes == SIZES_BYTES[0] and size != "tiny":
            for name in CONTENDERS:
                run(name, data)  # compiles the loops of the JVM
        seconds = rounds(
            {name: lambda name=name, data=data: run(name, data) for name in CONTENDERS},  # type: ignore[misc]
            _ROUNDS[size],
        )
        for name in CONTENDERS:
            found[name][str(tuple_bytes)] = mb_per_s(rows, tuple_bytes, min(seconds[name]))
        say(f"storage: entry points, {tuple_bytes} B: {[found[n][str(tuple_bytes)] for n in CONTENDERS]} MB/s")
    return found, _with_cores(spark, data, _ROUNDS[size], run)


def _with_cores(
    spark: SparkSession, data: Input, repeat: int, run: Callable[[str, Input], float]
) -> dict[str, dict[str, dict[str, float]]]:
    """Returns MB/s and the processor's use with one core and with two, by contender."""
    used: dict[str, list[float]] = {}
    jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]

    def once(name: str, cores: int) -> float:
        with _held_to(cores, jvm):
            began, cpu_s = time.perf_counter(), _cpu_s(jvm)
            seconds = run(name, data)
            used.setdefault(f"{name} {cores}", []).append((_cpu_s(jvm) - cpu_s) / (time.perf_counter() - began))
        return seconds

    keys = [(name, cores) for name in ("none", "sync") for cores in (1, CORES)]
    seconds = rounds(
        {f"{name} {cores}": lambda name=name, cores=cores: once(name, cores) for name, cores in keys},  # type: ignore[misc]
        repeat,
    )
    found: dict[str, dict[str, dict[str, float]]] = {"none": {}, "sync": {}}
    for name, cores in keys:
        key = f"{name} {cores}"
        rate = mb_per_s(data.rows_per_batch, data.tuple_bytes, min(seconds[key]))
        found[name][str(cores)] = {"mb_per_s": rate, "cpu": round(max(used[key]), 2)}
    say(f"storage: by cores {found}")
    return found


@contextmanager
def _held_to(cores: int, process: int) -> Iterator[None]:
    """Holds all threads of a process to so many cores."""
    allowed = sorted(os.sched_getaffinity(0))
    _hold(process, allowed[:cores])
    try:
        yield
    finally:
        _hold(process, allowed)


def _hold(process: int, cores: Sequence[int]) -> None:
    for thread in Path(f"/proc/{process}/task").iterdir():
        try:
            os.sched_setaffinity(int(thread.name), cores)
        except ProcessLookupError:
            continue  # the thread has ended


def _cpu_s(process: int) -> float:
    """Returns the seconds that the processor has worked for a process."""
    user, system = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _without_disk(folder: Path) -> Iterator[Path]:
    """Yields a folder in memory that is gone afterwards; one on disk where there is no such file system."""
    root = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else folder
    place = root / f"strandline-storage-{os.getpid()}"
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _noop(items: DataFrame, folder: Path) -> float:
    """Returns the seconds of a batch that is read, and shuffled by its key, and goes nowhere."""
    from pyspark.sql import functions as F

    shuffled = items.repartitionById(CORES, F.pmod(F.hash("item_id"), F.lit(CORES)))
    writer = shuffled.writeStream.format("noop").option("checkpointLocation", str(folder / "noop"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    shutil.rmtree(folder / "noop")
    return batch_seconds(query)


def _persisted(spark: SparkSession, data: Input, contender: str, place: Path) -> float:
    """Returns the seconds of a batch that an entry point writes. Raises if a tuple is missing."""
    path = place / "stream"
    durability: Durability = "fsync" if contender == "sync" else "os"
    entry = sl.persist(
        data.stream(spark),
        str(path),
        key="item_id",
        time="item_time",
        partitions=CORES,
        lateness="1 s",
        durability=durability,
    )
    query = entry.start(spark, trigger="available-now")
    query.await_termination()
    written = sum(sl.stream(str(path)).offsets().values())
    if written != data.rows_per_batch * data.batches:
        raise AssertionError(f"{written:,} of {data.rows_per_batch * data.batches:,} tuples were written")
    seconds = batch_seconds(query.spark_query)
    shutil.rmtree(path)
    return seconds


# ---------------------------------------------------------------------- the figures


def _panels(data: Data) -> Sequence[Panel]:
    paper = {"no persistence": [(4096, 63)], "stable writes": [(4096, 28)]}

    def lines(found: Mapping[str, Mapping[str, float]]) -> dict[str, list[tuple[float, float]]]:
        return {_NAMES[name]: [(int(b), rate) for b, rate in found[name].items()] for name in CONTENDERS}

    titles = {"blocks": f"Blocks of {BLOCK} tuples, without Spark", "entries": "Entry points of Spark, micro-batches"}
    return [
        Panel(title, "bytes of a tuple", "MB/s", ours=lines(data[name]), paper=paper) for name, title in titles.items()
    ]


def _left(data: Data, contender: str, way: str = "entries", tuple_bytes: int = 4096) -> float:
    """Returns the part of the throughput without persistence that a contender has."""
    return float(data[way][contender][str(tuple_bytes)] / data[way]["none"][str(tuple_bytes)])


def _code_part(data: Data) -> float:
    """Returns which part of what stable writes of 4 KB tuples cost is the path's own work, without the disk."""
    none, path, sync = (1 / data["entries"][name]["4096"] for name in ("none", "path", "sync"))
    return float((path - none) / (sync - none))


def _example(
    none: Sequence[float], path: Sequence[float], asynchronous: Sequence[float], sync: Sequence[float]
) -> Data:
    """Returns values with these rates by tuple size, alike for both ways."""
    rows = dict(zip(CONTENDERS, (none, path, asynchronous, sync), strict=True))
    found = {name: {str(b): r for b, r in zip(SIZES_BYTES, row, strict=True)} for name, row in rows.items()}
    return {"blocks": found, "entries": found, "write_ms": 20}


_PAPER = _example([12, 35, 63], [12, 28, 36], [11, 26, 32], [11, 24, 28])
"""63, about half of it, and 28 MB/s at 4 KB (3.3.2 and Table 3.1); smaller tuples differ less."""

CLAIMS = (
    Claim(
        "what persistence costs grows with the size of tuples",
        holds=lambda data: all(
            _left(data, "sync", way) < 0.9 * _left(data, "sync", way, 256) for way in ("blocks", "entries")
        ),
        shown_by=_PAPER,
        refuted_by=_example([12, 35, 63], [6, 20, 50], [6, 18, 40], [5, 16, 38]),
        surpassed=lambda data: all(_left(data, "sync", way) >= 28 / 63 for way in ("blocks", "entries")),
        why_not="the paper's link carries each tuple twice, so that large tuples have half of it. We have no such "
        "link: a block and its commit cost the same whatever the size of their tuples, and large blocks share that "
        "among more bytes. Better: at 4 KB more is left than the paper's 28 of 63 MB/s.",
    ),
    Claim(
        "without stable writes, persistence keeps at least about half of the throughput at 4 KB",
        holds=lambda data: _left(data, "async") >= 0.45,
        shown_by=_PAPER,
        refuted_by=_example([12, 35, 63], [11, 12, 20], [11, 10, 18], [10, 9, 16]),
    ),
    Claim(
        "stable writes cost about 15 % more at 4 KB",
        holds=lambda data: 1 - data["entries"]["sync"]["4096"] / data["entries"]["async"]["4096"] <= 0.2,
        shown_by=_PAPER,
        refuted_by=_example([12, 35, 63], [11, 28, 36], [11, 26, 32], [5, 9, 16]),
    ),
    Claim(
        "most of what stable writes cost is work of the path itself, not the disk",
        holds=lambda data: _code_part(data) > 0.5,
        shown_by=_PAPER,
        refuted_by=_example([12, 35, 63], [12, 35, 60], [11, 30, 50], [5, 9, 16]),
    ),
    Claim(
        "a stable write of a block of 736 KB takes 20 ms or less",
        holds=lambda data: data["write_ms"] <= 22,
        shown_by=_PAPER,
        refuted_by={"write_ms": 80},
    ),
)

FIGURE = Figure(
    "thesis-fig3.6",
    "One node with and without persistence",
    "the node of Figure 3.5 with batches of 16 tuples; it writes blocks of 184 tuples to one PVFS2 server, with stable "
    "writes or without; and a node that does all of that but the calls to PVFS2.",
    "The larger the tuples, the more persistence costs. At 4 KB about half of 63 MB/s is left without stable writes, "
    "and 15 % (8 MB/s) less with them; most of this is work of the client. An I/O takes 20 ms.",
    "on the left the same blocks without Spark: a filter that hands on what it has decoded and encoded; that and the "
    "log in memory; the log on disk without and with fsync. Only the filter's log is on the disk. On the right "
    "Spark's micro-batches of 48 MB: noop, which reads and shuffles; entry points that write into memory, and to the "
    "disk. No network is shared: where the paper's link carries each tuple twice, our disk and processor do.",
    _panels,
    CLAIMS,
)


def _core_panels(data: Data) -> Sequence[Panel]:
    names = {"none": "no persistence", "sync": "stable writes"}
    found = data["cores"]

    def bars(value: str) -> dict[str, dict[str, float]]:
        many = sorted(found["none"], key=int)
        return {names[n]: {f"{c} core{'s' * (c != '1')}": found[n][c][value] for c in many} for n in found}

    return [
        Panel("Throughput, tuples of 4 KB", "cores", "MB/s", bars=bars("mb_per_s")),
        Panel("The processor's use", "cores", "cores that work", bars=bars("cpu")),
    ]


def _core_table(data: Data) -> Sequence[Sequence[str]]:
    paper = {"none": ("63 MB/s", "75 MB/s"), "sync": ("28 MB/s", "50 MB/s")}
    rows = []
    for name, title in (("none", "no persistence"), ("sync", "stable writes")):
        ours = [f"{data['cores'][name][cores]['mb_per_s']:g} MB/s" for cores in sorted(data["cores"][name], key=int)]
        rows.append((title, *ours, *paper[name]))
    return [("", "1 core", f"{CORES} cores", "2 cores (paper)", "8 cores (paper)"), *rows]


def _cores(data: Data, contender: str) -> list[float]:
    found: Mapping[str, Any] = data["cores"][contender]
    return [float(found[cores]["mb_per_s"]) for cores in sorted(found, key=int)]


def _gain(data: Data, contender: str) -> float:
    few, many = _cores(data, contender)
    return many / few


def _by_cores(none: Sequence[float], sync: Sequence[float]) -> Data:
    found = {"none": none, "sync": sync}
    return {"cores": {n: {str(c): {"mb_per_s": v} for c, v in zip((1, 2), r, strict=True)} for n, r in found.items()}}


CORE_CLAIMS = (
    Claim(
        "both gain from more cores",
        holds=lambda data: min(_gain(data, "none"), _gain(data, "sync")) >= 1.1,
        shown_by=_by_cores([63, 75], [28, 50]),
        refuted_by=_by_cores([63, 75], [28, 28]),
    ),
    Claim(
        "persistence gains more than the node without it",
        holds=lambda data: _gain(data, "sync") > 1.05 * _gain(data, "none"),
        shown_by=_by_cores([63, 75], [28, 50]),
        refuted_by=_by_cores([63, 120], [28, 50]),
    ),
    Claim(
        "with the more cores, stable writes have more than half of the throughput without persistence",
        holds=lambda data: _cores(data, "sync")[-1] > 0.5 * _cores(data, "none")[-1],
        shown_by=_by_cores([63, 75], [28, 50]),
        refuted_by=_by_cores([63, 75], [28, 35]),
    ),
)

CORES_FIGURE = Figure(
    "thesis-table3.1",
    "One node on more cores",
    "Figure 3.6 with tuples of 4 KB on a node of two processors and on one of eight cores, which are faster, too.",
    "63 MB/s become 75 without persistence, and 28 become 50 with stable writes: persistence uses cores that are idle "
    "otherwise, and has more than half of the throughput then.",
    "the entry points of Figure 3.6 in one Spark with two tasks, whose threads are all held to one core, and then not. "
    "Both machines of the paper have more cores than that; ours says what the second core brings.",
    _core_panels,
    CORE_CLAIMS,
    table=_core_table,
)

EXPERIMENT = Experiment("thesis-storage", "thesis", measure, (FIGURE, CORES_FIGURE))
