"""Small jobs whose tasks would rather run on the machine that holds their partition's state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pyspark import SparkContext

T = TypeVar("T")
R = TypeVar("R")


def on_hosts(context: SparkContext, items: Sequence[T], hosts: Sequence[str], work: Callable[[T], R]) -> list[R]:
    """`work` on each item, a task each, in order; each on its host if that can be had without waiting long."""
    if not items:
        return []
    located = any(hosts) and not str(context.master).startswith("local[")
    tasks: Any = _located(context, items, hosts) if located else context.parallelize(items, len(items))
    done: list[R] = tasks.map(work).collect()
    return done


def _located(context: Any, items: Sequence[T], hosts: Sequence[str]) -> Any:
    """An RDD of one item a partition with preferred locations, which Python's own `parallelize` has not."""
    from pyspark.core.rdd import RDD
    from pyspark.serializers import BatchedSerializer, CPickleSerializer

    serializer: Any = CPickleSerializer()
    jvm = context._jvm
    pairs = jvm.java.util.ArrayList()
    for item, host in zip(items, hosts, strict=True):
        places = jvm.java.util.ArrayList()
        if host:
            places.add(host)
        pairs.add(jvm.scala.Tuple2(bytearray(serializer.dumps([item])), _scala(jvm, places)))
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
    rdd = context._jsc.sc().makeRDD(_scala(jvm, pairs), tag)
    batched: Any = BatchedSerializer
    return RDD(rdd.toJavaRDD(), context, batched(serializer, 1))


def _scala(jvm: Any, values: Any) -> Any:
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(values).toSeq()
