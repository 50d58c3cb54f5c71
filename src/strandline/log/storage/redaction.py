"""Secrets stay out of every text: URLs without passwords, messages of filesystems without what their options hold."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, quote_plus

from strandline.errors import OptionError

_MASK = "***"
_SECRET_NAME = r"secret|pass|token|key|credential|auth|sas|sig|delegation|connection_string|cookie"
# A colon before the first slash, and an @ somewhere after it; a port is no password. Passwords may hold slashes and @.
_PASSWORD = re.compile(r"(:/+)[^/:@]*:(?!\d{1,5}(?:/|\Z)).*@", re.DOTALL)
_QUERY = re.compile(rf"([?&;][^=&;?/]*(?:{_SECRET_NAME})[^=&;?/]*=)[^&]*", re.IGNORECASE)
_PAIR = re.compile(rf"[^=;&?]*(?:{_SECRET_NAME})[^=;&?]*=([^;&]*)", re.IGNORECASE)
_NAME = re.compile(_SECRET_NAME, re.IGNORECASE)
_LENGTH_MIN = 4
"""Shorter ones are no secrets, and to hide them would hide every other word."""


def redacted_url(url: str) -> str:
    """Returns the URL without user and password, and without the values of query fields that sound like secrets."""
    url = _PASSWORD.sub(rf"\1{_MASK}@", url)
    return _QUERY.sub(rf"\1{_MASK}", url) if "://" in url else url


def require_no_secret(url: str) -> None:
    """Raises `OptionError`, without the secret, if the URL holds one: messages show URLs, and streams keep them."""
    shown = redacted_url(url)
    if shown != url:
        raise OptionError(
            "the URL holds a password, which would show up in messages and logs",
            where=repr(shown),
            todo="give it as an option of the storage (storage_options=), or in the environment",
        )


class Redaction:
    """Hides what the options of a storage keep secret, wherever it turns up."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        found = {s for s in _secrets(options, is_secret=False) if len(s) >= _LENGTH_MIN}
        spelt = {way for s in found for way in (s, quote(s), quote(s, safe=""), quote_plus(s), repr(s)[1:-1])}
        self._secrets = sorted(spelt, key=len, reverse=True)

    def text(self, text: object) -> str:
        """Returns the text without the secrets."""
        shown = str(text)
        for secret in self._secrets:
            shown = shown.replace(secret, _MASK)
        return shown

    def cause(self, error: BaseException) -> BaseException | None:
        """Returns the error, to be named as a cause; None if it, or a cause of its own, would show a secret."""
        told = "".join(traceback.format_exception(error))
        return error if self.text(told) == told else None


def _secrets(value: Any, *, is_secret: bool) -> Iterator[str]:
    """Yields texts below names that sound like secrets, passwords in URLs, and those in texts like `AccountKey=…`."""
    if isinstance(value, Mapping):
        for name, below in value.items():
            yield from _secrets(below, is_secret=is_secret or bool(_NAME.search(str(name))))
    elif isinstance(value, str):
        if is_secret:
            yield value
        if match := _PASSWORD.search(value):
            yield match[0].partition("//")[2][:-1].partition(":")[2]
        yield from _PAIR.findall(value)
    elif isinstance(value, bytes) and is_secret:
        yield value.decode(errors="replace")
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for below in value:
            yield from _secrets(below, is_secret=is_secret)
