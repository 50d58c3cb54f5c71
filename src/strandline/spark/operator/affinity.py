"""Small jobs whose tasks prefer to run on the machine that holds their partition's state.

Spark places tasks by the name under which an executor has registered: an address on a Standalone cluster, a pod's
address on Kubernetes, the node manager's name on YARN. The machine may have another name for itself.
"""

from __future__ import annotations

import base64
import contextlib
import os
import pickle
import socket
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from strandline.clock import stopwatch_s

if TYPE_CHECKING:
    from pyspark import SparkContext

T = TypeVar("T")
R = TypeVar("R")


@lru_cache(maxsize=1)
def spark_host() -> str:
    """Returns Spark's name for the machine of this task; outside of an executor, the machine's name for itself."""
    # An executor gets its name on its command line, on every kind of cluster, and does not pass it to its Python.
    for command in _commands_above():
        if any(argument.endswith("ExecutorBackend") for argument in command) and "--hostname" in command[:-1]:
            return command[command.index("--hostname") + 1]
    known = (os.environ.get(name) for name in _HOST_VARIABLES)
    return next(filter(None, known), None) or socket.gethostname()


_HOST_VARIABLES = ("SPARK_EXECUTOR_POD_IP", "NM_HOST", "SPARK_LOCAL_HOSTNAME")
"""The variables that Kubernetes, YARN and Spark itself set in an executor, for machines without /proc."""


def _commands_above() -> Iterator[list[str]]:
    """Yields the command lines of the ancestors of this process, the nearest first, as far as they can be read."""
    pid = os.getppid()
    with contextlib.suppress(OSError):
        while pid > 0:
            yield Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
            status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
            pid = int(status.rpartition(")")[2].split()[1])  # a command in brackets, its state, its parent


class LiveHosts:
    """The hosts on which Spark has executors, looked up every few seconds; none where all tasks run in the driver."""

    def __init__(self, context: SparkContext) -> None:
        self._context: Any = context
        self._found: frozenset[str] = frozenset()
        self._looked_s: float | None = None

    def now(self) -> frozenset[str]:
        """Returns the hosts, by Spark's names for them."""
        if not is_local(self._context) and (self._looked_s is None or stopwatch_s() - self._looked_s > _LOOK_EVERY_S):
            spark = self._context._jsc.sc()
            addresses = str(spark.getExecutorMemoryStatus().keys().mkString(",")).split(",")
            hosts = Counter(address.rpartition(":")[0] for address in addresses)
            hosts[str(spark.getConf().get("spark.driver.host"))] -= 1  # the driver is among them
            self._found = frozenset(+hosts)
            self._looked_s = stopwatch_s()
        return self._found


_LOOK_EVERY_S = 5.0


def balanced(hosts: Sequence[str], live: Collection[str]) -> list[str]:
    """Returns for each partition the host that has its state; none if that host is gone, or has its fair part already.

    A partition without a host runs where there is room, recovers there once, and stays. So partitions spread over hosts
    that come late, and no task waits for a host that has died.
    """
    share = -(-len(hosts) // max(1, len(live)))
    taken = Counter[str]()
    wanted = []
    for host in hosts:
        taken[host] += 1
        wanted.append(host if host in live and taken[host] <= share else "")
    return wanted


class SentOnce:
    """Work that many jobs do: it is pickled and goes to the JVM with the first of them, not with each."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self.work = work
        self._sent: dict[Hashable, Any] = {}

    def __call__(self, item: Any) -> Any:
        return self.work(item)

    def done_on(self, items: Any) -> list[Any]:
        """Returns the work's results for an RDD of pickled items."""
        from pyspark.core.rdd import _wrap_function

        done = items.map(_Unpickling(self.work))
        context = done.ctx
        if context.profiler_collector is None:  # a profiler wants a function of its own for each job
            # What `map` leaves to be done would send the function anew.
            read, write = done._prev_jrdd_deserializer, done._jrdd_deserializer
            key = (id(context), type(read), tuple(context._python_includes))  # modules may be added while it runs
            if key not in self._sent:
                self._sent[key] = _wrap_function(context, done.func, read, write)
            done._jrdd_val = context._jvm.PythonRDD(done._prev_jrdd.rdd(), self._sent[key], False, False).asJavaRDD()
        results: list[Any] = done.collect()
        return results


def on_hosts(context: SparkContext, items: Sequence[T], hosts: Sequence[str], work: Callable[[T], R]) -> list[R]:
    """Runs `work` on each item as a task of its own, on the item's host if Spark need not wait long for it.

    Returns the results in the order of the items.
    """
    if not items:
        return []
    sent = work if isinstance(work, SentOnce) else SentOnce(work)
    # Spark's own pickler searches for objects to pickle by value: items of importable classes need not pay for that.
    pickled = [pickle.dumps(item, pickle.HIGHEST_PROTOCOL) for item in items]
    if not any(hosts) or is_local(context):
        return sent.done_on(context.parallelize(pickled, len(pickled)))
    order = sorted(range(len(items)), key=lambda i: not hosts[i])  # those with a host first
    tasks = _located(context, [pickled[i] for i in order], [hosts[i] for i in order if hosts[i]])
    by_place = dict(zip(order, sent.done_on(tasks), strict=True))
    return [by_place[i] for i in range(len(items))]


def is_local(context: SparkContext) -> bool:
    """Returns whether all tasks run on the driver's machine."""
    return str(context.master).partition("[")[0] == "local"


@dataclass(frozen=True, slots=True)
class _Unpickling:
    """Work on pickled items, which come as bytes, or as text where Spark has transported them as text."""

    work: Callable[[Any], Any]

    def __call__(self, item: bytes | str) -> Any:
        return self.work(pickle.loads(base64.b64decode(item) if isinstance(item, str) else item))


def _located(context: Any, items: Sequence[bytes], hosts: Sequence[str]) -> Any:
    """Returns an RDD of one item per partition. The first items have a preferred location, which `parallelize` lacks.

    Every call into the JVM costs a round trip, so all items go in one and all hosts in another, however many they are.
    """
    from pyspark import serializers
    from pyspark.core.rdd import RDD

    jvm, spark = context._jvm, context._jsc.sc()
    texts = _scala(jvm, [base64.b64encode(item).decode() for item in items])
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("java.lang.String"))
    rdd = spark.makeRDD(texts.take(len(hosts)).zip(_scala(jvm, hosts).grouped(1).toSeq()), tag)
    if len(hosts) < len(items):
        rdd = rdd.union(spark.makeRDD(texts.drop(len(hosts)), len(items) - len(hosts), tag))
    untyped: Any = serializers
    return RDD(rdd.toJavaRDD(), context, untyped.UTF8Deserializer())


def _scala(jvm: Any, texts: Sequence[str]) -> Any:
    """Returns a Scala sequence of texts without commas."""
    array = jvm.java.util.regex.Pattern.compile(",").split(",".join(texts))
    return jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(array)
