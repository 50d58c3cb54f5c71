"""One step of an operator as a Spark task. Everything it needs travels with it; it opens nothing it does not read."""

from __future__ import annotations

import gc
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from strandline.checkpoint.policy import Policy
from strandline.clock import SYSTEM_CLOCK
from strandline.failpoint import failpoint
from strandline.log.block import Block
from strandline.log.log import Log
from strandline.log.spec import StreamSpec
from strandline.log.state import LogState
from strandline.operators.plan import Plan
from strandline.recovery.state_cache import StateCache
from strandline.recovery.state_folders import default_folder
from strandline.recovery.step import Done, Step, run
from strandline.spark.place import Place


@dataclass(frozen=True)
class OperatorTask:
    """A step with what it works on."""

    step: Step
    plan: Plan
    policy: Policy
    input: Place
    input_spec: bytes
    input_state: LogState
    input_blocks: Sequence[Block]
    output: Place
    output_spec: bytes
    output_state: LogState


def run_task(task: OperatorTask) -> Done:
    """What Spark calls on some machine. The same task may run twice, and one of the two may wake up much later."""
    failpoint("task-begins")
    output = Log.at(task.output.storage(), _spec(task.output_spec), task.output_state)
    input_ = Log.at(task.input.storage(), _spec(task.input_spec), task.input_state, task.input_blocks)
    # Attempts of a task have names of their own, or a second one would find the files of the first.
    step = replace(task.step, attempt=f"{task.step.attempt}-{_attempt()}", host=socket.gethostname())
    cache = StateCache(default_folder(output.spec.id, step.partition))
    try:
        return run(
            step,
            _compiled(task.plan),
            task.policy,
            output,
            input_,
            cache,
            SYSTEM_CLOCK,
            lambda: (task.output.open(), task.input.open()),
        )
    finally:
        cache.close()
        _spare_the_collector(task.plan)


@lru_cache(maxsize=16)
def _spare_the_collector(plan: Plan) -> None:
    """Once in a worker for each plan: what its first task has loaded stays, and need not be looked at again.

    Spark's workers collect garbage after every task. With compilers and Arrow in memory that took twice as long as a
    step, on the cores that the next batch was waiting for.
    """
    gc.collect()
    gc.freeze()


def _attempt() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.taskAttemptId())


@lru_cache(maxsize=16)
def _spec(data: bytes) -> StreamSpec:
    return StreamSpec.from_json(data, "a task's description of its stream")


@lru_cache(maxsize=16)
def _compiled(plan: Plan) -> Plan:
    """The plan that has its kernels already, if this process has seen it before."""
    return plan
