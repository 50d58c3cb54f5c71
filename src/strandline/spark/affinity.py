"""Small jobs whose tasks would rather run on the machine that holds their partition's state.

Spark places tasks by the name under which an executor has registered: an address on a Standalone cluster, a pod's
address on Kubernetes, the node manager's name on YARN. That need not be what the machine calls itself.
"""

from __future__ import annotations

import base64
import contextlib
import os
import pickle
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pyspark import SparkContext

T = TypeVar("T")
R = TypeVar("R")


@lru_cache(maxsize=1)
def spark_host() -> str:
    """What Spark calls the machine of this task; outside of an executor, the name the machine has for itself."""
    # An executor is told on its command line what to register as, whoever starts it, and tells its Python nothing.
    for command in _commands_above():
        if any(argument.endswith("ExecutorBackend") for argument in command) and "--hostname" in command[:-1]:
            return command[command.index("--hostname") + 1]
    known = (os.environ.get(name) for name in _HOST_VARIABLES)
    return next(filter(None, known), None) or socket.gethostname()


_HOST_VARIABLES = ("SPARK_EXECUTOR_POD_IP", "NM_HOST", "SPARK_LOCAL_HOSTNAME")
"""Where there is no /proc: what Kubernetes, YARN and Spark itself leave in the environment of an executor."""


def _commands_above() -> Iterator[list[str]]:
    """The command lines of the processes that this one comes from, the nearest first, as far as they can be read."""
    pid = os.getppid()
    with contextlib.suppress(OSError):
        while pid > 0:
            yield Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
            status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
            pid = int(status.rpartition(")")[2].split()[1])  # a command in brackets, its state, its parent


def on_hosts(context: SparkContext, items: Sequence[T], hosts: Sequence[str], work: Callable[[T], R]) -> list[R]:
    """`work` on each item, a task each, in order; each on its host if that can be had without waiting long."""
    if not items:
        return []
    # Spark's own pickler looks for what has to go by value: many items of importable classes need not pay for that.
    pickled = [pickle.dumps(item, pickle.HIGHEST_PROTOCOL) for item in items]
    located = any(hosts) and not str(context.master).startswith("local[")
    tasks: Any = _located(context, pickled, hosts) if located else context.parallelize(pickled, len(pickled))
    done: list[R] = tasks.map(_Unpickling(work)).collect()
    return done


@dataclass(frozen=True, slots=True)
class _Unpickling:
    """Work on items that come as bytes, or as text where Spark has brought them as text."""

    work: Callable[[Any], Any]

    def __call__(self, item: bytes | str) -> Any:
        return self.work(pickle.loads(base64.b64decode(item) if isinstance(item, str) else item))


def _located(context: Any, items: Sequence[bytes], hosts: Sequence[str]) -> Any:
    """An RDD of one item a partition with preferred locations, which Python's own `parallelize` has not.

    Every call into the JVM costs a round trip, so all items go in one and all hosts in another, however many they are.
    """
    from pyspark import serializers
    from pyspark.core.rdd import RDD

    jvm = context._jvm
    texts = _scala(jvm, [base64.b64encode(item).decode() for item in items])
    places = _scala(jvm, hosts).grouped(1).toSeq()
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("java.lang.String"))
    rdd = context._jsc.sc().makeRDD(texts.zip(places), tag)
    untyped: Any = serializers
    return RDD(rdd.toJavaRDD(), context, untyped.UTF8Deserializer())


def _scala(jvm: Any, texts: Sequence[str]) -> Any:
    """A Scala sequence of texts without commas, empty ones included."""
    array = jvm.java.util.regex.Pattern.compile(",").split(",".join(texts), -1)
    return jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(array)
