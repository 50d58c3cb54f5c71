"""The object of a partition, which can be brought back to where it was before a call that raised.

A call that raises may leave its object half-way. Under on_error="set_aside" the object must then be what it was before,
without a copy of its state for every call, since that may be large. So now and then, when as many bytes of tuples were
taken in as the state has, it is copied; going back is to restore that copy and to repeat the calls since.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pyarrow as pa

from strandline.errors import InputError
from strandline.operators.partition_wide.state_values import State, decoded, encoded, state_bytes
from strandline.operators.partition_wide.user_operator import UserClass, UserOperator

REPEATED_BYTES_MIN = 16 << 20
"""Going back repeats calls with about so many bytes of tuples, or as many as the state has."""


class CallRaisedError(Exception):
    """The user's `process` raised what is the cause of this; the object may be half-way."""


class ObjectAtWork:
    """An object of a user's class: as it was made, or as a saved state has it; made when it is first called."""

    def __init__(self, of: UserClass, saved: State | None = None) -> None:
        self._of = of
        self._mark = saved
        """The state from which it can be brought back; None: a new object."""
        self._since: list[pa.Table | int] | None = []
        """The calls since: tuples of `process`, boundaries of `advance`. None if they were not kept."""
        self._since_bytes = 0
        self._live: UserOperator | None = None

    def process(self, tuples: pa.Table, *, is_noted: bool) -> Any:
        """Returns what `process` returns; raises CallRaisedError if it raises.

        If calls are noted, it can be brought back to before this one; if not, it cannot be brought back any more.
        """
        live = self.awake()
        self._prepare(is_noted)
        try:
            value = live.process(tuples)
        except MemoryError:
            raise  # no tuple is at fault
        except Exception as problem:
            raise CallRaisedError from problem
        self._note(tuples, is_noted)
        return value

    def advance(self, boundary: int, *, is_noted: bool) -> Any:
        """Returns what `advance` returns; raises InputError if it raises."""
        live = self.awake()
        self._prepare(is_noted)
        try:
            value = live.advance(boundary)
        except Exception as problem:
            raise raised(f"{self._of.name}.advance", problem, f"boundary {boundary}") from problem
        self._note(boundary, is_noted)
        return value

    def state(self) -> State:
        """Returns the state now; raises InputError if it cannot be had or saved."""
        if self._live is None and self._mark is not None and not self._since:
            return self._mark
        live = self.awake()
        try:
            values = live.get_checkpoint()
        except Exception as problem:
            raise raised(f"{self._of.name}.get_checkpoint", problem, "the end of a step") from problem
        return encoded(values, self._of.name)

    # ------------------------------------------------------------------ going back

    def go_back(self) -> None:
        """Replaces the object by one that has survived the calls that were noted, and no others."""
        assert self._since is not None
        self._live = None
        live = self.awake()
        try:
            for call in self._since:
                if isinstance(call, pa.Table):
                    live.process(call)
                else:
                    live.advance(call)
        except Exception as problem:
            raise raised(self._of.name, problem, "a call that did not raise before") from problem

    def _prepare(self, is_noted: bool) -> None:
        """Makes sure that the object can be brought back to where it is now, or drops the copy for that."""
        if not is_noted:
            self._mark, self._since, self._since_bytes = None, None, 0
        elif self._since is None:
            self._mark, self._since = self.state(), []

    def _note(self, call: pa.Table | int, is_noted: bool) -> None:
        """Notes a call that the object has survived, as one to repeat."""
        if not is_noted or self._since is None:
            return
        self._since.append(call)
        self._since_bytes += call.nbytes if isinstance(call, pa.Table) else 8
        if self._since_bytes > max(REPEATED_BYTES_MIN, 0 if self._mark is None else state_bytes(self._mark)):
            self._mark, self._since, self._since_bytes = self.state(), [], 0

    def awake(self) -> UserOperator:
        """Returns the object, made now if it was not called yet; raises InputError if it cannot be."""
        if self._live is None:
            if self._of.code is None:
                raise InputError(
                    f"this program does not have the class {self._of.name}, and stream.json has only its name",
                    todo="start the operator in a program that defines the class",
                )
            live = self._of.made()
            if self._mark is not None:
                _restore(live, self._of.name, self._mark)
            self._live = live
        return self._live


def _restore(live: UserOperator, name: str, state: State) -> None:
    try:
        live.restore_checkpoint(decoded(state))
    except Exception as problem:
        raise raised(f"{name}.restore_checkpoint", problem, "a saved state") from problem


_OURS = Path(__file__).parent
_LINES_MAX = 3
"""So many of the user's own calls are shown, the innermost last."""


def raised(method: str, problem: Exception, where: str, *, may_set_aside: bool = False) -> InputError:
    """Returns the error about a method that raised while it was at `where`."""
    todo = "mend the method; the stream stays as it was"
    if may_set_aside:
        todo += '. Or start(…, on_error="set_aside"): tuples over which it raises go to the side log'
    return InputError(
        f"{method} raised {type(problem).__name__}: {problem}", where=f"{where}; {_lines(problem)}", todo=todo
    )


def _lines(problem: Exception) -> str:
    """Returns where it was raised, in the user's own words: files, lines, functions and what stands there."""
    frames = [f for f in traceback.extract_tb(problem.__traceback__) if Path(f.filename).parent != _OURS]
    shown = frames[-_LINES_MAX:] if len(frames) > _LINES_MAX else frames
    own = frames[:1] if frames and frames[0] not in shown else []
    texts = [f"{f.filename}, line {f.lineno}, in {f.name}" + (f": {f.line}" if f.line else "") for f in [*own, *shown]]
    return "; ".join(texts) or "before its first line"
