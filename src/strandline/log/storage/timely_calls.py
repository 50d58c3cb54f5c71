"""Calls on a store that may never answer: the caller waits for so long, and no longer.

Nothing can end a call that hangs in the kernel or in a client, so a call runs in a thread that can be left behind. A
call that was not answered in time is *late*. From then on the store is *silent*: every other call fails at once, so
that no caller waits twice for it and threads do not pile up. When the late call has come back, or will not for long,
the store is asked for something small, in another thread. The silence ends when that is answered in time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from strandline.clock import stopwatch_s
from strandline.errors import KeyExistsError, KeyMissingError, StorageError

Answer = TypeVar("Answer")

AGAIN_S = 1.0
"""A store that was too slow, or whose client has given up, is asked again after so long."""
GIVEN_UP_S = 60.0
"""A call that is late by so much may be lost for ever, as on a connection of which the other end knows no more. The
store is asked by another thread then; by a third one after twice as long, and so on."""


_ANSWERS = (KeyMissingError, KeyExistsError)


class SilentError(Exception):
    """There was no answer in time. It never leaves a storage, which says it in its own words."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        """For how long there has been none."""


class TimelyCalls:
    """The calls of this process on one store."""

    def __init__(self, probe: Callable[[], object]) -> None:
        """Takes `probe`, which asks the store for something small and changes nothing."""
        self._probe = probe
        self._lock = threading.Lock()
        self._late: set[_Call[Any]] = set()
        self._silent_since_s: float | None = None
        self._ask_again_s = 0.0

    def ask(self, work: Callable[[], Answer], limit_s: float) -> Answer:
        """Returns or raises what `work` does; raises `SilentError` if that takes longer than the limit, or the store is
        silent.

        After a `SilentError` the work may still be done, at any time.
        """
        with self._lock:
            if self._silent_since_s is not None:
                self._ask_again(limit_s)
                raise SilentError(stopwatch_s() - self._silent_since_s)
        call = _Call(work, self)
        _begin(call)
        try:
            return call.answer(limit_s)
        except Empty:
            with self._lock:
                if not call.is_over:
                    self._is_late(call)
                    raise SilentError(stopwatch_s() - call.began_s) from None
        return call.answer(None)  # it came in the very last moment

    def _is_late(self, call: _Call[Any]) -> None:
        self._late.add(call)
        if self._silent_since_s is None:
            self._silent_since_s = call.began_s
        self._ask_again_s = stopwatch_s() + GIVEN_UP_S * 2 ** (len(self._late) - 1)

    def _ask_again(self, limit_s: float) -> None:
        """Asks a silent store whether it is still there, if it is time for that; does not wait for the answer."""
        if stopwatch_s() >= self._ask_again_s:
            call = _Call(self._probe, self, limit_s)
            self._is_late(call)
            _begin(call)

    def over(self, call: _Call[Any]) -> None:
        """Notes that a call has come back."""
        with self._lock:
            call.is_over = True
            if call not in self._late:
                return
            self._late.discard(call)
            now_s = stopwatch_s()
            if call.probe_s is not None and now_s - call.began_s < call.probe_s:
                self._silent_since_s = None  # also if it was refused: a store that says at once that it fails
            else:  # clients that give up, and stores that are too slow, are left alone for a while
                is_back = call.probe_s is None and call.is_answered
                self._ask_again_s = now_s + (0.0 if is_back else AGAIN_S)


class _Call(Generic[Answer]):
    """One question, and what came back."""

    def __init__(self, work: Callable[[], Answer], calls: TimelyCalls, probe_s: float | None = None) -> None:
        self._work = work
        self._calls = calls
        self._reply: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self.probe_s = probe_s
        """Of a probe, for whose answer no thread waits: the time within which it has to come."""
        self.began_s = stopwatch_s()
        self.is_answered = False
        """True if the store has answered, if only that there is no such key."""
        self.is_over = False

    def run(self) -> tuple[Any, BaseException | None]:
        """Asks; what came back."""
        value, problem = None, None
        try:
            value = self._work()
        except BaseException as raised:
            problem = raised
        self.is_answered = not isinstance(problem, StorageError) or isinstance(problem, _ANSWERS)
        self._calls.over(self)
        return value, problem

    def reply(self, found: tuple[Any, BaseException | None]) -> None:
        """Hands over what came back to the thread that waits for it, if one does."""
        self._reply.put(found)

    def answer(self, limit_s: float | None) -> Answer:
        """Returns or raises what the call did; raises `Empty` if it does not end in time."""
        value, problem = self._reply.get(timeout=limit_s)
        if problem is not None:
            raise problem
        answer: Answer = value
        return answer


class _Caller(threading.Thread):
    """A thread for one call after the other. A daemon: the end of the program does not wait for a store."""

    def __init__(self) -> None:
        super().__init__(name="strandline-store", daemon=True)
        self.calls: SimpleQueue[_Call[Any]] = SimpleQueue()

    def run(self) -> None:
        while True:
            call = self.calls.get()
            found = call.run()
            _idle.append(self)  # first, or a caller that has the answer and asks again would need another thread
            call.reply(found)
            del call, found


_idle: list[_Caller] = []
"""Threads of this process that have nothing to do: as many as there have been calls at once."""
_of_stores: dict[tuple[int, str], TimelyCalls] = {}

# Threads do not survive a fork, and Spark forks its Python workers.
os.register_at_fork(after_in_child=_idle.clear)


def _begin(call: _Call[Any]) -> None:
    try:
        caller = _idle.pop()
    except IndexError:
        caller = _Caller()
        caller.start()
    caller.calls.put(call)


def calls_on(url: str, probe: Callable[[], object]) -> TimelyCalls:
    """Returns the calls of this process on the store with this address; they are shared by all who open it."""
    key = os.getpid(), url
    return _of_stores.get(key) or _of_stores.setdefault(key, TimelyCalls(probe))
