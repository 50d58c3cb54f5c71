"""Streams as the input of an operator that does not matter: nothing is read of them."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from strandline.inputs.input import Input
from strandline.inputs.one_stream import OneStream
from strandline.inputs.serialised_union import SerialisedUnion
from strandline.log.stream.log import Log


def inputs_over(logs: Sequence[Log]) -> Input:
    """Returns one stream, or several that are read as one."""
    operator: Any = SimpleNamespace(has_times=True, keeps_time=True)
    return OneStream(operator, logs[0]) if len(logs) == 1 else SerialisedUnion(operator, tuple(logs))
