"""The kernels of an operator, compiled once by the driver and shipped with its tasks.

As soon as the driver knows the operator, it checks whether this machine keeps the kernels. If not, a process compiles
them while Spark starts. Tasks of other machines get the kernels with the job: a new executor, in a new container, loads
kernels that would take it seconds to compile. If that fails, the tasks compile the kernels themselves.
"""

from __future__ import annotations

import contextlib
import sys
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
"""The time for compiling on a busy machine. After it the tasks start, and compile, too."""
_SILENCE_S = 3.0
"""After this time the driver tells the user why there is no output yet."""


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
        """Starts a process that compiles the kernels, if this machine does not have them yet."""
        if can_be_kept() and self._kernels.names is None:
            self._compiling = Thread(target=self._compile, name="strandline-kernels", daemon=True)
            self._compiling.start()

    def ready(self) -> Broadcast[KernelBundle] | None:
        """Waits until the kernels are compiled; returns the broadcast from which tasks of other machines load them."""
        if not self._is_ready:
            self._wait()
            self._is_ready = True
            if not is_local(self._context) and (names := self._kernels.names):
                self._bundle = self._context.broadcast(pack(names))
        return self._bundle

    def close(self) -> None:
        """Deletes the kernels' copies on other machines, once no more tasks will come."""
        bundle, self._bundle = self._bundle, None
        if bundle is not None:
            with contextlib.suppress(Exception):  # the session may be gone, and its broadcasts with it
                bundle.destroy()

    def _compile(self) -> None:
        """Runs the compiling process and waits for it, in a thread of its own, so that its end is always noticed."""
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
            warn(
                f"the operator's kernels could not be compiled beforehand ({self._problem}): each of its workers "
                "compiles its own, which takes some seconds"
            )


def unpacked(bundle: Any) -> None:
    """Unpacks the kernels in a task. If that fails, the task compiles them."""
    if bundle is not None:
        with contextlib.suppress(Exception):
            bundle.value.unpack()
