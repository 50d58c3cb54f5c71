"""What a class has to be to be an operator, and what its state may hold."""

from __future__ import annotations

import enum
import math
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle

import strandline as sl
from strandline.errors import InputError, OptionError, SchemaError
from strandline.operators.one_table import GivenInput
from strandline.operators.partition_wide import state_values
from strandline.operators.partition_wide.definition import PartitionWideDefinition
from strandline.operators.partition_wide.user_operator import UserClass, UserOperator
from tests.support.user_operators import Running, Sorted, definition


class Plain(UserOperator):
    output = "k long, t long"
    time = "t"

    def process(self, tuples: pa.Table) -> pa.Table | None:
        return None

    def get_checkpoint(self) -> dict[str, Any]:
        return {}

    def restore_checkpoint(self, state: dict[str, Any]) -> None:
        pass


class Configured(Plain):
    def __init__(self, sizes: Any, *more: Any, rate: float = 0.1, **options: Any) -> None:
        self.sizes = sizes
        self.more = more
        self.rate = rate
        self.options = options


# ---------------------------------------------------------------------- arguments


def test_arguments_are_found_without_the_help_of_the_class() -> None:
    sizes = [1, 2]
    of = UserClass.of(Configured(sizes, 3, deep=True))
    assert of.arguments == '{"more": [3], "options": {"deep": true}, "rate": 0.1, "sizes": [1, 2]}'
    sizes.append(3)
    one, two = of.made(), of.made()
    assert isinstance(one, Configured)
    assert isinstance(two, Configured)
    assert (one.sizes, one.more, one.rate, one.options) == ([1, 2], (3,), 0.1, {"deep": True})
    one.sizes.append(4)
    assert two.sizes == [1, 2]
    assert UserClass.of(Plain()).arguments == "{}"


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (np.zeros(2), "sizes of type numpy.ndarray"),
        ({"a": [1, {2, 3}]}, r"sizes\['a'\]\[1\] of type builtins.set"),
        ({1: 2}, "sizes with a key of type int"),
        (math.nan, "sizes = nan"),
        (np.int64(3), "sizes of type numpy.int64"),
        (Plain, "sizes of type builtins.type"),
    ],
)
def test_arguments_that_are_not_json_are_refused_by_name(value: Any, what: str) -> None:
    with pytest.raises(OptionError, match=f"Configured: the argument {what}"):
        UserClass.of(Configured(value))


