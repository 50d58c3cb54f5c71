"""The kernels of an operator, compiled once by the driver and taken along by its tasks.

The driver asks, as soon as it knows the operator, whether its kernels are kept on this machine; if not, a process
compiles them while Spark gets going. Tasks of other machines get them with the job, so that a new executor, in a new
container, loads what would take it seconds to compile. Where that does not work out, tasks compile as ever.
"""

from __future__ import annotations

import subprocess
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from strandline.errors import StrandlineWarning
from strandline.operators.kernel_bundle import KernelBundle, can_be_kept, pack
from strandline.recovery.warm_up import Kernels
from strandline.spark.affinity import is_local

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.core.broadcast import Broadcast

_PATIENCE_S = 120.0
"""For compiling on a busy machine. Tasks that are tired of waiting compile, too."""


class KernelShipping:
    """The kernels of one operator, on their way from the driver to the tasks."""

    def __init__(self, context: SparkContext, kernels: Kernels) -> None:
        self._context = context
        self._kernels = kernels
        self._compiling: subprocess.Popen[bytes] | None = None
        self._bundle: Broadcast[KernelBundle] | None = None
        self._is_ready = False

    def begin(self) -> None:
        """Lets a process compile what this machine does not have yet."""
        if can_be_kept() and self._kernels.names is None:
            try:
                self._compiling = self._kernels.compiling()
            except OSError as problem:
                _warn(str(problem))

    def ready(self) -> Broadcast[KernelBundle] | None:
        """Waits until the kernels are compiled; what tasks of other machines need to get at them."""
        if not self._is_ready:
            self._wait()
            self._is_ready = True
            if not is_local(self._context) and (names := self._kernels.names):
                self._bundle = self._context.broadcast(pack(names))
        return self._bundle

    def _wait(self) -> None:
        if self._compiling is None:
            return
        try:
            said = self._compiling.communicate(timeout=_PATIENCE_S)[1]
            if self._compiling.returncode:
                _warn(said.decode(errors="replace").strip().rpartition("\n")[2])
        except subprocess.TimeoutExpired:
            _warn(f"not done after {_PATIENCE_S:.0f} s")


def _warn(why: str) -> None:
    warnings.warn(
        f"the operator's kernels could not be compiled beforehand ({why}): each of its workers compiles its own, which "
        "takes some seconds",
        StrandlineWarning,
        stacklevel=2,
    )


@lru_cache(maxsize=16)
def unpacked(bundle: Any) -> None:
    """In a task: takes the kernels over, once in the life of a worker."""
    if bundle is not None:
        bundle.value.unpack()
