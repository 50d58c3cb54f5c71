"""The work of a partition as a Spark task: a step, and behind it a step of the fork, if there is one.

A task carries everything that it needs; it opens no stream that it does not read.
"""

from __future__ import annotations

import copyreg
import gc
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.clock import SYSTEM_CLOCK, process_age_s, process_cpu_s
from strandline.errors import NotAStreamError, StorageError, StrandlineError
from strandline.failpoint import failpoint
from strandline.inputs.input import InputSlice
from strandline.inputs.replicas.replica_set import MISSING
from strandline.log.operator_state.input_mark import Position
from strandline.log.operator_state.standing import Standing
from strandline.log.stream import log_errors
from strandline.log.stream.block import Block
from strandline.log.stream.log import Log
from strandline.log.stream.partial_log import PartialLog
from strandline.log.stream.spec import StreamSpec
from strandline.operators.kernels.kernel_bundle import KernelBundle
from strandline.operators.kernels.kernel_cache import TALLY
from strandline.running import step as steps
from strandline.running import tick as ticks
from strandline.running.element import Element
from strandline.running.fork import Caches, ForkStep
from strandline.running.state.live_operators import LIVE
from strandline.running.state.state_cache import StateCache
from strandline.running.state.state_folders import default_folder, fork_folder
from strandline.running.step import Done, Logs, Step
from strandline.running.tick import Work, Worked
from strandline.spark.operator import holder
from strandline.spark.operator.affinity import spark_host
from strandline.spark.operator.kernel_shipping import unpacked
from strandline.spark.session.place import PartitionPlace, Place

if TYPE_CHECKING:
    from pyspark.core.broadcast import Broadcast

_OPENED_MAX = 64
_OPENED: dict[tuple[str, str, float | None, int | None], Log] = {}
"""The inputs that forks in this process have read: the process opens each once, and refreshes it from then on."""


@dataclass(frozen=True, slots=True)
class OperatorTask:
    """The work of one partition in a tick, independent of the other partitions."""

    work: Work
    input_blocks: Sequence[Sequence[Block]]
    """The blocks of each input that the step takes in."""

    @property
    def tuples(self) -> int:
        """The number of tuples that the step takes in; for several inputs, the most that it can take in."""
        if self.work.stable is None:
            return 0
        taken = self.work.stable.slice
        if taken.end is None:
            return sum(block.results for blocks in self.input_blocks for block in blocks)
        return taken.end - taken.begin.ordinal


@dataclass(frozen=True, slots=True)
class Unread:
    """The outcome of a task that could not read or write a stream, which need not end the query."""

    problem: StrandlineError


@dataclass(frozen=True, slots=True)
class OperatorWork:
    """The part that all tasks of an operator have in common; a call with a task does it. It travels once per job."""

    element: Element
    inputs: tuple[Place, ...]
    input_specs: tuple[bytes, ...]
    output: Place
    output_spec: bytes
    kernels: Broadcast[KernelBundle] | None = None
    """The kernels that the driver compiled, if this may be another machine."""
    has_bound: bool = False

    def __call__(self, task: OperatorTask) -> Worked | Unread:
        """Does the task on some machine. The same task may run twice, and one of the two may wake up much later.

        Returns `Unread` if a replica cannot be read, as there may be another, or an input of an operator with a bound,
        which is then missing: so Spark does not try again.
        """
        failpoint("task-begins")
        task = replace(task, work=_named(task.work))
        try:
            stable = task.work.stable
            if stable is not None and self.element.definition.lives_in_process and not self.has_bound:
                return self._where_the_object_is(task, stable)
            return self.done_here(task)
        except MISSING as problem:
            if not self.element.replicas and not (self.has_bound and isinstance(problem, StorageError)):
                raise
            return Unread(problem)

    def _where_the_object_is(self, task: OperatorTask, step: Step) -> Worked:
        """Does the task in the worker that keeps the object, or else in this one, which keeps it from then on."""
        from pyspark import cloudpickle

        dumps: Callable[[Any], bytes] = cloudpickle.dumps

        folder = default_folder(spec_of(self.output_spec).id, step.partition)
        before = step.before.attempt if step.before is not None else ""
        if before and not LIVE.holds(str(folder), before):
            try:
                found: Worked | None = holder.asked(folder, before, lambda: dumps(partial(self._keeping, task)))
                if found is not None:
                    return found
            except holder.HolderLostError:
                step = replace(step, attempt=f"{step.attempt}-again")
                task = replace(task, work=replace(task.work, stable=step))
        return self._keeping(task)

    def _keeping(self, task: OperatorTask) -> Worked:
        """Does the task in this process, which keeps the object from then on, and tells the other workers so."""
        done = self.done_here(task)
        assert done.stable is not None
        holder.announce(default_folder(spec_of(self.output_spec).id, task.work.partition), done.stable.standing.attempt)
        return done

    def done_here(self, task: OperatorTask) -> Worked:
        """Does the task in this process; its steps have the names of the attempt."""
        element = compiled(self.element, self.kernels)
        work = task.work
        output = PartialLog(self.output.storage(), spec_of(self.output_spec))
        known = zip(self.inputs, self.input_specs, task.input_blocks, strict=True)
        inputs = tuple(place.unread(spec_of(spec), blocks) for place, spec, blocks in known)
        logs = Logs(output, inputs, self._whole)
        fork_logs = None if work.fork is None else self._fork_logs(output, work.fork)
        cache = StateCache(default_folder(output.spec.id, work.partition))
        try:
            if fork_logs is not None:
                caches = Caches(cache, StateCache(fork_folder(output.spec.id, work.partition)))
                worked = ticks.run(work, element, logs, caches, SYSTEM_CLOCK, fork_logs)
            else:  # no second state, and no folder for it
                assert work.stable is not None
                worked = Worked(steps.run(work.stable, element, logs, cache, SYSTEM_CLOCK), None)
        finally:
            cache.close()
            spare_the_collector(self.element)
        if (done := worked.stable) is None:
            return worked
        is_first, seconds = not _started_s.cache_info().currsize, _started_s()
        if seconds is None or (done.standing.start_s and not is_first):
            return worked
        return replace(worked, stable=replace(done, standing=done.standing.started(seconds)))

    def _whole(self, unreachable: frozenset[int] = frozenset()) -> tuple[Log, tuple[Log, ...]]:
        """Returns output and inputs as recovery can search them.

        Raises if an input has no replica that can be read, or its replica is another than the driver has read.
        """
        for number in self.element.replicas & unreachable:
            raise log_errors.gone(self.inputs[number].url)  # a stream at that place lacks the tuples taken in
        inputs = tuple(place.reopened() if self.has_bound else place.open() for place in self.inputs)
        self._require_same_replicas(inputs)
        return self.output.open(), inputs

    def _fork_logs(self, output: Log, fork: ForkStep) -> Logs:
        """Returns the logs for a fork, with whole inputs: the step may have to make the fork anew from far behind."""
        known = zip(self.inputs, self.input_specs, fork.seen, strict=True)
        inputs = tuple(
            place.unread(spec_of(spec)) if number in fork.unreachable else refreshed(place, spec_of(spec).id, seen)
            for number, (place, spec, seen) in enumerate(known)
        )
        return Logs(output, inputs, lambda: self._whole(fork.unreachable))

    def _require_same_replicas(self, inputs: Sequence[Log]) -> None:
        """Raises `NotAStreamError` if an input that is a replica is another than the driver has read."""
        for number in self.element.replicas:
            if inputs[number].spec.id != spec_of(self.input_specs[number]).id:
                raise NotAStreamError(
                    "another stream is at this path now",
                    stream=self.inputs[number].url,
                    todo="wait until it has caught up",
                )


