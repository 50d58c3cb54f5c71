"""`strandline run`: starts a program, once or in several copies, and starts again what dies."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.clock import SYSTEM_CLOCK, stopwatch_s
from strandline.errors import OptionError
from strandline.supervision import COPY_VARIABLE, NAME_BYTES_MAX, TIE_VARIABLE, Copy
from strandline.wording import duration

if TYPE_CHECKING:
    from strandline.spark.query.restart import Restart

HEALTHY_S = 60.0
"""A run of this length, and of the longest pause, was no part of a loop: the pauses begin anew."""
_GRACE_S = 10.0
"""How long the JVM of a program that has ended may take to end, too, before it is killed."""
_LOOK_S = 0.05
_ENDS_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(
    program: Annotated[
        Path, typer.Argument(metavar="PROGRAM", help="A file with a Python program.", show_default=False)
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGS", help="Its arguments; those that begin with - after a --.", show_default=False),
    ] = None,
    restart: Annotated[
        str, typer.Option(metavar="TIME", help="The longest pause before a restart; off: run it once.")
    ] = "1 min",
    replicas: Annotated[
        int, typer.Option(metavar="N", min=1, help="How many copies run side by side, for .replicated().")
    ] = 1,
) -> None:
    """Run a Python program and start it again when it dies.

    A program has died when its exit code is not 0, or when a signal has ended it. The pauses before restarts begin with
    a second and double; after a run of a minute or more they begin anew. Ctrl-C goes to the program, and no restart
    follows; a second Ctrl-C kills it. An error that a restart cannot mend ends the program, too. The exit code is that
    of the last run.

    With --replicas 2 the program runs twice: elements marked .replicated() write to <path>-1 and <path>-2, all others
    run in the first copy alone.
    """
    if not program.is_file():
        raise OptionError("there is no program here", where=str(program), todo="name a file with a Python program")
    from strandline.spark.query.restart import Restart

    pauses = None
    if restart.lower() != "off":
        try:
            pauses = Restart.of(int(restart) if restart.isdecimal() else restart)
        except OptionError as problem:
            todo = 'write --restart "10 s", or --restart off to run the program once'
            raise OptionError(problem.what, todo=todo) from None
    command = [sys.executable, str(program), *(arguments or [])]
    code = supervise(command, program.name, pauses, replicas, lambda line: print(line, file=sys.stderr, flush=True))
    raise typer.Exit(code)


class SupervisedProgram:
    """One copy of the program: its process, or the pause before the next start."""

    def __init__(
        self,
        command: Sequence[str],
        name: str,
        restart: Restart | None,
        say: Callable[[str], None],
        copy: Copy | None = None,
    ) -> None:
        self.code = 0
        """The exit code of the process that ended last, as a shell counts it."""
        self.is_over = False
        """True when the process has ended for good, and those that it had started."""
        self._command = list(command)
        self._name = name
        self._restart = restart
        self._say = say
        self._copy = copy
        self._tries = 0
        self._stops = False
        self._start()

    def _start(self) -> None:
        self._tie, other = socket.socketpair()
        with other:
            told = {TIE_VARIABLE: f"{os.getpid()}:{other.fileno()}"}
            if self._copy is not None:
                told[COPY_VARIABLE] = str(self._copy)
            # A session of its own: Ctrl-C reaches it through the supervisor alone, and all of it can be killed at once.
            self._process = subprocess.Popen(
                self._command, env={**os.environ, **told}, pass_fds=[other.fileno()], start_new_session=True
            )
        self._began_s = stopwatch_s()
        self._starts_at_s: float | None = None
        self._has_ended = False

    def look(self) -> None:
        """Notes the end of the process, and starts it again when its pause is over."""
        if self.is_over or self._process.poll() is None:
            return
        if not self._has_ended:
            self._has_ended = True
            self._ended_s = stopwatch_s()
            self._note_end(self._process.returncode)
        if self._has_left_processes():
            if stopwatch_s() - self._ended_s > _GRACE_S:
                self._send(signal.SIGKILL)
        elif self._stops or self._starts_at_s is None:
            self.is_over = True
        elif stopwatch_s() >= self._starts_at_s:
            self._start()

    def signal(self, number: int) -> None:
        """Sends a signal to the process and all that it has started; no other start follows."""
        self._stops = True
        if not self._has_ended or number == signal.SIGKILL:
            self._send(number)

    def _note_end(self, code: int) -> None:
        """Says what the process has died of, and when the next one starts, if one does."""
        self.code = code if code >= 0 else 128 - code
        word = self._last_word()
        if code == 0 or code == -signal.SIGINT or self._stops or self._restart is None:
            return
        lived_s = self._ended_s - self._began_s
        names = {number.value: number.name for number in signal.Signals}  # without the real-time ones
        died = (
            f"died of {names.get(-code, f'signal {-code}')}"
            if code < 0
            else f"ended with {word or f'exit code {code}'}"
        )
        what = f"strandline run: {self._name} {died} after {duration(round(lived_s * 10) * 100_000)}"
        if word:
            self._say(f"{what}; a restart would not help")
            return
        is_healthy = lived_s >= max(HEALTHY_S, self._restart.longest_s)
        self._tries = 1 if is_healthy else self._tries + 1
        pause_s = self._restart.pause_s(self._tries)
        self._starts_at_s = self._ended_s + pause_s
        self._say(f"{what}; starts again in {duration(round(pause_s * 1e6))}")

    def _last_word(self) -> str:
        """Returns the name of an error that cannot pass; empty if the program has left none."""
        with self._tie:
            self._tie.setblocking(False)
            with contextlib.suppress(OSError):  # it was silent
                return self._tie.recv(NAME_BYTES_MAX).decode(errors="replace")
        return ""

    def _has_left_processes(self) -> bool:
        """Returns whether processes of the program outlive it.

        The supervisor inherits them if it is process 1 of a container. Those that have ended are then zombies, which
        count as members of their group, until the supervisor has waited for them.
        """
        with contextlib.suppress(ChildProcessError):  # they are none of its children, or all have been waited for
            while os.waitpid(-self._process.pid, os.WNOHANG)[0]:
                pass
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def _send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def supervise(
    command: Sequence[str], name: str, restart: Restart | None, copies: int, say: Callable[[str], None]
) -> int:
    """Runs the command until its process, or that of each copy, has ended for good; returns the exit code.

    Of several copies it is the code of the first one that did not end well.
    """
    with _signals() as received:
        named: list[tuple[str, Copy | None]] = [(name, None)]
        if copies > 1:
            named = [(f"copy {n} of {name}", Copy(n, copies)) for n in range(1, copies + 1)]
        programs = [SupervisedProgram(command, own_name, restart, say, copy) for own_name, copy in named]
        delivered = 0
        while not all(program.is_over for program in programs):
            for number in received[delivered:]:  # not in the handler: a program may be about to start there
                for program in programs:
                    program.signal(number if not delivered else signal.SIGKILL)
                delivered += 1
            for program in programs:
                program.look()
            SYSTEM_CLOCK.sleep(_LOOK_S)
    return next((program.code for program in programs if program.code), 0)


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """Collects the signals that end programs, those that this process does not ignore."""
    received: list[int] = []

    def receive(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    heard = [number for number in _ENDS_ON if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, receive) for number in heard}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
