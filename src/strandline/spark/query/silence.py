"""How long calls to Spark may fail before a run gives up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from strandline.clock import stopwatch_s
from strandline.errors import SparkSilentError

Answer = TypeVar("Answer")
PATIENCE_S = 60.0


class Silence:
    """The time for which one kind of call to Spark has failed.

    A run bears that for a while: a socket or a file may be free again soon.
    """

    def __init__(self, where: str, patience_s: float = PATIENCE_S) -> None:
        self._where = where
        self._patience_s = patience_s
        self._since_s: float | None = None

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
            raise SparkSilentError(
                f"Spark has not answered for {now_s - self._since_s:.0f} s ({type(problem).__name__}: {problem})",
                where=self._where,
                todo="check that Spark's driver still runs and has file handles and memory left, then start the query "
                "again: it goes on where it was",
            ) from problem
        self._since_s = None
        return answer
