"""`sl.replicas(a, b)`: the same operator at work several times, read as one stream from whichever is there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.errors import OptionError
from strandline.inputs.replicas.replica_choice import choose
from strandline.inputs.replicas.replica_place import ReplicaPlace
from strandline.inputs.replicas.replica_reader import ReplicaReader, snapshot, snapshot_schema
from strandline.inputs.replicas.replica_set import PATIENCE_US
from strandline.log.operator_state.outage import State
from strandline.log.operator_state.upstream import group_of
from strandline.log.reading.bounds import Bound
from strandline.log.storage.redaction import redacted_url
from strandline.log.stream.spec import StreamSpec
from strandline.running.promise import answer_s
from strandline.spark.describe.operator_input import OperatorInput
from strandline.spark.operator.processing_element import ReplicatedInput
from strandline.spark.read.spark_reading import streamed
from strandline.spark.read.stream import Stream
from strandline.spark.session.place import Place
from strandline.times import Time, time_value
from strandline.units import Duration, clock_us
from strandline.wording import plural

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class ReplicaSummary:
    """One replica as it is now."""

    path: str
    state: State | None
    """None if it cannot be read."""
    results: int
    """How many it has published in all, over all partitions."""
    is_behind: bool
    """True if other replicas were ahead of this one for longer than the patience, at all looks of this object."""
    is_chosen: bool
    """True if a reader that begins now reads this replica."""
    problem: str
    """Why it cannot be read; empty if it can."""


class Replicas(ReplicatedInput, OperatorInput):
    """Replicas of an operator's stream. Every method sees what is published when it is called."""

    def __init__(self, places: tuple[Place, ...], patience_us: int = PATIENCE_US) -> None:
        self._places = places
        self._patience_us = patience_us
        self._set = self.replica_set()
        self._input_place = places[0]

    def __repr__(self) -> str:
        spec = self._set.spec
        paths = ", ".join(repr(redacted_url(place.url)) for place in self._places)
        return f"Replicas({paths}, {plural(spec.partitions, 'partition')})"

    # ------------------------------------------------------------------ as an input of operators

    @property
    def _input_spec(self) -> StreamSpec:
        """The spec that all replicas share; its id is that of the group."""
        return replace(self._set.spec, id=self.group)

    @property
    def group(self) -> str:
        """The identity that all replicas share."""
        return group_of(self._set.spec)

    def group_id(self) -> str:
        """Returns `group`, as operators ask any input with replicas for it: some of those are not there yet."""
        return self.group

    # ------------------------------------------------------------------ what they are

    @property
    def partitions(self) -> int:
        """Into how many partitions the keys are spread."""
        return self._set.spec.partitions

    def describe(self) -> list[ReplicaSummary]:
        """Describes each replica: its state, its results, and whether it is read."""
        sights = self._set.look()
        chosen = choose(sights, (0,) * self.partitions)
        found = []
        for number, (place, sight) in enumerate(zip(self._places, sights, strict=True)):
            problem = self._set.problems[number]
            found.append(
                ReplicaSummary(
                    redacted_url(place.url),
                    sight.state if sight else None,
                    sum(sight.results) if sight else 0,
                    sight.is_behind if sight else False,
                    number == chosen,
                    problem.what if problem else "",
                )
            )
        return found

    # ------------------------------------------------------------------ reading

    def read(
        self,
        spark: SparkSession,
        *,
        since: Bound | None = None,
        until: Bound | None = None,
        positions: bool = False,
        tentative: bool = False,
    ) -> DataFrame:
        """Reads the results of the best replica as a DataFrame, from the time `since` on and before the time `until`.

        With `tentative`, also those that this replica guesses while inputs are missing, and the column `_tentative`.
        The DataFrame is that of one replica: should it be lost while the DataFrame is in use, call `read` again. See
        `Stream.read`. Offsets mean another place in each replica, so bounds are times only, and `positions` refused.
        """
        for name, bound in (("since", since), ("until", until)):
            if isinstance(bound, Mapping):
                raise OptionError(
                    f"{name}= of replicas takes times, and no offsets",
                    todo="give a time: the offsets of replicas differ",
                )
        if positions:
            raise OptionError(
                "positions=True does not work for replicas",
                todo="read one of the streams: the offsets of replicas differ",
            )
        chosen = choose(self._set.look(), (0,) * self.partitions)
        if chosen is None:
            raise self._set.none_readable()
        place = self._places[chosen]
        return Stream(place.url, place.options).read(spark, since=since, until=until, tentative=tentative)

    def read_stream(
        self,
        spark: SparkSession,
        *,
        start: Time = "earliest",
        max_tuples_per_batch: int | None = None,
        consumer: str | None = None,
        positions: bool = False,
        tentative: bool = False,
    ) -> DataFrame:
        """Reads the results as a streaming DataFrame, each once, from any replica; see `Stream.read_stream`.

        It begins with the oldest result of the best replica, with what it has "latest", or at a time. A batch that
        Spark repeats is the same from any replica. While none is there that has what was read, the query waits; a batch
        that has begun waits a minute. `consumer` is registered at every replica that can be written. `positions` adds
        `_partition` and `_result`, the number of a result in it, which is the same in all replicas.
        `tentative` gives all that happens, with both columns and `_kind`, see `follow`. A batch that is repeated has
        the same stable results and no tentative ones: these are undone, and told anew in the next.
        """
        from strandline.spark.read.read_options import SECRET_OPTIONS

        options = {
            "replicas": json.dumps([place.url for place in self._places]),
            "patience": f"{self._patience_us} us",
            SECRET_OPTIONS: json.dumps(dict(self._places[0].options)),
            "max_tuples_per_batch": max_tuples_per_batch,
            "consumer": consumer,
            "positions": positions,
            "tentative": tentative,
        }
        where, kind = ", ".join(redacted_url(place.url) for place in self._places), self._set.spec.time_kind
        return streamed(spark, where, options, start, lambda time, zone: time_value(time, "start", kind, zone))

    def to_arrow(self, *, tentative: bool = False) -> pa.Table:
        """Reads the results as one Arrow table, with `_partition` and `_result`, the number of a result in its
        partition.

        With `tentative` those follow that no undo has voided, and a column `_tentative`. A replica that is lost on the
        way is no matter as long as another is there.
        """
        tables = list(snapshot(self._set, tentative=tentative))
        return pa.concat_tables([snapshot_schema(self._set, tentative=tentative).empty_table(), *tables])

    def follow(
        self, place: Mapping[str, Any] | None = None, *, every: Duration = "100 ms"
    ) -> Iterator[tuple[pa.Table, dict[str, Any]]]:
        """Yields changes as Arrow tables, each with the place behind it; from the oldest result on, or from a place.

        `_kind` is "stable", "tentative", "undo" (the tentative ones of this `_partition` are void) or "rec_done";
        `_result` says how many stable results of the partition come before. Keep a place together with what you made of
        the tables up to it: a reader that begins there gets every stable result once. Waits while there is nothing to
        read; ends with the stream.
        """
        known = None if place is None else ReplicaPlace.from_json(place)
        reader = ReplicaReader(self.replica_set(), known)
        for table in reader.follow(clock_us(every, "every") / 1_000_000):
            assert reader.place is not None
            yield table, reader.place.to_json()


def replicas(*paths: str, storage_options: Mapping[str, Any] | None = None, patience: Duration = "3 s") -> Replicas:
    """Reads replicas as one stream: `sl.replicas("streams/average-1", "streams/average-2").to_arrow()`.

    They are streams of the same operator over the same inputs; raises if they are not, with what differs. One that is
    STABLE is read first, then the one with the most results. A replica that cannot be read, that lacks what was read,
    or that others are ahead of for longer than `patience` is not read as long as there is another. They are an input of
    operators, as a stream is: `sl.replicas(…).window(…)`.
    """
    for path in paths:
        if not isinstance(path, str):
            raise OptionError(f"{path!r} is not the path of a replica", todo="give the paths of streams, one by one")
    patience_us = clock_us(patience, "patience")
    places = (Place(path, options=dict(storage_options or {})) for path in paths)
    return Replicas(tuple(place.within(answer_s(patience_us)) for place in places), patience_us)
