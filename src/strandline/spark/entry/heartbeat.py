"""How far time is where nothing comes: the clock minus lateness, and no further than a steady clock vouches for."""

from __future__ import annotations

from collections.abc import Callable

from strandline.clock import SYSTEM_CLOCK, Clock, uptime_s
from strandline.errors import OptionError
from strandline.log.stream.spec import StreamSpec
from strandline.user_warning import warn

_JUMP_US = 1_000_000
"""The wall clock may run ahead of the steady one by so much: clocks are adjusted a little all the time."""


class Heartbeat:
    """The boundary of a stream that is quiet.

    The wall clock is trusted as it stands when the query starts. From then on a steady clock keeps watch: should the
    wall clock be set forward, boundaries follow the steady one, for one that is years ahead cannot be taken back.
    """

    def __init__(
        self, every_us: int, lateness_us: int, clock: Clock = SYSTEM_CLOCK, steady_s: Callable[[], float] = uptime_s
    ) -> None:
        self.every_s = every_us / 1e6
        self._lateness_us = lateness_us
        self._clock = clock
        self._steady_s = steady_s
        self._began_us, self._began_s = clock.now_us(), steady_s()
        self._has_warned = False

    def boundary(self) -> int:
        """Returns the time before which no tuple is expected, if nothing waits to be taken in."""
        now_us = self._clock.now_us()
        vouched_us = self._began_us + round((self._steady_s() - self._began_s) * 1e6)
        if now_us > vouched_us + _JUMP_US:
            self._warn(now_us - vouched_us)
            now_us = vouched_us
        return now_us - self._lateness_us

    def _warn(self, jump_us: int) -> None:
        if not self._has_warned:
            self._has_warned = True
            warn(
                f"the clock of this machine was set forward by {jump_us / 1e6:,.0f} s; heartbeats do not follow it "
                "until the query is started again",
            )


def require_heartbeat(spec: StreamSpec, every_us: int, where: str) -> None:
    """Raises unless the clock says something about the times of this stream."""
    if every_us < 1_000:
        raise OptionError("heartbeat is shorter than a millisecond", where=where, todo='use for example "500 ms"')
    if spec.lateness is None:
        raise OptionError(
            "heartbeat= needs lateness=: without it the stream has no boundary",
            where=where,
            todo='say how late a tuple may come, for example lateness="10 s"',
        )
    if spec.time_kind != "timestamp":
        raise OptionError(
            f"heartbeat= needs a time column of type timestamp, and {spec.time} is of type {spec.time_kind}",
            where=where,
            todo="cast the time column to timestamp, or leave heartbeat= out",
        )
