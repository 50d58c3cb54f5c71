"""Several replicas as a reader has them: opened, checked, looked at, and opened again when they are back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from strandline.clock import SYSTEM_CLOCK, Clock
from strandline.errors import (
    ConflictError,
    CorruptionError,
    OptionError,
    StorageError,
    StrandlineError,
    StreamError,
    StreamMismatchError,
    StreamNotFoundError,
)
from strandline.inputs.replicas.replica_check import (
    require_replica,
    require_replicable,
    require_same_operator,
    require_still_there,
)
from strandline.inputs.replicas.replica_choice import ReplicaSight
from strandline.inputs.replicas.replica_watch import Reach, ReplicaWatch, results_of
from strandline.log.stream.log import Log
from strandline.log.stream.spec import StreamSpec

PATIENCE_US = 3_000_000
MISSING = (StorageError, CorruptionError, StreamError, ConflictError)
"""Problems of one replica that do not stop a reader: another has the same results."""


class ReplicaSet:
    """The replicas of an operator's stream, by their numbers."""

    def __init__(
        self, openers: Sequence[Callable[[], Log]], *, clock: Clock = SYSTEM_CLOCK, patience_us: int = PATIENCE_US
    ) -> None:
        """Opens what is there; raises if it is no set of replicas, or if nothing is there at all.

        A replica that cannot be reached, or has not begun, is looked for again and again. One that others are ahead of
        for longer than `patience_us` is not read if there is another.
        """
        if len(openers) < 2:
            raise OptionError(
                f"{len(openers)} stream{'' if len(openers) == 1 else 's'} given as replicas",
                todo="give two or more: the same operator, started over the same inputs with other outputs",
            )
        self._openers = tuple(openers)
        self.clock = clock
        self.logs: list[Log | None] = [None] * len(openers)
        self.problems: list[StrandlineError | None] = [None] * len(openers)
        """Why replicas are not read, where they are not."""
        self._refused: set[str] = set()
        """Ids of streams that have turned out not to be replicas of the others."""
        self._asked_us = [-patience_us] * len(openers)  # never: a steady clock may begin with 0
        """When replicas that stand still were last asked whether they are still themselves."""
        self._watch = ReplicaWatch(patience_us)
        self._spec: StreamSpec | None = None
        for number in range(len(self._openers)):
            try:
                self.logs[number] = self._opened(number)
            except (StorageError, CorruptionError, StreamNotFoundError) as problem:
                self.problems[number] = problem
        if not any(self.logs):
            raise self.none_readable()

    def _opened(self, number: int) -> Log:
        log = self._openers[number]()
        if log.spec.id in self._refused:
            raise self.problems[number] or StreamMismatchError(
                "this stream is no replica of the others", stream=log.storage.url
            )
        try:
            self._require_replica(log)
        except StreamMismatchError:
            self._refused.add(log.spec.id)
            raise
        return log

    def _require_replica(self, log: Log) -> None:
        """Raises unless it is one of the others, of which one is asked; makes it the measure if it is the first."""
        self._spec = self._spec or log.spec
        require_same_operator(log.spec, self._spec, log.storage.url)
        require_replicable(log)
        others = (other for other in self.logs if other is not None)
        if (other := next(others, None)) is not None:
            require_replica(log, other)

    @property
    def spec(self) -> StreamSpec:
        """The spec that all replicas share: that of the first one that was opened."""
        assert self._spec is not None
        return self._spec

    def none_readable(self) -> StrandlineError:
        """Returns the error of a reader that finds no replica."""
        reasons = [f"replica {i + 1}: {p.what} ({p.where})" for i, p in enumerate(self.problems) if p is not None]
        return StorageError(
            f"none of the {len(self._openers)} replicas can be read",
            where="; ".join(reasons) or "none has what was read before",
            todo="make one of them readable again: readers then go on where they were",
        )

    def look(self, without: Collection[int] = ()) -> list[ReplicaSight | None]:
        """Takes in what was published since; returns what is seen of each replica, None if it cannot be read.

        Those that the look is `without` are not asked.
        """
        for number, log in enumerate(self.logs):
            if number in without:
                continue
            try:
                if log is None:
                    self.logs[number] = self._opened(number)
                else:
                    self._require_unchanged(number, log, has_moved=log.refresh())
                self.problems[number] = None
            except MISSING as problem:
                self.lose(number, problem)
        now_us = self.clock.steady_us()
        reaches = [None if log is None else Reach.of(log.state) for log in self.logs]
        self._watch = self._watch.looked(reaches, now_us)
        return [
            None if log is None or number in without else self._sight(number, log, now_us)
            for number, log in enumerate(self.logs)
        ]

    def _sight(self, number: int, log: Log, now_us: int) -> ReplicaSight:
        state = log.state.outage.state if log.state.outage else "STABLE"
        return ReplicaSight(results_of(log.state), state, self._watch.is_behind(number, now_us))

    def _require_unchanged(self, number: int, log: Log, *, has_moved: bool) -> None:
        """Raises unless it is what it was. Should it have begun anew, with fewer commits, only stream.json says so."""
        now_us = self.clock.steady_us()
        if has_moved or now_us - self._asked_us[number] >= self._watch.patience_us:
            if not has_moved:
                require_still_there(log)
            self._asked_us[number] = now_us
        require_replicable(log)
        if log.spec.operator is not self.spec.operator:
            require_same_operator(log.spec, self.spec, log.storage.url)

    def at_each(self, act: Callable[[Log], None]) -> tuple[int, list[StrandlineError]]:
        """Acts on every replica that can be reached; returns how many these were, and the problems of the others."""
        reached, problems = 0, list[StrandlineError]()
        for log in self.logs:
            try:
                if log is not None:
                    require_still_there(log)
                    act(log)
                    reached += 1
            except MISSING as problem:
                problems.append(problem)
        return reached, problems

    def lose(self, number: int, problem: StrandlineError) -> None:
        """Notes that a replica cannot be read; it is opened anew with the next look."""
        log = self.logs[number]
        if isinstance(problem, StreamMismatchError) and log is not None:
            self._refused.add(log.spec.id)
        self.logs[number], self.problems[number] = None, problem


