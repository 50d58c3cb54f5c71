"""Kernels compiled before they are needed: a small run of an operator between two logs in a temporary folder.

Only the code that runs kernels says which kernels an operator runs, and over which types. So the warm-up runs that
code: a few hundred tuples, batches, hand-overs of the state, a recovery of either kind. `kernel_cache` keeps the
kernels that this compiles, and every later process loads them.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from strandline import failpoint
from strandline.arrow_types import simple_type
from strandline.checkpoint.policy import Policy, cec, instant
from strandline.clock import SYSTEM_CLOCK
from strandline.inputs.stream_definition import definition_of, output_spec
from strandline.log.operator_state.origin_logs import opened_origins
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.storage.storage_url import open_storage
from strandline.log.stream import block as blocks
from strandline.log.stream import quiet
from strandline.log.stream.append_commit import Append
from strandline.log.stream.column_types import arrow_type, fields_of
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.stream.spec import StreamSpec
from strandline.operators.kernels.kernel_bundle import can_be_kept, keep_names, kept_names
from strandline.operators.operator import Definition
from strandline.operators.registry import common_operators
from strandline.running import step as steps
from strandline.running.element import Element
from strandline.running.state.state_cache import StateCache
from strandline.running.step import Done, Logs, Step
from strandline.running.tick import run_batch
from strandline.version import VERSION

_MANY = range(300)
"""The keys of a large batch: they open more windows than the first allocation holds, so that it has to grow."""
_FEW = range(4)
"""The keys of a small batch, some of `_MANY`."""
_LIFE = 3
"""The version of `live_in_small`. Raise it when the small run covers more: earlier notes then lack kernels."""
_COMPILE = "import pickle, sys; pickle.loads(sys.stdin.buffer.read()).compile()"
_LATENESS = 1_000
_LATER = 1_000_000


@dataclass(frozen=True)
class Kernels:
    """The kernels of one operator."""

    definition: Definition
    inputs: tuple[StreamSpec, ...]

    @property
    def names(self) -> Sequence[str] | None:
        """The names under which this machine keeps the kernels; None if it lacks one of them."""
        if self.definition.lives_in_process or not self.definition.keeps_state:
            return ()
        return kept_names(self._purpose)

    def compile(self) -> None:
        """Compiles, in this process, the kernels that the machine does not keep yet."""
        if can_be_kept() and self.names is None:
            live_in_small(self.definition, self.inputs)
            keep_names(self._purpose)

    def compiling(self, dumps: Callable[[Any], bytes] = pickle.dumps) -> subprocess.Popen[bytes]:
        """Starts another process that compiles the kernels and ends; raises OSError if none can be started.

        `dumps` serialises what `pickle` cannot: a condition may be a function of the program's.
        """
        if not sys.executable:
            raise FileNotFoundError("this program does not know its Python")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(failpoint.VARIABLE)}
        environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
        work = dumps(self)
        started = subprocess.Popen(
            # -P: a file in the current folder must not shadow a module, unless it does so in this process, too.
            [sys.executable, "-P", "-c", _COMPILE],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
        )
        assert started.stdin is not None
        started.stdin.write(work)
        started.stdin.close()
        started.stdin = None  # `communicate` would write to it
        return started

    @property
    def _purpose(self) -> str:
        """A text that differs whenever the kernels of two operators differ, and perhaps more often."""
        small, columns = in_small(self.definition, self.inputs)
        told = [VERSION, _LIFE, small.to_json(), small.key, small.times, [sorted(c.items()) for c in columns]]
        return json.dumps(told, sort_keys=True)


def in_small(definition: Definition, inputs: Sequence[StreamSpec]) -> tuple[Definition, Sequence[Mapping[str, Any]]]:
    """Returns the operator with windows that a few tuples fill, and the columns of the inputs that it then reads."""
    types = [{f["name"]: f["type"] for f in fields_of(spec.schema)} for spec in inputs]
    return definition.in_small(types, [spec.arrow for spec in inputs])


def kernels_of(log: Log) -> Kernels:
    """Returns the kernels of the operator that writes this stream; its inputs must be where it reads them."""
    definition_of(log.spec, log.storage.url)
    specs = tuple(found.spec for found in opened_origins(log, lambda path: Log.open(open_storage(path))))
    return Kernels(definition_of(log.spec, log.storage.url, specs), specs)


def _common(definition: Definition, types: Mapping[str, str]) -> Kernels:
    schema = {"type": "struct", "fields": [{"name": n, "type": t} for n, t in types.items()]}
    return Kernels(definition, (StreamSpec("common", schema, ("key",), "time", partitions=1, lateness=0),))


COMMON = [_common(*operator) for operator in common_operators()]
"""Operators that run most of the kernels which do not depend on the computation."""


def live_in_small(definition: Definition, inputs: Sequence[StreamSpec]) -> None:
    """Runs a small version of the operator over some tuples: steps, hand-overs of its state, recoveries."""
    with TemporaryDirectory(prefix="strandline-warm-up-") as folder:
        life = _Life(*in_small(definition, inputs), Path(folder))
        often, whole, every_kind = cec(extent="1x"), instant("1 hour"), cec(extent="2x", replay=1_000_000, slow=1)
        life.step(often, "a", _MANY)
        life.step(often, "a", _MANY)
        for _ in range(3):  # the allocation has room now: a hand-over of the touched rows only
            life.step(every_kind, "a", _FEW)
        life.step(cec(), "b", _FEW)  # a recovery from footprints
        life.step(whole, "b", _MANY)
        life.step(whole, "b", _FEW)
        life.step(whole, "c", _FEW)  # a recovery from a whole checkpoint
        life.step(cec(), "c", range(2), later=_LATER)  # everything that has an end in time closes


class _Life:
    """An input of one partition, an operator and its output."""

    def __init__(self, definition: Definition, columns: Sequence[Mapping[str, Any]], folder: Path) -> None:
        self._definition = definition
        self._folder = folder
        self._inputs = tuple(
            self._input(f"input-{number}", own, time)
            for number, (own, time) in enumerate(zip(columns, definition.times, strict=True))
        )
        self._now = 0
        spec = output_spec(definition, self._inputs[0].spec)
        self._output = Log.create(LocalStorage(folder / "output", durability="os"), spec)

    def _input(self, name: str, columns: Mapping[str, Any], time: str) -> Log:
        fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in columns.items()]
        key = tuple(column for column, _ in self._definition.key)
        spec = StreamSpec(name, {"type": "struct", "fields": fields}, key, time, partitions=1, lateness=_LATENESS)
        return Log.create(LocalStorage(self._folder / name, durability="os"), spec)

    def _feed(self, keys: range, later: int) -> None:
        """Appends a tuple of each key to each input. Over several inputs time has to pass, or none is taken in."""
        if len(self._inputs) == 1:
            return _append(self._inputs[0], keys, later)
        for log in self._inputs:
            _append(log, keys, self._now + later)
            quiet.pass_time(log, self._now + later + len(_MANY), "warm-up", "os")
        self._now += later + len(_MANY)

    def step(self, policy: Policy, home: str, keys: range, later: int = 0) -> None:
        """Takes in a tuple of each key; the step finds its state, and leaves it, in the folder `home`."""
        self._feed(keys, later)
        element = Element(self._definition, policy, "set_aside", durability="os")

        def run(todo: Sequence[Step]) -> list[Done]:
            cache = StateCache(self._folder / home)
            try:
                return [steps.run(s, element, Logs(self._output, self._inputs), cache, SYSTEM_CLOCK) for s in todo]
            finally:
                cache.close()

        writer = Writer("warm-up", "warm-up", self._output.state.seq + 1)
        run_batch(element, self._inputs, self._output, run, writer, SYSTEM_CLOCK)


def _append(log: Log, keys: range, later: int) -> None:
    """Appends a tuple of each key, in one commit."""
    spec, first = log.spec, log.state.ends[0]
    columns = [_values(f["type"], keys, later if f["name"] == spec.time else 0) for f in fields_of(spec.schema)]
    data = blocks.encode_parts([(Kind.RESULT, columns)], spec, first)
    file = spec.file(0, first, "warm-up")
    log.storage.create(file, data)
    log.append(Append([blocks.describe(data, spec, 0, first, file)]))


def _values(kind: Any, keys: range, later: int) -> pa.Array:
    """Returns a column of these numbers, as far as the type can tell them apart; nulls for a type without numbers."""
    type_, numbers = simple_type(str(kind)), np.array(keys) + later
    if type_ is None:
        return pa.nulls(len(keys), arrow_type(kind, ""))
    if pa.types.is_boolean(type_):
        return pa.array(numbers % 2 == 0)
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return pa.array([f"warm-up {n}" for n in numbers]).cast(type_)
    if pa.types.is_decimal(type_):
        return pa.array([Decimal(int(n) % 10**type_.precision).scaleb(-type_.scale) for n in numbers], type_)
    if pa.types.is_int8(type_):
        numbers %= 100
    return pa.array(numbers.astype(np.int32) if pa.types.is_date32(type_) else numbers).cast(type_, safe=False)