def _named(work: Work) -> Work:
    """Returns the work with names for this attempt: a second one must not find the files of the first."""
    from pyspark import TaskContext

    context, stable, fork = TaskContext.get(), work.stable, work.fork
    number = 0 if context is None else int(context.taskAttemptId())  # unique among all attempts of Spark's
    if stable is not None:
        stable = replace(stable, attempt=f"{stable.attempt}-{number}", host=spark_host())
    if fork is not None:
        fork = replace(fork, attempt=f"{fork.attempt}-{number}")
    return replace(work, stable=stable, fork=fork)


def _travels_as_its_values(kind: type[Any]) -> None:
    """Pickles a dataclass as its values: a third of the time that `dataclasses` takes for a class with slots."""
    values = attrgetter(*kind.__slots__)
    copyreg.pickle(kind, lambda instance: (kind, values(instance)))


# One object of each of these classes travels for every partition in every batch.
for _kind in (OperatorTask, Work, Worked, Step, InputSlice, Position, Standing, Block, Done):
    _travels_as_its_values(_kind)


if "pyspark.worker" in sys.modules:  # and not in a program that only imports Strandline
    pa.scalar(0)  # Arrow looks for pandas at its first conversion: that is part of the start, too, not of a recovery
_AGE_S = process_age_s()
"""The age of this process when it has imported everything."""
_CPU_S = process_cpu_s()
_YOUNG_S = 30.0
"""The greatest age at which to count it as the start: an older process had other work before."""
_BUSY = 3.0
"""The most processes that share a core while Spark itself starts. Later starts do not have to share like that."""


@lru_cache(maxsize=1)
def _started_s() -> float | None:
    """Returns the time that this process took to start and to load kernels in its first task; None if not known."""
    if _AGE_S is None or _AGE_S > _YOUNG_S or TALLY.compiled:
        return None
    return min(_AGE_S, _BUSY * _CPU_S) + TALLY.seconds


@lru_cache(maxsize=16)
def spare_the_collector(element: Element) -> None:
    """Exempts the objects that an operator's first task has loaded from garbage collection, once per worker.

    Spark's workers collect garbage after every task. With compilers and Arrow in memory that took twice as long as a
    step, on the cores that the next batch was waiting for.
    """
    gc.collect()
    gc.freeze()


@lru_cache(maxsize=16)
def spec_of(data: bytes) -> StreamSpec:
    """Returns the specification of a stream from the bytes in the work."""
    return StreamSpec.from_json(data, "a task's description of its stream")


def refreshed(place: Place, stream: str, seen: int) -> Log:
    """Returns the stream with this id; raises if it cannot be read, or lacks the commit that the driver has seen."""
    known = place.url, stream, place.limit_s, place.number if isinstance(place, PartitionPlace) else None
    log = _OPENED.pop(known, None)
    try:
        if log is not None:
            log.refresh()
    except StrandlineError:
        log = None  # perhaps the last refresh was so long ago that commits are gone
    log = log or place.reopened()
    if log.spec.id != stream or log.state.seq < seen:
        raise log_errors.gone(place.url)
    while len(_OPENED) >= _OPENED_MAX:
        _OPENED.pop(next(iter(_OPENED)))
    _OPENED[known] = log
    return log


def compiled(element: Element, kernels: Any) -> Element:
    """Returns the equal element that this process has seen before, with its kernels.

    Else returns this element, once the kernels that the driver has sent are unpacked. They are no part of the question:
    a worker gets a broadcast as a new object whenever it has worked for another operator in between.
    """
    known = _first_equal(element)
    if known is element:
        unpacked(kernels)
    return known


@lru_cache(maxsize=16)
def _first_equal(element: Element) -> Element:
    return element
