"""Spark that does not answer: borne for a while, because a socket or a file may be free again soon, and then told."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from strandline.clock import stopwatch_s
from strandline.errors import StrandlineError

Answer = TypeVar("Answer")

_PATIENCE_S = 60.0


class Silence:
    """How long one kind of call to Spark has failed, every time."""

    def __init__(self, where: str, patience_s: float = _PATIENCE_S) -> None:
        self._where = where
        self._patience_s = patience_s
        self._since_s: float | None = None

    @property
    def is_broken(self) -> bool:
        """True if the last call was answered."""
        return self._since_s is None

    def ask(self, call: Callable[[], Answer], otherwise: Answer) -> Answer:
        """Returns the answer, or `otherwise` if there is none. Raises if there has been none for a minute."""
        try:
            answer = call()
        except Exception as problem:
            now_s = stopwatch_s()
            if self._since_s is None:
                self._since_s = now_s
            if now_s - self._since_s < self._patience_s:
                return otherwise
            raise StrandlineError(
                f"Spark has not answered for {now_s - self._since_s:.0f} s ({type(problem).__name__}: {problem})",
                where=self._where,
                todo="see whether Spark's driver still runs and has files and memory left, then start the query "
                "again: it goes on where it stands",
            ) from problem
        self._since_s = None
        return answer
