"""The options of `format("strandline")`: Spark's texts, checked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strandline.errors import OptionError
from strandline.inputs.replicas.replica_set import PATIENCE_US, ReplicaSet
from strandline.log.reading.moment import Moment
from strandline.log.storage.redaction import redacted_url
from strandline.log.stream.spec import StreamSpec
from strandline.running.promise import answer_s
from strandline.spark.session.place import Place
from strandline.times import time_value, zone_named
from strandline.units import duration_us

SECRET_OPTIONS = "storage_options_secret"
"""The same as `storage_options`, by a name whose value Spark leaves out of every plan that it shows."""
MOMENT = "moment"
"""The offsets that `Stream.read` has found published: its DataFrame stays the same whenever Spark plans it."""
_OPTIONS = {
    "path",
    "replicas",
    "patience",
    "since",
    "until",
    "late",
    "positions",
    "tentative",
    "start",
    "time_zone",
    "max_tuples_per_batch",
    "consumer",
    "storage_options",
    SECRET_OPTIONS,
    MOMENT,
}


@dataclass(frozen=True)
class ReadOptions:
    """The options of `format("strandline")`, checked."""

    place: Place
    """Of replicas, that of the first."""
    replicas: tuple[Place, ...]
    """Where all of them are; none if it is one stream."""
    patience_us: int
    since: str | None
    """Times as they were written: what they mean the stream's time column says."""
    until: str | None
    zone: str
    late: bool
    positions: bool
    tentative: bool
    """Of a streaming read: all that happens to results. Of a moment: also those results that count then."""
    moment: Moment | None
    """Of a batch read: the part of the stream that it gets; None for all that is published when it is planned."""
    start: str
    max_tuples_per_batch: int | None
    consumer: str | None

    @classmethod
    def of(cls, options: Mapping[str, str], zone: str = "UTC") -> ReadOptions:
        """Reads Spark's texts; option names are the same with and without underscores, in any case."""
        given = {_plain(name): value for name, value in options.items()}
        known = {_plain(name): name for name in _OPTIONS}
        unknown = set(given) - set(known)
        if unknown:
            raise OptionError(
                f"unknown option {sorted(unknown)[0]!r} of format('strandline')",
                todo=f"the options are {', '.join(sorted(_OPTIONS))}",
            )
        values = {known[name]: value for name, value in given.items()}
        if "path" not in values and "replicas" not in values:
            raise OptionError(
                "format('strandline') needs a path",
                todo="pass it to load() or as option 'path'; a table is created without columns, for with them Spark "
                "forgets its path: CREATE TABLE name USING strandline OPTIONS (path '…')",
            )
        limit = values.get("max_tuples_per_batch")
        if limit is not None and not (limit.isdigit() and int(limit) > 0):
            raise OptionError(f"max_tuples_per_batch={limit!r} is not a positive number", todo="for example 500000")
        late, tentative = (_truth(values.get(name, "false"), name) for name in ("late", "tentative"))
        if late:
            _require_side_log(values, tentative=tentative)
        options_ = _storage_options(values)
        patience_us = duration_us(values.get("patience", PATIENCE_US), "patience")
        places = (Place(path, options=options_) for path in _replicas(values))
        replicas = tuple(place.within(answer_s(patience_us)) for place in places)  # there are others
        return cls(
            place=replicas[0] if replicas else Place(values["path"], options=options_),
            replicas=replicas,
            patience_us=patience_us,
            since=values.get("since"),
            until=values.get("until"),
            zone=values.get("time_zone", zone),
            late=late,
            positions=_truth(values.get("positions", "false"), "positions"),
            tentative=tentative,
            moment=_moment(values[MOMENT]) if MOMENT in values else None,
            start=values.get("start", "earliest"),
            max_tuples_per_batch=int(limit) if limit else None,
            consumer=values.get("consumer"),
        )

    @property
    def where(self) -> str:
        """The address of the stream, or those of all replicas."""
        return ", ".join(redacted_url(place.url) for place in self.replicas or (self.place,))

    @property
    def tells_changes(self) -> bool:
        """True if the read shows all changes of results, not those that count at some moment."""
        return self.tentative and self.moment is None

    @property
    def address(self) -> dict[str, str]:
        """The options with the address of the stream or the replicas, complete for any other program."""
        if not self.replicas:
            return {"path": self.place.url}
        return {"replicas": json.dumps([place.url for place in self.replicas])}

    def require_batch(self) -> None:
        """Raises unless a batch read can be made of this."""
        if self.tells_changes:
            raise OptionError(
                "the option tentative of format('strandline') is for streaming reads",
                where=self.where,
                todo="use sl.stream(…).read(spark, tentative=True)",
            )
        if self.replicas:
            raise OptionError(
                "the option replicas of format('strandline') is for streaming reads",
                where=self.where,
                todo="use sl.replicas(…).read(spark)",
            )

    def require_streaming(self) -> None:
        """Raises unless a streaming read can be made of this."""
        if self.since is not None or self.until is not None or self.moment is not None:
            raise OptionError(
                "since, until and moment are for batch reads",
                todo="use start= for the starting point of a streaming read",
            )

    def replica_set(self) -> ReplicaSet:
        """Opens the replicas."""
        return ReplicaSet([place.open for place in self.replicas], patience_us=self.patience_us)

    def spec(self) -> StreamSpec:
        """Returns the spec of the stream, or of the replicas."""
        return self.replica_set().spec if self.replicas else self.place.open().spec

    def times(self, spec: StreamSpec) -> tuple[int | None, int | None]:
        """Returns `since` and `until` as the stream's integers; raises `OptionError` if they are no times of it."""
        return self._time("since", self.since, spec), self._time("until", self.until, spec)

    def start_time(self, spec: StreamSpec) -> int | None:
        """Returns the time at which a streaming read begins; None if it begins at an end of the stream."""
        return None if self.start in ("earliest", "latest") else self._time("start", self.start, spec)

    def _time(self, name: str, text: str | None, spec: StreamSpec) -> int | None:
        return None if text is None else time_value(text, name, spec.time_kind, lambda: zone_named(self.zone))


