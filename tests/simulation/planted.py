"""Defects that are planted on purpose: a simulation that cannot fail proves nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any
from unittest import mock

import pytest

from strandline.errors import StrandlineError
from tests.simulation.found_by import FOUND_BY
from tests.simulation.operator_world import Violation

Plant = Callable[[], AbstractContextManager[Any]]


def instead_of(owner: Any, name: str, change: Callable[..., Any]) -> AbstractContextManager[Any]:
    """`change` gets what was there, then the arguments."""
    before = getattr(owner, name)
    return mock.patch.object(owner, name, lambda *args, **more: change(before, *args, **more))


def require_found(name: str, plant: Plant, run: Callable[[int], object], seeds: Iterable[int]) -> None:
    """Fails unless one of the seeds finds the defect; the seed of `FOUND_BY` is tried first, if there is one."""
    noted = [FOUND_BY[name]] if name in FOUND_BY else []
    for seed in chain(noted, seeds):
        try:
            with plant():
                run(seed)
        except (AssertionError, StrandlineError, ValueError, Violation):
            if [seed] != noted:
                warnings.warn(f"{name!r}: {seed},  # to be noted in tests/simulation/found_by.py", stacklevel=2)
            return
    pytest.fail(f"no seed found it: {name}")
