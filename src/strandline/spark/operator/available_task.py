"""Both lineages of a partition as one Spark task: the stable step first, then the fork's, whose tuples stand behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from strandline.clock import SYSTEM_CLOCK
from strandline.errors import StorageError, StrandlineError
from strandline.failpoint import failpoint
from strandline.inputs.replicas.replica_set import MISSING
from strandline.log.stream import log_errors
from strandline.log.stream.block import Block
from strandline.log.stream.log import Log
from strandline.log.stream.partial_log import PartialLog
from strandline.running import tick as ticks
from strandline.running.fork import Caches, ForkStep
from strandline.running.state.state_cache import StateCache
from strandline.running.state.state_folders import default_folder, fork_folder
from strandline.running.step import Logs
from strandline.running.tick import Work, Worked
from strandline.spark.operator.affinity import spark_host
from strandline.spark.operator.kernel_shipping import unpacked
from strandline.spark.operator.lost_inputs import opened
from strandline.spark.operator.operator_task import (
    OperatorWork,
    attempt_number,
    compiled,
    measured,
    spare_the_collector,
    spec_of,
)
from strandline.spark.session.place import Place

_OPENED_MAX = 16
_OPENED: dict[tuple[str, str, float | None], Log] = {}
"""Inputs that forks in this process have read: they are opened once, and refreshed from then on."""


@dataclass(frozen=True, slots=True)
class AvailableTask:
    """What one partition does in a tick."""

    work: Work
    input_blocks: Sequence[Sequence[Block]]
    """Of each input, what the stable step takes in."""


@dataclass(frozen=True, slots=True)
class Unread:
    """What a task has to say that could not read or write something: no end of the query, if that is an input."""

    problem: StrandlineError


@dataclass(frozen=True, slots=True)
class AvailableWork:
    """What all tasks of an operator with a bound have in common; called with a task, it does the task."""

    common: OperatorWork

    def __call__(self, task: AvailableTask) -> Worked | Unread:
        """What Spark calls on some machine; `Unread` if a storage, or a replica, fails, so that Spark does not try
        again."""
        failpoint("task-begins")
        unpacked(self.common.kernels)
        try:
            return self._worked(_named(task.work), task.input_blocks)
        except MISSING as problem:
            if not isinstance(problem, StorageError) and not self.common.element.replicas:
                raise
            return Unread(problem)

    def _worked(self, work: Work, input_blocks: Sequence[Sequence[Block]]) -> Worked:
        common = self.common
        output = PartialLog(common.output.storage(), spec_of(common.output_spec))
        logs = Logs(output, self._shares(input_blocks), self._whole)
        fork_logs = None if work.fork is None else self._fork_logs(output, work.fork)
        folders = (folder(output.spec.id, work.partition) for folder in (default_folder, fork_folder))
        caches = Caches(*map(StateCache, folders))
        try:
            worked = ticks.run(work, compiled(common.element), logs, caches, SYSTEM_CLOCK, fork_logs)
        finally:
            for cache in caches:
                cache.close()
            spare_the_collector(common.element)
        stable = worked.stable
        return replace(worked, stable=stable and replace(stable, standing=measured(stable.standing)))

    def _whole(self, unreachable: frozenset[int] = frozenset()) -> tuple[Log, tuple[Log, ...]]:
        """Output and inputs as recovery can search them; raises if there is no replica to read of one of them."""
        for number in self.common.element.replicas & unreachable:
            raise log_errors.gone(self.common.inputs[number].url)  # whatever is there lacks what was taken in
        inputs = tuple(opened(place) for place in self.common.inputs)
        self.common.require_same_replicas(inputs)
        return self.common.output.open(), inputs

    def _fork_logs(self, output: Log, fork: ForkStep) -> Logs:
        return Logs(output, self._there(fork), lambda: self._whole(fork.unreachable))

    def _shares(self, input_blocks: Sequence[Sequence[Block]]) -> tuple[Log, ...]:
        """The inputs with nothing but the blocks of a stable step."""
        known = zip(self.common.inputs, self.common.input_specs, input_blocks, strict=True)
        return tuple(PartialLog(place.storage(), spec_of(spec), blocks) for place, spec, blocks in known)

    def _there(self, fork: ForkStep) -> tuple[Log, ...]:
        """The whole inputs, for a fork that may have to be made anew from far behind; those that can be read."""
        known = zip(self.common.inputs, self.common.input_specs, fork.seen, strict=True)
        return tuple(
            PartialLog(place.storage(), spec_of(spec))
            if number in fork.unreachable
            else _refreshed(place, spec_of(spec).id, seen)
            for number, (place, spec, seen) in enumerate(known)
        )


def _named(work: Work) -> Work:
    """The same; attempts of a task have names of their own, or a second one would find the files of the first."""
    number, stable, fork = attempt_number(), work.stable, work.fork
    if stable is not None:
        stable = replace(stable, attempt=f"{stable.attempt}-{number}", host=spark_host())
    if fork is not None:
        fork = replace(fork, attempt=f"{fork.attempt}-{number}")
    return replace(work, stable=stable, fork=fork)


def _refreshed(place: Place, stream: str, seen: int) -> Log:
    """The stream with all that is published; raises if it cannot be read, or lacks what the driver has seen."""
    known = place.url, stream, place.limit_s
    log = _OPENED.pop(known, None)
    try:
        if log is not None:
            log.refresh()
    except StrandlineError:
        log = None  # perhaps it was not looked at for so long that commits are gone
    log = log or opened(place)
    if log.spec.id != stream or log.state.seq < seen:
        raise log_errors.gone(place.url)
    while len(_OPENED) >= _OPENED_MAX:
        _OPENED.pop(next(iter(_OPENED)))
    _OPENED[known] = log
    return log
