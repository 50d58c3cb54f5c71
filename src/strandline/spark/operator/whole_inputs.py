"""Inputs with all their published tuples, for tasks that may have to read far behind the slice of their step."""

from __future__ import annotations

from strandline.errors import NotAStreamError, StrandlineError, StreamNotFoundError
from strandline.log.stream import log_errors
from strandline.log.stream.log import Log
from strandline.spark.session.place import Place

_OPENED_MAX = 16
_OPENED: dict[tuple[str, str, float | None], Log] = {}
"""The inputs that forks in this process have read: the process opens each once, and refreshes it from then on."""


def opened(place: Place) -> Log:
    """Returns the stream of an input, which was there once; raises `StorageError` if it is not there."""
    try:
        return place.open()
    except (StreamNotFoundError, NotAStreamError) as problem:
        raise log_errors.gone(place.url) from problem


def refreshed(place: Place, stream: str, seen: int) -> Log:
    """Returns the stream with this id; raises if it cannot be read, or lacks the commit that the driver has seen."""
    known = place.url, stream, place.limit_s
    log = _OPENED.pop(known, None)
    try:
        if log is not None:
            log.refresh()
    except StrandlineError:
        log = None  # perhaps the last refresh was so long ago that commits are gone
    log = log or opened(place)
    if log.spec.id != stream or log.state.seq < seen:
        raise log_errors.gone(place.url)
    while len(_OPENED) >= _OPENED_MAX:
        _OPENED.pop(next(iter(_OPENED)))
    _OPENED[known] = log
    return log
