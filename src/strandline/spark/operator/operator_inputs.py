"""The inputs of an operator as its driver sees them: what is new, what waits, what they have to keep."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from strandline.errors import NoAccessError, StorageError, StrandlineError
from strandline.inputs.input_marks import needs
from strandline.inputs.input_stream import blocks_between
from strandline.log.index import index
from strandline.log.operator_state.beginning import firsts_of
from strandline.log.operator_state.input_lag import input_lags, taken_in_until, waits_for, waits_for_results
from strandline.log.operator_state.standing import Standing
from strandline.log.stream.block import Block
from strandline.log.stream.listing import listed
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState
from strandline.log.stream.spec import KEY
from strandline.log.upkeep import consumer_registry
from strandline.running.batch import next_batch
from strandline.running.element import Element
from strandline.running.step import Step
from strandline.spark.session.place import Place
from strandline.units import END_OF_TIME
from strandline.user_warning import warn


class OperatorInputs:
    """One stream, or several that are serialised."""

    def __init__(self, places: Sequence[Place], logs: Sequence[Log], *, bears_failures: bool = False) -> None:
        self.places = tuple(places)
        self.logs = tuple(logs)
        self._bears_failures = bears_failures
        """Whether one that cannot be read is as it was: somebody else asks who is missing."""
        self._looked_seq = -1
        self._warned: set[str] = set()
        self._seen = self._ends()

        self.absent: frozenset[int] = frozenset()
        """The numbers of those of which no replica can be read that has what was taken in, as of the last look."""

    @property
    def names(self) -> list[str]:
        """What people call them."""
        return [lag.name for lag in input_lags(self.logs, ())]

    def choose(self) -> None:
        """Where there is a choice, decides what is read from now on: of a stream there is none."""

    def bears(self, problem: StrandlineError) -> bool:
        """Whether something else can be read from now on than that in which the problem of a step lies."""
        return False

    def refresh(self) -> None:
        """Takes in what was published since."""
        self._refresh(range(len(self.logs)))

    def _refresh(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            with contextlib.suppress(*((StorageError,) if self._bears_failures else ())):
                self.logs[number].refresh()

    def have_grown(self) -> bool:
        """Takes in what was published since; whether there are tuples that were not there when all `are_seen`."""
        self.refresh()
        return self._ends() != self._seen

    def are_seen(self) -> None:
        """Spark knows of all tuples that are known now."""
        self._seen = self._ends()

    def _ends(self) -> list[Sequence[int]]:
        return [log.state.ends[: log.spec.partitions] for log in self.logs]

    def commits(self, standings: Sequence[Standing]) -> int | list[int]:
        """The last commit that was taken in; of several inputs, the last one of each that was known then."""
        marks = standings[0].marks
        return standings[0].commit if marks is None else [mark.seen for mark in marks.inputs]

    def waiting(self, standings: Sequence[Standing]) -> int:
        """How many tuples are not taken in; of several inputs, at most how many."""
        found = 0
        for p, s in enumerate(standings):
            ends = sum(log.state.ends[p] for log in self.logs)
            if s.marks is None:
                found += ends - s.input
            else:  # what is taken in is counted, and blocks of which nothing is left are known
                found += max(0, min(ends - s.input, ends - sum(mark.first for mark in s.marks.inputs)))
        return found

    def lags(self, standings: Sequence[Standing]) -> dict[str, Any]:
        """Of several inputs: how far each has come, and which of them the others wait for, if one is; of one that has
        only tentative tuples, that it is waited for."""
        is_timestamp = self.logs[0].spec.time_is_timestamp
        found = input_lags(self.logs, standings)
        if len(found) == 1:
            waits = waits_for_results(found[0], is_timestamp=is_timestamp)
            return {"waits_for": waits} if waits else {}
        waits = waits_for(found, taken_in_until(standings), is_timestamp=is_timestamp)
        shown = [{n: v for n, v in asdict(lag).items() if n != "problem"} for lag in found]
        return {"inputs": shown, **({"waits_for": waits} if waits else {})}

    def needs(self, number: int, output: Log) -> list[int]:
        """What one of the inputs has to keep for the operator of an output, per partition."""
        log, standings = self.logs[number], output.state.standings
        starts = log.state.starts[: log.spec.partitions]
        if not standings:
            return list(firsts_of(output.spec.begins, starts, number))
        marks = [s.marks for s in standings if s.marks is not None]
        oldest = needs(marks, number) if marks else [s.oldest for s in standings]
        return [max(first, start) for first, start in zip(oldest, starts, strict=True)]

    def register(self, output: Log, place: Place, label: str) -> None:
        """Keeps inputs from being truncated past what a recovery would need; lets go of them after the last result.

        An input to which nothing may be written is taken in all the same; a warning says, once, what that means. Where
        failures are borne, nothing is written where there is no input.
        """
        name = consumer_registry.operator_name(output.spec.id)
        for number, log in enumerate(self.logs):
            try:
                self._register(number, name, output, place.url, label)
            except NoAccessError as refused:
                self._warn(log, place, refused)
            except StorageError:
                if not self._bears_failures:
                    raise

    def _register(self, number: int, name: str, output: Log, writes: str, label: str) -> None:
        """Says it of one of the inputs."""
        log = self.logs[number]
        if self._bears_failures and not log.storage.exists(KEY):
            return
        if output.state.finished:
            consumer_registry.unregister(log, name)
        else:
            needed = self.needs(number, output)
            consumer_registry.register(log, name, needed, writes=writes, label=label)

    def _warn(self, log: Log, place: Place, refused: NoAccessError) -> None:
        url = log.storage.url
        if url not in self._warned:
            self._warned.add(url)
            warn(
                f"nothing keeps the input {url} from being truncated before the operator of {place.url} has done with "
                f"it: it may not be written to ({refused.what})",
            )

    def time_has_passed(self, element: Element, ours: LogState) -> bool:
        """Whether there is something to take in of which Spark, which counts tuples, knows nothing.

        Of one stream: nothing but a later boundary, or its end. Of a serialised input, also tuples that have waited for
        it.
        Goes by what was last taken in of the inputs, see `refresh`.
        """
        if element.is_serialised:
            return next_batch(element, self.logs, ours) is not None
        (log,) = self.logs
        now, partitions = log.state, log.spec.partitions
        taken = tuple(s.input for s in ours.standings) or firsts_of(element.begins, now.starts[:partitions])
        if now.ends[:partitions] != taken:
            return False
        if now.finished != ours.finished:
            return True
        if element.definition.has_times:
            return now.boundaries != ours.boundaries
        # Windows that go by count do not care; but commits that nobody has taken in are looked through later.
        looked = max([self._looked_seq, *(s.commit for s in ours.standings)])
        if now.seq - looked < index.FOLD_EVERY:
            return False
        self._looked_seq = now.seq
        return True

    def blocks(self, step: Step) -> list[list[Block]]:
        """The blocks of each input that a step takes in."""
        if step.marks is None:
            first, end = step.before.input if step.before else step.input_start, step.input_end
            assert end is not None
            return [listed(self.logs[0], step.partition, first, end) if first < end else []]
        if step.until is None:
            return [[] for _ in self.logs]
        since, until = step.marks.stands.bound, None if step.until == END_OF_TIME else step.until
        pairs = zip(self.logs, step.marks.inputs, strict=True)
        return [blocks_between(log, step.partition, mark.first, since, until) for log, mark in pairs]
