"""The stopwatch of a simulated run: what a step measures must not depend on the machine, or a seed would not repeat.

A policy that goes by seconds writes other footprints when they differ, and so do the prices that a standing keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

from strandline.log.stream import block_sequence
from strandline.recovery import recover, without_replay
from strandline.running import step


@contextmanager
def stopwatch(now_s: Callable[[], float] = lambda: 0.0) -> Iterator[None]:
    """Lets steps and recoveries measure with `now_s`, which stands still by default; kernels take no time."""
    with ExitStack() as patches:
        for module in (step, block_sequence, recover, without_replay):
            patches.enter_context(mock.patch.object(module, "stopwatch_s", now_s))
        for module in (step, recover, without_replay):
            patches.enter_context(mock.patch.object(module, "TALLY", mock.Mock(seconds=0.0)))
        yield
