"""The inputs of an operator as its driver sees them: their places, their new tuples, the tuples they have to keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from strandline.clock import SYSTEM_CLOCK
from strandline.errors import NoAccessError, StorageError, StrandlineError, StreamMismatchError
from strandline.inputs.input import Input
from strandline.inputs.left_alone import LeftAlone
from strandline.inputs.replicas.replica_input import Replicated
from strandline.log.operator_state.input_lag import input_lags, taken_in_until, waits_for, waits_for_results
from strandline.log.operator_state.standing import Standing, marks_in
from strandline.log.stream.log import Log
from strandline.log.stream.partition_view import PartitionView
from strandline.log.stream.spec import KEY
from strandline.log.upkeep import consumer_registry
from strandline.spark.session.place import Place
from strandline.user_warning import warn


class OperatorInputs:
    """The input of an operator, and the places of its streams."""

    def __init__(
        self,
        places: Sequence[Place],
        input_: Input,
        output: Log | None = None,
        replicas: Mapping[int, tuple[Place, ...]] | None = None,
        *,
        bears_failures: bool = False,
        unopened: Iterable[int] = (),
    ) -> None:
        """Takes the places of replicas in `replicas`, by numbers of inputs.

        The standings of `output` decide which replicas can be read. With `bears_failures`, a stream that cannot be
        written is no reason to fail: the operator has a bound. It goes on without the inputs `unopened`, which were not
        there at its start.
        """
        self.places = tuple(places)
        """The places of the streams; of replicas, the places of those that are read now."""
        self.input = input_
        self._output = output
        self._replicas = dict(replicas or {})
        self._bears_failures = bears_failures
        self._warned: set[str] = set()
        self._unopened = set(unopened)
        self._alone = LeftAlone(SYSTEM_CLOCK, self._unopened)
        """The inputs that cannot be read, as far as the driver knows: each is retried after a while."""

    @property
    def logs(self) -> tuple[Log, ...]:
        """The streams; of replicas, those that are read now."""
        return self.input.logs

    @property
    def _replicated(self) -> Replicated | None:
        return self.input if isinstance(self.input, Replicated) else None

    @property
    def absent(self) -> frozenset[int]:
        """The numbers of inputs without a readable replica that has the tuples taken in, as of the last look."""
        return self._replicated.absent if self._replicated else frozenset()

    @property
    def names(self) -> list[str]:
        """The names of the streams, for users."""
        return [lag.name for lag in input_lags(self.logs, ())]

    @property
    def tentative(self) -> list[str]:
        """The names of the inputs that may have tentative tuples: their own operators have a bound, or had one."""
        return [lag.name for lag, log in zip(input_lags(self.logs, ()), self.logs, strict=True) if log.state.outage]

    def choose(self) -> None:
        """Decides which replicas the operator reads from now on, if there are any."""
        if self._replicated is None or self._output is None:
            return
        self._replicated.choose(self._output.state.standings)
        places = list(self.places)
        for number, known in self._replicas.items():
            if (current := self._replicated.members[number].current) is not None:
                places[number] = known[current]
        self.places = tuple(places)

    def require_same(self) -> None:
        """Raises if an input is not the stream that was taken in. With a bound, one that cannot be read is missing."""
        assert self._output is not None
        standings, numbers = self._output.state.standings, frozenset(range(len(self.logs)))
        if not self._bears_failures:
            self.input.require_same(standings)
            return
        lost = set(self._unopened)
        for number in numbers:
            try:
                self.input.require_same(standings, numbers - {number} | lost)
            except StorageError:
                lost.add(number)
        self._unopened = lost - self._replicas.keys()  # each look chooses among replicas
        self._alone = LeftAlone(SYSTEM_CLOCK, self._unopened)

    def bear(self, problem: StrandlineError) -> bool:
        """Notes a stream that cannot be read. Returns True for a replica, as there may be another, False for an input.

        The input is then missing: the driver leaves it alone for a while, then retries it. Raises the problem if it
        concerns neither, but for example the output, or if the operator has no bound.
        """
        if self._replicated is not None and self._replicated.bears(problem):
            return True
        if not self._bears_failures or not isinstance(problem, StorageError):
            raise problem
        numbers = [n for n, place in enumerate(self.places) if problem.lies_in(place.url)]
        if not numbers:
            raise problem
        for number in numbers:  # more than one if they are partitions of one stream
            self._alone.add(number)
        return False

    def unreadable(self) -> frozenset[int]:
        """Chooses replicas, and retries the inputs that were left alone for long enough; returns what is missing."""
        self.choose()
        for number in self._alone.over():
            if self._is_back(number):
                self._alone.drop(number)
            else:
                self._alone.add(number)
        return self._alone.all() | self.absent

    def _is_back(self, number: int) -> bool:
        log = self.logs[number]
        try:
            if number in self._unopened:
                self._take_back(number, self.places[number].reopened())
                self._unopened.discard(number)
            elif not log.storage.exists(KEY):
                return False
        except StorageError:
            return False
        return True

    def _take_back(self, number: int, found: Log) -> None:
        """Reads an input that was not there at the start; raises if it is not the one that was taken in."""
        log = self.logs[number]
        if found.spec.id != log.spec.id:
            raise StreamMismatchError(
                "another stream has taken the place of the operator's input",
                where=found.storage.url,
                todo="move the input back to its path; to read another input, start the operator with a new output "
                "stream",
            )
        log.reload()
        if self._output is not None:
            self.input.require_same(self._output.state.standings, frozenset(range(len(self.logs))) - {number})

    def refresh(self) -> None:
        """Refreshes the logs of the inputs, and chooses replicas. With a bound, a tick does that (see `Operation`)."""
        self.choose()
        for number, log in enumerate(self.logs):
            if number not in self._replicas:
                log.refresh()

    def lags(self, standings: Sequence[Standing]) -> dict[str, Any]:
        """Returns how far each of several inputs has come, and for which of them the others wait.

        For a single stream with only tentative tuples, returns that the operator waits for it. For replicas of which
        none can be read, returns that.
        """
        is_timestamp = self.logs[0].spec.time_is_timestamp
        here = self._replicated.here(standings) if self._replicated else standings
        found = input_lags(self.logs, here)
        if len(found) == 1:
            waits, shown = waits_for_results(found[0], is_timestamp=is_timestamp), {}
        else:
            waits = waits_for(found, taken_in_until(standings), is_timestamp=is_timestamp)
            shown = {"inputs": [{n: v for n, v in asdict(lag).items() if n != "problem"} for lag in found]}
        if self._replicated and self.absent:
            waits = self._replicated.waits_for
        return {**shown, **({"waits_for": waits} if waits else {})}

    def register(self, output: Log, place: Place, label: str) -> None:
        """Protects the tuples that a recovery would need from truncation; releases the inputs after the last result.

        An operator also reads an input to which it must not write; a warning says, once, what that means. With
        `bears_failures`, this writes nothing at a place without an input.
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
        """Registers with one of the inputs; for replicas, with each one that can be written."""
        log, standings, is_finished = self.logs[number], output.state.standings, output.state.finished
        if self._replicated and number in self._replicated.members:
            member = self._replicated.members[number]
            if is_finished:
                member.unregister(name)
            else:
                member.register(name, marks_in(standings), number, writes=writes, label=label)
        elif self._bears_failures and not log.storage.exists(KEY):
            return
        elif isinstance(log, PartitionView):
            if number == 0:  # for all partitions of the stream
                self._register_whole(log.whole, name, output, writes, label)
        elif is_finished:
            consumer_registry.unregister(log, name)
        else:
            needed = self.input.needs(number, standings, output.spec.begins)
            consumer_registry.register(log, name, needed, writes=writes, label=label)

    def _register_whole(self, log: Log, name: str, output: Log, writes: str, label: str) -> None:
        """Registers with the stream whose partitions are the inputs: each keeps what any partition of the output
        needs."""
        if output.state.finished:
            return consumer_registry.unregister(log, name)
        standings, begins = output.state.standings, output.spec.begins
        needed = [min(self.input.needs(number, standings, begins)) for number in range(len(self.logs))]
        consumer_registry.register(log, name, needed, writes=writes, label=label)

    def _warn(self, log: Log, place: Place, refused: NoAccessError) -> None:
        url = log.storage.url
        if url not in self._warned:
            self._warned.add(url)
            warn(
                f"nothing keeps the input {url} from being truncated before the operator of {place.url} has done with "
                f"it: it may not be written to ({refused.what})",
            )
