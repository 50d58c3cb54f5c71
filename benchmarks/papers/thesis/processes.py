"""Processes that begin at the same moment and say what they have used: the nodes of the thesis's cluster."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_PATIENCE_S = 120


@dataclass(frozen=True)
class Worked:
    """The outcome of a process."""

    began: float
    ended: float
    """On a clock that all processes share."""
    cpu_s: float


Work = Callable[[], None]


def side_by_side(prepares: Sequence[Callable[[], Work]]) -> list[Worked]:
    """Prepares each work in a process of its own, then does all at once; raises if one fails.

    Processes have loaded the library when they begin, as the nodes of the thesis have. They are forked by a process
    that has no threads yet: those of Arrow and Spark would not survive.
    """
    context = multiprocessing.get_context("forkserver")
    # Arrow loads pandas with the first array, if it is there.
    context.set_forkserver_preload(["pandas", "benchmarks.papers.thesis.filtered"])
    barrier = context.Barrier(len(prepares))
    pipes = [context.Pipe(duplex=False) for _ in prepares]
    processes = [
        context.Process(target=_work, args=(prepare, barrier, send), daemon=True)
        for prepare, (_, send) in zip(prepares, pipes, strict=True)
    ]
    for process in processes:
        process.start()
    try:
        for receive, _ in pipes:
            if not receive.poll(_PATIENCE_S):
                raise TimeoutError(f"a process has not ended after {_PATIENCE_S} s")
        found = [receive.recv() for receive, _ in pipes]
    finally:
        for process in processes:
            process.kill()
            process.join()
    for outcome in found:
        if isinstance(outcome, str):
            raise RuntimeError(outcome)
    return found


def _work(prepare: Callable[[], Work], barrier: Any, send: Any) -> None:
    try:
        work = prepare()
        barrier.wait(_PATIENCE_S)
        began, cpu_s = time.monotonic(), time.process_time()
        work()
        send.send(Worked(began, time.monotonic(), time.process_time() - cpu_s))
    except Exception as problem:
        barrier.abort()
        send.send(f"{type(problem).__name__}: {problem}")


def seconds(found: Sequence[Worked]) -> float:
    """Returns the seconds from the first beginning to the last end."""
    return max(one.ended for one in found) - min(one.began for one in found)
