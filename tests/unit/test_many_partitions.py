"""What a batch of an operator costs the driver and the network goes with its partitions, not with their square."""

import pickle
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

import strandline as sl
from strandline.checkpoint.policy import cec
from strandline.clock import ManualClock
from strandline.inputs.one_stream import OneStream
from strandline.log.operator_state.standing import Standing
from strandline.log.stream.append_commit import Append
from strandline.log.stream.block import Block
from strandline.log.stream.column_types import fields_of, type_name
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.running.element import Element
from strandline.running.step import Done
from strandline.running.tick import Worked
from strandline.spark.operator import operator_job
from strandline.spark.operator.affinity import SentOnce
from strandline.spark.operator.housekeeping import Housekeeping
from strandline.spark.operator.operator_inputs import OperatorInputs
from strandline.spark.operator.operator_job import OperatorJob
from strandline.spark.operator.operator_task import OperatorTask
from strandline.spark.session.place import Place
from strandline.testing import MemoryStorage
from tests.support.items import item_spec

BATCHES = 8


def block(partition: int, first: int, name: str) -> Block:
    """A block of ten tuples that no file holds: nobody reads it."""
    file = f"blocks/p{partition:05d}/{first:020d}-{name}.parquet"
    return Block(partition, file, first, first + 10, {"result": 10}, first, first + 10, 12_345, f"xxh3:{0:016x}")


def done(task: OperatorTask, commit: int) -> Worked:
    """What a machine would make of the task, up to this commit of the input."""
    step = task.work.stable
    assert step is not None
    end, attempt = step.slice.end, f"{step.attempt}-7"
    standing = Standing(end, commit, open=100, oldest=end, extent=10, replay=0, attempt=attempt, host="some-host")
    made = block(step.partition, step.output_end, step.attempt)
    return Worked(Done((made,), standing, end, 10, 5, 3, 2, 1_000, 0.1, 0.01, None, taken=10), None)


class Driver:
    """An operator's driver whose tasks run nowhere."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, partitions: int) -> None:
        clock = ManualClock(1)
        spec = item_spec(partitions)
        types = {f["name"]: type_name(f["type"]) for f in fields_of(spec.schema)}
        plan = AggregateDefinition.of(sl.count_window(10), {"n": sl.count_all()}, types, spec.key, spec.time)
        operator = {**plan.to_json(), "footprints": [list(c) for c in plan.control_columns]}
        output = Log.create(MemoryStorage(clock), replace(spec, id="averages", operator=operator), clock)
        place = Place(tempfile.gettempdir())
        self.writer = Log.create(MemoryStorage(clock), spec, clock)
        input_ = Log.open(self.writer.storage, clock)
        context: Any = SimpleNamespace(
            master="local[2]", getLocalProperty=lambda _: None, setJobDescription=lambda _: None
        )
        idle = Housekeeping(place, None, "off")
        inputs = OperatorInputs((place,), OneStream(plan, input_))
        self.job = OperatorJob(context, Element(plan, cec(), tuples_max=10**9), inputs, (place, output), idle)
        self.batches: list[Sequence[OperatorTask]] = []
        self.work: Any = None
        monkeypatch.setattr(operator_job, "on_hosts", self._on_hosts)
        self.job.register()

    def _on_hosts(self, _: Any, tasks: Sequence[OperatorTask], hosts: Sequence[str], sent: SentOnce) -> Any:
        assert len(tasks) == len(hosts)
        self.work = sent.work
        self.batches.append(tasks)
        return [done(task, self.job.inputs.logs[0].state.seq) for task in tasks]

    def batch(self, number: int) -> None:
        """One more commit of the input, a block in every partition, and the operator's batch."""
        partitions = range(self.writer.spec.partitions)
        writer = Writer("query", "run", number)
        self.writer.append(Append([block(p, 10 * number, f"batch{number}") for p in partitions], writer=writer))
        told: list[Mapping[str, Any]] = []
        self.job.catch_up(writer, lambda: True, told.append)
        assert [report["input_tuples"] for report in told] == [10 * len(partitions)]

    @property
    def last_bytes(self) -> int:
        """What the last batch sent to its tasks."""
        return sum(len(pickle.dumps(task)) for task in self.batches[-1]) + len(pickle.dumps(self.work))


def work_in(action: Callable[[], None]) -> int:
    """How many instructions of Python the action takes: its work, whatever else the machine does."""
    count = 0

    def note(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def test_a_task_carries_its_own_share_only(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = {}
    for partitions in (1, 1_000):
        driver = Driver(monkeypatch, partitions)
        for number in range(2):
            driver.batch(number)
        assert [len(task.input_blocks) for task in driver.batches[-1]] == [1] * partitions
        largest = max(len(pickle.dumps(task)) for task in driver.batches[-1])
        sent[partitions] = (largest, driver.last_bytes)
    assert sent[1_000][0] <= sent[1][0] + 50  # longer numbers
    assert sent[1_000][1] - sent[1][1] < 1_000_000


def test_what_a_driver_does_in_a_batch_goes_with_its_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    work = {}
    for partitions in (20, 200):
        driver = Driver(monkeypatch, partitions)
        for number in range(BATCHES):
            driver.batch(number)
        work[partitions] = work_in(lambda driver=driver: driver.batch(BATCHES))  # type: ignore[misc]
    assert work[200] < 11 * work[20]


def test_what_travels_comes_back_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch, 2)
    for number in range(2):
        driver.batch(number)
    for task in driver.batches[-1]:
        assert pickle.loads(pickle.dumps(task)) == task
        assert pickle.loads(pickle.dumps(done(task, 3))) == done(task, 3)
    again = pickle.loads(pickle.dumps(driver.work))
    assert again.element == driver.work.element
    assert again.output == driver.work.output
