"""The driver's part in shipping kernels, without Spark: it compiles once, waits, and goes on whatever happens."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from strandline.checkpoint.policy import cec
from strandline.errors import StrandlineWarning
from strandline.inputs.stream_definition import output_spec
from strandline.log.stream.spec import StreamSpec
from strandline.operators.kernels.kernel_bundle import KernelBundle
from strandline.running.element import Element
from strandline.running.kernel_warm_up import Kernels
from strandline.spark.operator import kernel_shipping
from strandline.spark.operator.kernel_shipping import KernelShipping, unpacked
from strandline.spark.operator.operator_task import compiled
from strandline.spark.operator.processing_element import EntryPoint, ProcessingElement, QueryOptions
from strandline.spark.session.place import Place
from tests.support.machine import patience
from tests.support.operator_streams import PLANS, input_spec
from tests.support.plain_context import jvm_context


class Context(SimpleNamespace):
    """As much of a SparkContext as is needed."""

    def broadcast(self, value: KernelBundle) -> Any:
        return SimpleNamespace(value=value, destroy=lambda: self.destroyed.append(value))


def shipping(master: str) -> KernelShipping:
    context: Any = Context(master=master, destroyed=[])
    return KernelShipping(context, Kernels(PLANS["sliding time"], (input_spec(["k"]),)))


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names = ["one.kernel"]
    monkeypatch.setattr(Kernels, "names", property(lambda _: names or None))
    monkeypatch.setattr(Kernels, "compiling", lambda _: pytest.fail("they are there"))
    monkeypatch.setattr("strandline.operators.kernels.kernel_bundle.find_kernel", lambda name: name.encode())
    return names


def test_kernels_that_are_kept_are_packed_for_other_machines_only(kept: list[str]) -> None:
    at_home = shipping("local[2]")
    at_home.begin()
    assert at_home.ready() is None
    abroad = shipping("spark://somewhere:7077")
    abroad.begin()
    bundle = abroad.ready()
    assert bundle is not None
    assert bundle.value.files == {"one.kernel": b"one.kernel"}
    assert abroad.ready() is bundle, "once"


@pytest.mark.parametrize(("executable", "why"), [("", "does not know its Python"), ("/bin/false", "could not be")])
def test_tasks_compile_where_the_driver_could_not(
    executable: str, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(Kernels, "names", None)
    monkeypatch.setattr("sys.executable", executable)
    failing = shipping("spark://somewhere:7077")
    failing.begin()
    with pytest.warns(StrandlineWarning, match=why):
        assert failing.ready() is None


def test_a_long_wait_for_the_compiler_is_no_silent_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    is_done = threading.Event()
    compiling = SimpleNamespace(communicate=lambda: (b"", b"", is_done.wait(patience(10)))[:2], returncode=0)
    monkeypatch.setattr(Kernels, "names", None)
    monkeypatch.setattr(Kernels, "compiling", lambda *_: compiling)
    monkeypatch.setattr(kernel_shipping, "_SILENCE_S", 0.05)
    monkeypatch.setattr(kernel_shipping, "print", lambda *a, **o: (print(*a, **o), is_done.set()), raising=False)
    slow = shipping("local[2]")
    slow.begin()
    assert slow.ready() is None
    (said,) = capsys.readouterr().err.splitlines()
    assert "compiling the operator's kernels" in said
    assert len(said) <= 80, "a terminal of 80 columns would fold it"
    monkeypatch.setattr(kernel_shipping, "_SILENCE_S", 10.0)
    quick = shipping("local[2]")
    quick.begin()
    quick.ready()
    assert capsys.readouterr().err == ""


def test_what_was_shipped_is_let_go_of_once(kept: list[str]) -> None:
    abroad = shipping("spark://somewhere:7077")
    abroad.close()
    bundle = abroad.ready()
    assert bundle is not None
    abroad.close()
    abroad.close()
    assert abroad._context.destroyed == [bundle.value]  # type: ignore[attr-defined]


def test_a_task_that_cannot_get_at_the_kernels_goes_on() -> None:
    class Gone:
        """What a broadcast is whose driver has let go of it."""

        @property
        def value(self) -> KernelBundle:
            raise OSError("no such file")

    unpacked(Gone())


def test_kernels_of_an_operator_over_sources_are_compiled_while_these_are_persisted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    began: list[str] = []
    spec, definition = input_spec(["k"]), PLANS["sliding time"]

    class Source(EntryPoint):
        """As much of an entry point as is needed: it cannot be persisted."""

        def __init__(self, name: str) -> None:
            self._input_place = Place(str(tmp_path / name))

        @property
        def _input_spec(self) -> StreamSpec:
            return spec

        def persist_with(self, spark: Any, options: Any) -> Any:
            raise InterruptedError(f"after {began}")

    monkeypatch.setattr(KernelShipping, "begin", lambda _: began.append("kernels"))
    element = Element(definition, cec())
    place = Place(str(tmp_path / "out"))
    output = output_spec(definition, spec)
    operator = ProcessingElement(element, [Source("a"), Source("b")], place, output, QueryOptions("available-now"))
    spark: Any = SimpleNamespace(sparkContext=Context(master="local[2]", _jsc=jvm_context()))
    with pytest.raises(InterruptedError, match="kernels"):
        operator.start(spark)


def test_a_worker_knows_an_operator_again_whatever_object_brings_its_kernels() -> None:
    """PySpark makes a new object of a broadcast whenever the worker has done another job in between."""

    def element() -> Element:
        return Element(cast(Any, ("a definition", 7)), cec())

    first, second = SimpleNamespace(value=Mock()), SimpleNamespace(value=Mock())
    known = compiled(element(), first)
    assert compiled(element(), second) is known
    first.value.unpack.assert_called_once()
    second.value.unpack.assert_not_called()
