"""Small jobs whose tasks would rather run on the machine that holds their partition's state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark import SparkContext

T = TypeVar("T")
R = TypeVar("R")


def on_hosts(context: SparkContext, items: Sequence[T], hosts: Sequence[str], work: Callable[[T], R]) -> list[R]:
    """`work` on each item, a task each, in order; each on its host if that can be had without waiting long."""
    if not items:
        return []
    if str(context.master).startswith("local[") or not any(hosts):
        return context.parallelize(items, len(items)).map(work).collect()
    return _located(context, items, hosts).map(work).collect()


def _located(context: SparkContext, items: Sequence[T], hosts: Sequence[str]):  # type: ignore[no-untyped-def]
    """An RDD of one item a partition with preferred locations, which Python's own `parallelize` has not."""
    from pyspark.core.rdd import RDD
    from pyspark.serializers import BatchedSerializer, CPickleSerializer

    serializer = CPickleSerializer()
    jvm, gateway = context._jvm, context._gateway
    pairs = jvm.java.util.ArrayList()  # type: ignore[union-attr]
    for item, host in zip(items, hosts, strict=True):
        places = jvm.java.util.ArrayList()  # type: ignore[union-attr]
        if host:
            places.add(host)
        data = bytearray(serializer.dumps([item]))
        pairs.add(jvm.scala.Tuple2(data, _scala(jvm, places)))  # type: ignore[union-attr]
    tag = jvm.scala.reflect.ClassTag.apply(gateway.jvm.java.lang.Class.forName("[B"))  # type: ignore[union-attr]
    rdd = context._jsc.sc().makeRDD(_scala(jvm, pairs), tag)
    return RDD(rdd.toJavaRDD(), context, BatchedSerializer(serializer, 1))


def _scala(jvm, values):  # type: ignore[no-untyped-def]
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(values).toSeq()
