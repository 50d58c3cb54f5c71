"""The tie between a program and the `strandline run` that started it: each learns of the other's end.

The supervisor gives the program one end of a socket. The program writes the name of an error into it that a restart
would not mend. It reads from it only to learn that the supervisor has died: then it ends, too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from dataclasses import dataclass

from strandline.errors import OptionError, StrandlineError

TIE_VARIABLE = "STRANDLINE_SUPERVISOR"
"""The process id of the supervisor and the number of the socket: processes of the program's own inherit it in vain."""
COPY_VARIABLE = "STRANDLINE_COPY"
NAME_BYTES_MAX = 200

_tie: tuple[int, socket.socket] | None = None
"""The process that has the socket, and the socket: a fork of the process has none."""


@dataclass(frozen=True, slots=True)
class Copy:
    """The number of this program among the copies that `strandline run --replicas` started, from 1 on."""

    number: int
    of: int

    @property
    def writes_all(self) -> bool:
        """True in the copy that also runs the elements of which there is only one."""
        return self.number == 1

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def this_copy() -> Copy | None:
    """Returns the number of this program among its copies; None if it is the only one."""
    text = os.environ.get(COPY_VARIABLE, "")
    if not text:
        return None
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise OptionError(f"{COPY_VARIABLE}={text!r} is not of the form 1/2", todo="unset it: `strandline run` sets it")
    return Copy(int(number), int(of)) if int(of) > 1 else None


def begin() -> bool:
    """Lets this program end with its supervisor; returns False, and does nothing, in a process that has none."""
    global _tie
    supervisor, _, number = os.environ.get(TIE_VARIABLE, "").partition(":")
    if supervisor != str(os.getppid()) or _tie is not None:
        return False
    _tie = os.getpid(), socket.socket(fileno=int(number))
    threading.Thread(target=_end_with_supervisor, args=(_tie[1],), name="strandline-supervisor", daemon=True).start()
    return True


def leave_word(problem: StrandlineError) -> None:
    """Tells the supervisor, if there is one, that a restart would not mend this error; does nothing for others.

    An error of no particular class has many causes, such as a Spark that did not start: it may pass.
    """
    if _tie is None or _tie[0] != os.getpid():
        return
    if not problem.may_pass and type(problem) is not StrandlineError:
        with contextlib.suppress(OSError):  # it has just died
            _tie[1].send(type(problem).__name__.encode()[:NAME_BYTES_MAX])


def _end_with_supervisor(tie: socket.socket) -> None:
    tie.recv(1)  # returns when the other end is closed: nothing is ever sent
    os.kill(os.getpid(), signal.SIGTERM)
