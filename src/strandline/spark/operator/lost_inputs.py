"""Inputs of an operator with a bound that cannot be read: the driver leaves each alone for a while, then retries it.

A store that fails, or a disk that is not mounted, is no reason to end the query: the input is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from strandline.clock import SYSTEM_CLOCK
from strandline.errors import StorageError
from strandline.inputs.input import Input
from strandline.inputs.left_alone import LeftAlone
from strandline.log.stream import spec
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState
from strandline.spark.operator.operator_inputs import OperatorInputs
from strandline.spark.operator.whole_inputs import opened


class LostInputs:
    """The inputs that cannot be read, as far as the driver knows, by their numbers."""

    def __init__(
        self, inputs: OperatorInputs, unopened: Iterable[int], require_same: Callable[[int, Log], None]
    ) -> None:
        """Takes the inputs `unopened`, which were not there at the start of the query.

        When one of them is there, `require_same` raises if it is another stream.
        """
        self._inputs = inputs
        self._unopened = set(unopened)
        self._require_same = require_same
        self._alone = LeftAlone(SYSTEM_CLOCK, self._unopened)

    def bear(self, problem: StorageError) -> None:
        """Notes which input cannot be read; raises the problem if it concerns no input, but for example the output."""
        number = next((n for n, place in enumerate(self._inputs.places) if problem.lies_in(place.url)), None)
        if number is None:
            raise problem
        self._alone.add(number)

    def now(self) -> frozenset[int]:
        """Retries the inputs that were left alone for long enough; returns the inputs that are still lost."""
        for number in self._alone.over():
            if self._is_back(number):
                self._alone.drop(number)
            else:
                self._alone.add(number)
        return self._alone.all()

    def _is_back(self, number: int) -> bool:
        log = self._inputs.logs[number]
        try:
            if number in self._unopened:
                found = opened(self._inputs.places[number])
                self._require_same(number, found)
                log.reload()
                self._unopened.discard(number)
            elif not log.storage.exists(spec.KEY):
                return False
        except StorageError:
            return False
        return True


def require_same(input_: Input, output: LogState, unopened: frozenset[int]) -> frozenset[int]:
    """Returns the inputs that cannot be read; raises if a readable one is not the stream that was taken in."""
    lost = set(unopened)
    numbers = frozenset(range(len(input_.logs)))
    for number in numbers:
        try:
            input_.require_same(output.standings, numbers - {number} | lost)
        except StorageError:
            lost.add(number)
    return frozenset(lost)
