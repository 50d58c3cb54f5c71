"""Small jobs whose tasks would rather run on the machine that holds their partition's state."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pyspark import SparkContext

T = TypeVar("T")
R = TypeVar("R")


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
    """A Scala sequence of texts without commas."""
    array = jvm.java.util.regex.Pattern.compile(",").split(",".join(texts))
    return jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(array)
