"""Operators whose input may be read and not written: they work, and say what that means."""

import errno
import os
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import strandline as sl
from strandline.checkpoint.policy import cec
from strandline.clock import ManualClock
from strandline.errors import NoAccessError, StorageError, StrandlineWarning
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.column_types import fields_of, type_name
from strandline.log.stream.log import Log
from strandline.log.upkeep.consumer_registry import consumers, operator_name, register
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.running.element import Element
from strandline.spark.operator.housekeeping import Housekeeping
from strandline.spark.operator.operator_inputs import OperatorInputs
from strandline.spark.operator.operator_job import OperatorJob
from strandline.spark.session.place import Place
from strandline.testing import MemoryStorage
from tests.support.inputs_over import inputs_over
from tests.support.items import append_items, item_spec


class ReadOnly(MemoryStorage):
    """Refuses whatever would change it, as a store does whose credentials may only read."""

    is_open = True

    def create(self, key: str, data: bytes) -> None:
        self._refuse(key)
        super().create(key, data)

    def put(self, key: str, data: bytes) -> None:
        self._refuse(key)
        super().put(key, data)

    def delete(self, key: str) -> None:
        self._refuse(key)
        super().delete(key)

    def _refuse(self, key: str) -> None:
        if not self.is_open:
            raise NoAccessError("could not write a key: AccessDenied", where=key)


class Setting:
    """An operator's driver over an input that can be closed."""

    def __init__(self, tmp_path: Path, name: str | None = None) -> None:
        clock = ManualClock(1)
        spec = item_spec(1)
        self.storage = ReadOnly(clock)
        self.input = Log.create(self.storage, spec, clock)
        append_items(self.input, {0: [(1, 1, 1), (2, 2, 2)]})
        types = {f["name"]: type_name(f["type"]) for f in fields_of(spec.schema)}
        plan = AggregateDefinition.of(sl.count_window(10), {"n": sl.count_all()}, types, spec.key, spec.time)
        operator = {**plan.to_json(), "footprints": [list(c) for c in plan.control_columns]}
        output = Log.create(MemoryStorage(clock), replace(spec, id="averages", operator=operator), clock)
        place = Place(str(tmp_path / "hourly"))
        context: Any = SimpleNamespace(master="local[2]")
        idle = Housekeeping(place, None, "off")
        logs = OperatorInputs((place,), inputs_over([self.input])), (place, output)
        self.job = OperatorJob(context, Element(plan, cec(), tuples_max=10**9), *logs, idle, name=name)


def test_an_operator_over_an_input_that_may_not_be_written_works_and_warns_once(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.storage.is_open = False
    with pytest.warns(StrandlineWarning, match="nothing keeps the input in-memory from being truncated"):
        setting.job.register()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        setting.job.register()
    # Should it be given the right, it takes it.
    setting.storage.is_open = True
    setting.job.register()
    assert [c.name for c in consumers(setting.input)] == [operator_name("averages")]


def test_other_failures_of_the_storage_are_still_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting(tmp_path)
    monkeypatch.setattr(setting.storage, "create", lambda *_: (_ for _ in ()).throw(StorageError("the disk is dead")))
    with pytest.raises(StorageError, match="the disk is dead"):
        setting.job.register()


def test_an_operator_goes_by_the_name_of_its_query_or_of_the_folder_it_writes(tmp_path: Path) -> None:
    for name, title in (("prices", "prices"), (None, "hourly")):
        setting = Setting(tmp_path, name)
        # As it was registered before: the same consumer goes on, and there is no moment without it.
        register(setting.input, operator_name("averages"), [0])
        before = [c.seq for c in setting.input.state.consumers]
        setting.job.register()
        (consumer,) = consumers(setting.input)
        assert [c.seq for c in setting.input.state.consumers] == before
        assert consumer.title == title
        assert consumer.text == f"the operator {title!r}, which writes {tmp_path / 'hourly'},"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_folder_that_may_not_be_written_is_told_from_a_broken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def failing_with(found: int) -> Any:
        def fail(*_: Any, **__: Any) -> Any:
            raise OSError(found, os.strerror(found))

        return fail

    storage = LocalStorage(tmp_path)
    monkeypatch.setattr(LocalStorage, "_write_temporary", failing_with(number))
    for write in (storage.create, storage.put):
        with pytest.raises(NoAccessError):
            write("commits/0.json", b"{}")
    monkeypatch.setattr(LocalStorage, "_write_temporary", failing_with(errno.EIO))
    with pytest.raises(StorageError) as broken:
        storage.put("commits/0.json", b"{}")
    assert not isinstance(broken.value, NoAccessError)