class ReplicaUser:
    """Reads one replica of a set at a time, and changes to another where that one fails, or a better one is there."""

    def __init__(self, replicas: ReplicaSet) -> None:
        self._set = replicas
        self.current: int | None = None
        """The number of the replica that was read last; None if there was none to be read."""
        self.log: Log | None = None
        """Its stream."""

    def _attempts(
        self, best: Callable[[Sequence[ReplicaSight | None]], int | None], without: Collection[int] = ()
    ) -> Iterator[Attempt]:
        """Yields the best replica of a look, and the best of the next look as long as attempts fail.

        `best` picks its number, or None: then there is no further attempt. Those that the looks are `without` are not
        asked, nor are those that have failed.
        """
        lost = set(without)
        while True:
            number = best(self._set.look(lost))
            log = None if number is None else self._set.logs[number]
            if number is None or log is None:
                self.current = self.log = None
                return
            yield Attempt(self, number, log)
            lost.add(number)

    def _lose(self, number: int, problem: StrandlineError) -> None:
        """Leaves a replica that cannot be read."""
        self._set.lose(number, problem)
        self.current = self.log = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """A use of one replica. In a `with` block, a problem that another replica need not have ends the block alone."""

    user: ReplicaUser
    number: int
    log: Log

    def __enter__(self) -> tuple[int, Log]:
        return self.number, self.log

    def __exit__(self, _kind: object, problem: BaseException | None, _trace: object) -> bool:
        if not isinstance(problem, MISSING):
            return False
        self.user._lose(self.number, problem)
        return True
