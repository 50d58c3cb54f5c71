"""The inputs of a simulated operator: what is appended to them, and all that ever was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from strandline.log.stream import quiet
from strandline.log.stream.log import Log
from strandline.log.stream.schema_change import add_columns
from strandline.log.stream.spec import StreamSpec
from tests.simulation.simulated_operators import Placed, SimulatedOperator, serialised
from tests.support.operator_streams import Row, Tuples, append_rows

NOTE = {"name": "note", "type": "string"}
"""The column that an input may get later."""


class SimulatedInputs:
    """One or several streams that grow, each at its own pace and with its own lateness; one may be far behind."""

    def __init__(
        self, rng: Random, operator: SimulatedOperator, partitions: int, create: Callable[[StreamSpec], Log]
    ) -> None:
        self._rng = rng
        self._many = many = operator.inputs
        lateness = [rng.choice([0, 3, 8, 30]) for _ in range(many)]
        specs = [operator.spec_of_input(i, partitions) for i in range(many)]
        self.logs = tuple(create(replace(s, id=f"input{i}", lateness=lateness[i])) for i, s in enumerate(specs))
        """As they were created."""
        keys, big = rng.choice([3, 8, 40]), rng.choice([0.0, 0.2])
        skew = rng.choice([1, 1, 4])
        self._tuples = [Tuples(rng, keys, big, late, rng.choice([0.2, 0.4, 0.8]), skew) for late in lateness]
        self._weights = [rng.choice([1.0, 1.0, 0.1]) for _ in range(many)]
        self._rows: list[list[list[Row]]] = [[[] for _ in range(partitions)] for _ in range(many)]
        """Of each input and partition, by offset."""
        self._ended: set[int] = set()
        self.commits_left = rng.randint(3, 8) + many - 1
        self._evolves = many > 1 and rng.random() < 0.2

    def feed(self, opened: Callable[[int], Log]) -> None:
        """One more commit of one of the inputs, which are opened by a process to which nothing happens."""
        rng = self._rng
        open_ones = [i for i in range(self._many) if i not in self._ended]
        if not self.commits_left or not open_ones:
            self.commits_left = 0
            return
        self.commits_left -= 1
        number = rng.choices(open_ones, [self._weights[i] for i in open_ones])[0]
        log, tuples = opened(number), self._tuples[number]
        batch = tuples.batch(rng.choice([0, 5, 40, 80 if self._many == 1 else 40]), log.spec.partitions)
        for p, rows in batch.items():
            for row in rows:
                row["tags"] = None if row["v"] is None else [row["v"]] * (row["t"] % 3)
                row["note"] = f"note {row['v']}"
            self._rows[number][p] += rows
        if self._evolves and rng.random() < 0.3:
            add_columns(log, log.spec.with_added([NOTE]))
        append_rows(log, batch)
        if rng.random() < 0.3:
            quiet.pass_time(log, tuples.heartbeat(), "input")
        if self._many > 1 and rng.random() < 0.05:
            self._end(number, log)
        if not self.commits_left:
            self._last_words([opened(i) for i in range(self._many)])

    def _last_words(self, logs: Sequence[Log]) -> None:
        """Those that are behind catch up, or not; what is finished is finished, or not."""
        rng = self._rng
        now = max(tuples.now for tuples in self._tuples)
        for number, log in enumerate(logs):
            if number not in self._ended and self._many > 1 and rng.random() < 0.8:
                quiet.pass_time(log, self._tuples[number].heartbeat(now), "input")
        for number, log in enumerate(logs) if rng.random() < 0.7 else ():
            if rng.random() < 0.8:
                self._end(number, log)

    def _end(self, number: int, log: Log) -> None:
        if number not in self._ended:
            quiet.finish(log, "input")
            self._ended.add(number)

    def boundary(self, logs: Sequence[Log], partition: int) -> int | None:
        """The time before which all tuples of all inputs are there; None if one of them does not know."""
        known = [log.state.boundaries[partition] for log in logs]
        return None if None in known else min(boundary for boundary in known if boundary is not None)

    def serialised(self, partition: int, boundary: int | None) -> Placed:
        """The tuples that an operator has to take in up to this time, in their order."""
        return serialised([own[partition] for own in self._rows], boundary)
