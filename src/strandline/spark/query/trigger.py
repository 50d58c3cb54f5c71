"""The trigger of a query: as a user writes it, and as Spark takes it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import numpy as np

from strandline.errors import OptionError
from strandline.units import duration_us

AVAILABLE_NOW = "available-now"
Trigger = str | dt.timedelta | np.timedelta64 | Mapping[str, Any] | None
"""An interval ("200 ms", a timedelta), "available-now", None for as fast as it goes, or what PySpark's `trigger`
takes, as a dictionary: dict(availableNow=True), dict(processingTime="1 second")."""


def plain_trigger(trigger: Trigger) -> str | None:
    """Returns a trigger as an interval such as "200 ms", "available-now" or None, however it was written."""
    if trigger is None or (isinstance(trigger, str) and trigger == AVAILABLE_NOW):
        return trigger
    given: Any = trigger
    if isinstance(trigger, Mapping):
        match dict(trigger):
            case {"availableNow": True, **others} if not others:
                return AVAILABLE_NOW
            case {"processingTime": str() as given, **others} if not others:
                pass
            case _:
                raise _unknown(dict(trigger))
    if not isinstance(given, str | dt.timedelta | np.timedelta64):
        raise _unknown(given)
    try:
        amount_us = duration_us(given, "trigger")
    except OptionError:
        raise _unknown(given) from None
    return given if isinstance(given, str) else f"{amount_us} us"


def trigger_arguments(trigger: str | None) -> Mapping[str, Any]:
    """Returns the keyword of Spark's `trigger` for a plain one."""
    if trigger is None:
        return {"processingTime": "0 seconds"}
    if trigger == AVAILABLE_NOW:
        return {"availableNow": True}
    return {"processingTime": f"{duration_us(trigger, 'trigger') // 1000} milliseconds"}


def interval_s(trigger: str | None) -> float:
    """Returns the seconds between two batches that a plain trigger asks for; 0 if it asks for none."""
    return 0.0 if trigger in (None, AVAILABLE_NOW) else duration_us(trigger, "trigger") / 1e6


def _unknown(trigger: object) -> OptionError:
    return OptionError(
        f"trigger={trigger!r} is not a trigger",
        todo='use an interval such as "200 ms" or a timedelta, or "available-now"; PySpark\'s dict(availableNow=True) '
        'and dict(processingTime="1 second") do as well',
    )
