"""Versions of operators: a later one of a condition, a function or a class may go on over the same stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class OtherVersionError(ValueError):
    """Raised for a sound state that depends on another version of the operator."""


def version_in(stored: Mapping[str, Any] | None) -> int:
    """Returns the version in an operator's JSON, of stream.json or of a manifest."""
    return int((stored or {}).get("version", 1))
