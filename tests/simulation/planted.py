"""Defects that are planted on purpose: a simulation that cannot fail proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest

from strandline.errors import StrandlineError
from tests.simulation.operator_world import Violation
from tests.simulation.table_codec import table_codec

Plant = Callable[[], AbstractContextManager[Any]]


def instead_of(owner: Any, name: str, change: Callable[..., Any]) -> AbstractContextManager[Any]:
    """`change` gets what was there, then the arguments."""
    before = getattr(owner, name)
    return mock.patch.object(owner, name, lambda *args, **more: change(before, *args, **more))


def require_found(plant: Plant, run: Callable[[int], object], seeds: int) -> None:
    """Fails unless one of so many seeds finds the defect, its blocks being tables in memory."""
    for seed in range(seeds):
        try:
            with plant(), table_codec():
                run(seed)
        except (StrandlineError, ValueError, Violation):
            return
    pytest.fail(f"{seeds} seeds did not find it")
