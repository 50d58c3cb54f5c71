"""Defects of `retention="consumed"` that are planted on purpose are found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest

from strandline.log.stream.commit_kinds import TruncateCommit
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState
from strandline.log.upkeep import consumer_registry, retention
from strandline.log.upkeep.consumer_registry import Consumer
from tests.simulation.catalogue import SIMULATIONS
from tests.simulation.planted import instead_of, require_found
from tests.simulation.seeded_runs import run_seeds

SEEDS = 1_000
CONSUMERS = consumer_registry.consumers


def _but_the_newest(log: Log) -> Iterator[Consumer]:
    yield from list(CONSUMERS(log))[: max(1, len(log.state.consumers) - 1)]


def _as_looked(before: Callable[..., Any], log: Log, **given: Any) -> tuple[int, ...]:
    """Truncates as decided by one look, whoever has registered until that is published."""
    if not given.get("consumed"):
        return before(log, **given)
    log.refresh()
    free = retention.planned(log, consumed=True).free

    def make(state: LogState, _seen: object) -> TruncateCommit:
        starts = tuple(max(own, new) for own, new in zip(state.starts, free, strict=True))
        return TruncateCommit(state.seq + 1, log.spec.id, log.clock.now_us(), starts=starts)

    if free != log.state.starts:
        log.publish(make, since=log.state.seq)
    return log.state.starts


PLANTED: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "the newest consumer is overlooked": lambda: mock.patch.object(consumer_registry, "consumers", _but_the_newest),
    "without consumers everything may go": lambda: instead_of(
        retention, "_passed", lambda before, log: before(log) if log.state.consumers else list(log.state.ends)
    ),
    "what all have passed is kept": lambda: instead_of(
        retention, "_passed", lambda before, log: list(log.state.starts)
    ),
    "a consumer that registers after the look is overlooked": lambda: instead_of(retention, "truncate", _as_looked),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_defect_is_found(name: str) -> None:
    require_found(name, PLANTED[name], lambda seed: run_seeds(SIMULATIONS["consumed"], [seed]), range(SEEDS))