def _require_side_log(values: Mapping[str, str], *, tentative: bool) -> None:
    """Raises if the other options ask for what a side log does not have."""
    if tentative:
        raise OptionError(
            "late=True does not go with tentative=True", todo="leave one of them out: late tuples are never tentative"
        )
    if "consumer" in values:
        raise OptionError(
            "consumer= does not go with late=True: consumers keep tuples of partitions, and not of the side log",
            todo="leave out consumer=; if a truncation drops late tuples before the query reads them, the query says "
            "so",
        )
    if "replicas" in values:
        raise OptionError(
            "late=True does not work for replicas", todo="read the side log of one of them: sl.stream(path)"
        )


def _storage_options(values: dict[str, str]) -> dict[str, Any]:
    text = values.get(SECRET_OPTIONS, values.get("storage_options", "{}"))
    try:
        options = json.loads(text)
    except ValueError:  # which holds the text
        options = None
    if not isinstance(options, dict):
        raise OptionError("storage_options is not a JSON object", todo='write it like {"endpoint_url": "https://…"}')
    return options


def _replicas(values: Mapping[str, str]) -> list[str]:
    """Returns the paths of replicas, if there are any."""
    if "replicas" not in values:
        return []
    if "path" in values:
        raise OptionError(
            "path= and replicas= cannot be used together", todo="give replicas=, a JSON list of paths, or a path"
        )
    try:
        paths = json.loads(values["replicas"])
    except ValueError:
        paths = None
    if not isinstance(paths, list) or not paths or not all(isinstance(path, str) for path in paths):
        raise OptionError("replicas is not a JSON list of paths", todo='write it like ["streams/a", "streams/b"]')
    return paths


def _moment(text: str) -> Moment:
    try:
        return Moment.from_text(text)
    except (ValueError, TypeError, KeyError):
        raise OptionError(
            "the option moment is for Stream.read, and this value is not from there",
            todo="leave moment out: then all that is published now is read",
        ) from None


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _truth(text: str, option: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise OptionError(f"{option}={text!r} is not true or false")
    return text.lower() == "true"


def shared_out(waiting: Sequence[int], limit: int) -> list[int]:
    """Divides a limit among the partitions in proportion to what waits, so that all pass through time together."""
    total = sum(waiting)
    found = [w * limit // total for w in waiting]
    rest = limit - sum(found)
    for p, w in enumerate(waiting):
        extra = min(rest, w - found[p])
        found[p] += extra
        rest -= extra
    return found
