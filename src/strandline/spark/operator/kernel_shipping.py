"""The kernels of an operator, compiled once by the driver and taken along by its tasks.

The driver asks, as soon as it knows the operator, whether its kernels are kept on this machine; if not, a process
compiles them while Spark gets going. Tasks of other machines get them with the job, so that a new executor, in a new
container, loads what would take it seconds to compile. Where that does not work out, tasks compile as ever.
"""

from __future__ import annotations

import contextlib
import sys
from functools import lru_cache
from threading import Thread
from typing import TYPE_CHECKING, Any

from strandline.operators.kernels.kernel_bundle import KernelBundle, can_be_kept, pack
from strandline.running.kernel_warm_up import Kernels
from strandline.spark.operator.affinity import is_local
from strandline.user_warning import warn

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.core.broadcast import Broadcast

_PATIENCE_S = 120.0
"""For compiling on a busy machine. Tasks that are tired of waiting compile, too."""
_SILENCE_S = 3.0
"""Longer than that, and somebody should say why nothing comes out."""


class KernelShipping:
    """The kernels of one operator, on their way from the driver to the tasks."""

    def __init__(self, context: SparkContext, kernels: Kernels) -> None:
        self._context = context
        self._kernels = kernels
        self._compiling: Thread | None = None
        self._problem = ""
        self._bundle: Broadcast[KernelBundle] | None = None
        self._is_ready = False

    def begin(self) -> None:
        """Lets a process compile what this machine does not have yet."""
        if can_be_kept() and self._kernels.names is None:
            self._compiling = Thread(target=self._compile, name="strandline-kernels", daemon=True)
            self._compiling.start()

    def ready(self) -> Broadcast[KernelBundle] | None:
        """Waits until the kernels are compiled; what tasks of other machines need to get at them."""
        if not self._is_ready:
            self._wait()
            self._is_ready = True
            if not is_local(self._context) and (names := self._kernels.names):
                self._bundle = self._context.broadcast(pack(names))
        return self._bundle

    def close(self) -> None:
        """Lets go of what other machines hold of it, once no task is to come."""
        bundle, self._bundle = self._bundle, None
        if bundle is not None:
            with contextlib.suppress(Exception):  # the session may be gone, and all it held with it
                bundle.destroy()

    def _compile(self) -> None:
        """In a thread of its own, so that somebody sees the process end, whoever else is still there."""
        from pyspark import cloudpickle

        try:
            compiling = self._kernels.compiling(cloudpickle.dumps)
            said = compiling.communicate()[1]
            if compiling.returncode:
                self._problem = said.decode(errors="replace").strip().rpartition("\n")[2] or "it was killed"
        except OSError as problem:
            self._problem = str(problem)

    def _wait(self) -> None:
        if self._compiling is None:
            return
        self._compiling.join(_SILENCE_S)
        if self._compiling.is_alive():
            said = "strandline: compiling the operator's kernels, once for this version and machine"
            print(said, file=sys.stderr, flush=True)
        self._compiling.join(_PATIENCE_S)
        if self._compiling.is_alive():
            self._problem = f"not done after {_PATIENCE_S:.0f} s"
        if self._problem:
            _warn(self._problem)


def _warn(why: str) -> None:
    warn(
        f"the operator's kernels could not be compiled beforehand ({why}): each of its workers compiles its own, which "
        "takes some seconds",
    )


@lru_cache(maxsize=16)
def unpacked(bundle: Any) -> None:
    """In a task: takes the kernels over, once in the life of a worker. Whatever goes wrong, the task compiles."""
    if bundle is not None:
        with contextlib.suppress(Exception):
            bundle.value.unpack()
