"""The options of `format("strandline")`: Spark's texts, checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strandline.errors import OptionError
from strandline.log.spec import StreamSpec
from strandline.spark.place import Place
from strandline.times import time_value, zone_named

SECRET_OPTIONS = "storage_options_secret"
"""The same as `storage_options`, by a name whose value Spark leaves out of every plan that it shows."""
_OPTIONS = {
    "path",
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
}


@dataclass(frozen=True)
class ReadOptions:
    """The options of `format("strandline")`, checked."""

    place: Place
    since: str | None
    """Times as they were written: what they mean the stream's time column says."""
    until: str | None
    zone: str
    late: bool
    positions: bool
    tentative: bool
    """Of a streaming read: all that happens to results."""
    start: str
    max_tuples_per_batch: int | None
    consumer: str | None

    @classmethod
    def of(cls, options: Mapping[str, str], zone: str = "UTC") -> ReadOptions:
        """From Spark's texts; option names are the same with and without underscores, in any case."""
        given = {_plain(name): value for name, value in options.items()}
        known = {_plain(name): name for name in _OPTIONS}
        unknown = set(given) - set(known)
        if unknown:
            raise OptionError(
                f"unknown option {sorted(unknown)[0]!r} of format('strandline')",
                todo=f"the options are {', '.join(sorted(_OPTIONS))}",
            )
        if "path" not in given:
            raise OptionError(
                "format('strandline') needs a path",
                todo="pass it to load() or as option 'path'; a table is created without columns, for with them Spark "
                "forgets its path: CREATE TABLE name USING strandline OPTIONS (path '…')",
            )
        values = {known[name]: value for name, value in given.items()}
        limit = values.get("max_tuples_per_batch")
        if limit is not None and not (limit.isdigit() and int(limit) > 0):
            raise OptionError(f"max_tuples_per_batch={limit!r} is not a positive number", todo="for example 500000")
        return cls(
            place=Place(values["path"], options=_storage_options(values)),
            since=values.get("since"),
            until=values.get("until"),
            zone=values.get("time_zone", zone),
            late=_truth(values.get("late", "false"), "late"),
            positions=_truth(values.get("positions", "false"), "positions"),
            tentative=_truth(values.get("tentative", "false"), "tentative"),
            start=values.get("start", "earliest"),
            max_tuples_per_batch=int(limit) if limit else None,
            consumer=values.get("consumer"),
        )

    def times(self, spec: StreamSpec) -> tuple[int | None, int | None]:
        """`since` and `until` as the stream's integers; `OptionError` if they are no times of it."""
        return self._time("since", self.since, spec), self._time("until", self.until, spec)

    def start_time(self, spec: StreamSpec) -> int | None:
        """The time at which a streaming read begins; None if it begins at an end of the stream."""
        return None if self.start in ("earliest", "latest") else self._time("start", self.start, spec)

    def _time(self, name: str, text: str | None, spec: StreamSpec) -> int | None:
        return None if text is None else time_value(text, name, spec.time_kind, lambda: zone_named(self.zone))


def _storage_options(values: dict[str, str]) -> dict[str, Any]:
    text = values.get(SECRET_OPTIONS, values.get("storage_options", "{}"))
    try:
        options = json.loads(text)
    except ValueError:  # which holds the text
        options = None
    if not isinstance(options, dict):
        raise OptionError("storage_options is not a JSON object", todo='write it like {"endpoint_url": "https://…"}')
    return options


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _truth(text: str, option: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise OptionError(f"{option}={text!r} is not true or false")
    return text.lower() == "true"
