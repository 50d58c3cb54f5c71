"""As much of Spark's context as is needed to ask whether it was stopped."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


def jvm_context(has_stopped: Callable[[], bool] = lambda: False) -> Any:
    """Returns the `_jsc` of a context: PySpark itself sets it to None when the program stops Spark."""
    return SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=has_stopped))