def test_wrong_calls_of_a_class_are_those_of_python() -> None:
    with pytest.raises(TypeError, match="takes no arguments"):
        Plain(1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'sizes'"):
        Configured()  # type: ignore[call-arg]


def test_an_operator_travels_by_cloudpickle_and_is_the_same_there() -> None:
    class Local(Plain):
        def __init__(self, rate: float) -> None:
            self.rate = rate

    d = definition(Local(0.5))
    there = pickle.loads(cloudpickle.dumps(d))
    assert there == d
    assert hash(there) == hash(d)
    assert there.of.made().rate == 0.5
    assert d.of.name == "Local"
    assert definition(Local(0.5)) != d  # of another program: its class may be another one


# ---------------------------------------------------------------------- classes


def over(operator: Any, **given: Any) -> PartitionWideDefinition:
    known = {"columns": {"k": "long", "t": "timestamp"}, "key": ("k",), "time": "t", "lateness": 0}
    return PartitionWideDefinition.over(operator, GivenInput(**{**known, **given}))


def plain(**attributes: Any) -> Any:
    return type("Model", (Plain,), {"output": "k long, t timestamp", **attributes})()


@pytest.mark.parametrize(
    ("operator", "kind", "what"),
    [
        (plain(output="t timestamp"), SchemaError, "Model: output has no column 'k'; the input's key is k long"),
        (plain(output="k string, t timestamp"), SchemaError, "output has 'k' as string"),
        (plain(time="at"), SchemaError, "the time of results, 'at', is not a column of output"),
        (plain(output="k long, t long"), SchemaError, "the time of results is t long, that of the input t timestamp"),
        (plain(output="k long, t timestamp, _x long"), SchemaError, "a column of output is called '_x'"),
        (plain(output="k long, t timestamp, K long"), SchemaError, "output has the column 'K' twice"),
        (plain(output="k long, t tmestamp"), OptionError, "cannot be read from 't tmestamp' on"),
        (plain(output=None), OptionError, "Model has no output"),
        (plain(time=3), OptionError, "Model has no time"),
        (plain(version=0), OptionError, "Model.version is 0"),
        (plain(process=UserOperator.process), OptionError, "Model has no method process"),
        (plain(get_checkpoint=UserOperator.get_checkpoint), OptionError, "Model has no method get_checkpoint"),
        (Plain, OptionError, "is a class"),
        (3, OptionError, "is not an operator"),
    ],
)
def test_what_cannot_be_an_operator_is_refused_at_once(operator: Any, kind: type[InputError], what: str) -> None:
    with pytest.raises(kind) as caught:
        over(operator)
    assert what in caught.value.what
    assert caught.value.todo


def test_advance_needs_a_lateness() -> None:
    with pytest.raises(OptionError, match=r"Sorted.advance would never be called"):
        PartitionWideDefinition.over(Sorted(), GivenInput({"k": "long", "t": "long", "s": "string"}, ("k",), "t", None))


def test_the_policy_is_instant_unless_another_is_chosen_and_never_cec() -> None:
    source = sl.testing.stream("k long, s string, v long, x double, t long", key="k", time="t", lateness=0)
    applied = source.apply(Running())
    assert isinstance(applied, sl.PartitionWide)
    assert repr(applied.policy) == 'instant("10 s")'
    assert repr(applied.checkpoint(sl.none()).policy) == "none()"
    assert "Running(poison=0, rate=0.25)" in repr(applied)
    with pytest.raises(OptionError, match="saves single windows, and the state of Running is one object"):
        applied.checkpoint(sl.cec())
    with pytest.raises(OptionError, match=r"apply\(Running\) is a class"):
        source.apply(Running)
    with pytest.raises(OptionError, match="is not an operator"):
        source.apply(3)  # type: ignore[call-overload]


# ---------------------------------------------------------------------- state


class Colour(enum.IntEnum):
    RED = 1


VALUES: dict[str, Any] = {
    "array": np.arange(12, dtype=np.float32).reshape(3, 4),
    "columns first": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "part": np.arange(20)[::3],
    "nothing": np.zeros((0, 3), np.int8),
    "one": np.array(1.5),
    "texts": np.array(["a", "bcd", ""]),
    "no texts": np.array([""]),
    "times": np.array(["2026-01-01"], "datetime64[us]"),
    "complex": np.array([1 + 2j]),
    "big end first": np.arange(3, dtype=">i4"),
    "number": np.float32(0.1),
    "arrow": pa.array([[1, 2], None, []]),
    "slice": pa.array(["a", None, "c"])[1:],
    "chunked": pa.chunked_array([[1, 2], [3]]),
    "no chunks": pa.chunked_array([], pa.int64()),
    "dictionary": pa.array(["a", "b", "a"]).dictionary_encode(),
    "true": True,
    "large": -(1 << 200),
    "zero": 0,
    "nan": math.nan,
    "negative zero": -0.0,
    "text": "täxt\udc80",
    "empty": "",
    "bytes": b"\0\1",
    "no bytes": b"",
}


@pytest.mark.parametrize("cell", [3, 1 << 20])
def test_values_come_back_as_they_were(cell: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_values, "CELL_BYTES_MAX", cell)
    state = state_values.encoded(VALUES, "Model")
    assert max(len(row.data) for row in state) <= cell
    found = state_values.decoded(state)
    assert list(found) == list(VALUES)
    for name, value in VALUES.items():
        got = found[name]
        assert type(got) is type(value), name
        if isinstance(value, np.ndarray):
            assert (got.dtype, got.shape, got.tobytes()) == (value.dtype, value.shape, value.tobytes()), name
            assert got.flags.writeable, name
            assert got.flags.f_contiguous == value.flags.f_contiguous or name == "part", name
        elif isinstance(value, pa.Array | pa.ChunkedArray):
            assert got.equals(value), name
            assert got.type == value.type, name
        else:
            assert repr(got) == repr(value), name


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"model": object()}, "'model' is of type object"),
        ({"a": None}, "'a' is of type NoneType"),
        ({"a": [1, 2]}, "'a' is of type list"),
        ({"a": np.array([object()])}, "'a' is of type numpy.ndarray of object"),
        ({"a": np.ma.masked_array([1.0])}, "'a' is of type numpy.ma.MaskedArray of float64"),
        ({"a": Colour.RED}, "'a' is of type .*Colour"),
        ({"a": pa.table({"x": [1]})}, "'a' is of type pyarrow.lib.Table"),
        ({3: 1}, "the name 3 is of type int"),
        ({"_input": 1}, "the name '_input' is reserved"),
        ({"": 1}, "the name '' is reserved"),
        ([1], "get_checkpoint returned list, not a dict"),
    ],
)
def test_what_cannot_be_saved_is_refused_by_name(values: Any, what: str) -> None:
    with pytest.raises(InputError, match=what) as caught:
        state_values.encoded(values, "Model")
    assert caught.value.what.startswith("Model.get_checkpoint")
    assert caught.value.todo
