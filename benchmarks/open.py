"""Opening a long stream and finding a time in it: seconds, and memory that does not grow with the length."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

from benchmarks.harness import say, stopwatch, workspace
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.append_commit import Append
from strandline.log.stream.block import Block
from strandline.log.stream.log import Log
from strandline.log.stream.spec import StreamSpec

COMMITS = {"small": 10_000, "large": 100_000, "huge": 1_000_000}
_TUPLES_PER_BLOCK = 1_000
_SCHEMA: dict[str, Any] = {
    "fields": [{"name": n, "type": "long", "nullable": True, "metadata": {}} for n in ("item_id", "item_time")]
}


def run(size: str, repeat: int = 3) -> dict[str, Any]:
    """Writes manifests (the blocks themselves are not needed to find them), then opens and searches."""
    commits = COMMITS[size]
    with workspace() as folder:
        tenth, full = folder / "tenth", folder / "full"
        _write(tenth, commits // 10)
        append_s = stopwatch(lambda: _write(full, commits)) / commits
        cold_s = min(_cold(full, commits) for _ in range(repeat))
        warm_s = min(stopwatch(lambda: _find(full, commits)) for _ in range(repeat))
        memory = {
            name: _memory(path, n) for name, path, n in (("tenth", tenth, commits // 10), ("full", full, commits))
        }
        found = _find(full, commits)
    return {
        "benchmark": "open",
        "size": size,
        "commits": commits,
        "append_us": round(append_s * 1e6),
        "open_and_find_cold_ms": round(cold_s * 1000, 1),
        "open_and_find_ms": round(warm_s * 1000, 1),
        "reader_bytes_tenth": memory["tenth"],
        "reader_bytes": memory["full"],
        "results_match": found == commits // 2 * _TUPLES_PER_BLOCK,
        "result_hash": f"{found:016x}",
    }


def _write(path: Path, commits: int) -> None:
    spec = StreamSpec(id="bench", schema=_SCHEMA, key=("item_id",), time="item_time", partitions=2)
    log = Log.create(LocalStorage(path, durability="os"), spec)
    for n in range(commits):
        first = log.state.ends[0]
        log.append(Append([_block(log.spec, p, n, first) for p in range(2)]))
        if (n + 1) % 10_000 == 0:
            say(f"open: {n + 1:,} of {commits:,} commits")


def _block(spec: StreamSpec, partition: int, n: int, first: int) -> Block:
    return Block(
        partition=partition,
        file=spec.file(partition, first, f"{n:012d}-0badcafe-0123456789ab"),
        first=first,
        end=first + _TUPLES_PER_BLOCK,
        rows={"result": _TUPLES_PER_BLOCK},
        time_min=n * 1_000,
        time_max=n * 1_000 + 999,
        size_bytes=30_000,
        checksum="xxh3:0123456789abcdef",
    )


def _find(path: Path, commits: int) -> int:
    log = Log.open(LocalStorage(path))
    return next(log.blocks(1, time_from=commits // 2 * 1_000)).first


def _cold(path: Path, commits: int) -> float:
    """Seconds in a new process, imports not counted."""
    program = (
        "import sys, time; from pathlib import Path; from benchmarks.open import _find; "
        "began = time.perf_counter(); _find(Path(sys.argv[1]), int(sys.argv[2])); print(time.perf_counter() - began)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path), str(commits)], check=True, capture_output=True, text=True
    )
    return float(done.stdout)


def _memory(path: Path, commits: int) -> int:
    tracemalloc.start()
    log = Log.open(LocalStorage(path))
    found = [next(log.blocks(1, time_from=commits * tenth // 10 * 1_000)).first for tenth in range(10)]
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return used if found else 0
