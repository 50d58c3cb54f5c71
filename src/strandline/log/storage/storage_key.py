"""Which strings are keys: relative paths made of real names, so that no key leads out of its root."""

from __future__ import annotations

import re
from functools import lru_cache

from strandline.errors import OptionError

_NAME = r"(?!\.{1,2}(?:/|\Z))[^/\0]+"
_KEY = re.compile(rf"{_NAME}(?:/{_NAME})*")


@lru_cache(maxsize=1 << 12)  # the same keys come again and again, layer by layer
def checked_key(key: str) -> str:
    """Returns the key; raises `OptionError` if it is absolute, empty, or has a part that is no name."""
    if _KEY.fullmatch(key) is None:
        raise OptionError(
            f"{key!r} is not a key",
            todo="use a relative path without empty parts, '.', '..' and NUL, such as 'commits/00000001.json'",
        )
    return key


def checked_prefix(prefix: str) -> str:
    """Returns the folder, where `""` is the root; raises `OptionError` if it is no folder of keys."""
    return prefix if prefix == "" else checked_key(prefix)
