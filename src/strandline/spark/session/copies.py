"""Copies of a program that `strandline run --replicas` has started: which of them writes a stream, and who waits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from strandline.clock import SYSTEM_CLOCK
from strandline.errors import OptionError, StrandlineWarning, StreamNotFoundError
from strandline.log.storage.redaction import redacted_url
from strandline.log.stream.log import Log
from strandline.spark.query.waiting import wait_for
from strandline.spark.session.place import Place
from strandline.supervision import this_copy
from strandline.user_warning import warn

_WARN_AFTER_S = 10.0


def require_writer(place: Place) -> None:
    """Raises `OptionError` if only copy 1 of this program may write the stream at this place."""
    copy = this_copy()
    if copy is not None and not copy.writes_all:
        raise OptionError(
            f"this is copy {copy.number} of {copy.of} of the program, and only copy 1 writes this stream",
            where=redacted_url(place.url),
            todo="start the elements with sl.pipeline(…), which leaves this one to copy 1, or mark it: .replicated()",
        )


def await_streams(places: Iterable[Place], are_so: Callable[[Log], bool], what: str) -> None:
    """Waits until the streams, which copy 1 of the program writes, are there and as asked; warns after ten seconds."""
    for place in places:

        def look(timeout_s: float, place: Place = place) -> bool:
            with contextlib.suppress(StreamNotFoundError):
                if are_so(place.open()):
                    return True
            SYSTEM_CLOCK.sleep(timeout_s)
            return False

        if not wait_for(look, _WARN_AFTER_S):
            with contextlib.suppress(StrandlineWarning):
                warn(f"waiting until copy 1 of the program has {what} {redacted_url(place.url)}")
            wait_for(look, None)
