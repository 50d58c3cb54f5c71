"""`stream.json`: what a stream is, decided once, when it is created."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import xxhash

from strandline.control_columns import KIND, OFFSET, PARTITION
from strandline.errors import (
    CorruptManifestError,
    FormatVersionError,
    NotAStreamError,
    OptionError,
    SchemaError,
    StreamMismatchError,
)
from strandline.log.operator_state.beginning import Beginning
from strandline.log.operator_state.operator_words import (
    WordsOf,
    differences,
    kind_words,
    origin_text,
    rekey_advice,
    schema_difference,
    version_advice,
)
from strandline.log.operator_state.upstream import origins_of
from strandline.log.stream.column_types import arrow_schema, block_schema, fields_of, type_name
from strandline.log.stream.reason import ending
from strandline.private_folder import is_plain_name
from strandline.schema_text import struct_json
from strandline.times import TimeKind
from strandline.units import Retention
from strandline.wording import exact_duration

FORMAT = 2
SHAPED_FORMAT = 3
"""Of the stream of an operator with a shape before it, or whose aggregates have conditions or other options."""
SEVERAL_FORMAT = 4
"""Of the stream of an operator over several inputs: a reader of format 3 expects one."""
REPLICAS_FORMAT = 5
"""Of the stream of an operator over replicas: a reader of format 4 would mistake offsets of one for another's."""
SINCE_FORMAT = 6
"""Of the stream of an operator that does not begin with the first tuples of its inputs: older readers would."""
_READABLE = (1, FORMAT, SHAPED_FORMAT, SEVERAL_FORMAT, REPLICAS_FORMAT, SINCE_FORMAT)
KEY = "stream.json"
RESTORE_KEY = "restore.json"
"""At a place where a stream is being restored; stream.json follows when all else is there."""
_HEAD = b'{\n  "format": '
PARTITIONS_MAX = 10_000
_SAID = "format id schema key time partitions lateness retention created_by created_us upstream"
"""The fields that every stream.json has, in their order."""

_KEY_TYPES = ("byte", "short", "integer", "long", "string", "binary", "date", "timestamp", "timestamp_ntz", "boolean")
_TIMESTAMP_TYPES = ("timestamp", "timestamp_ntz")
_TIME_TYPES = (*_TIMESTAMP_TYPES, "long", "integer", "short", "byte")


@dataclass(frozen=True)
class StreamSpec:
    """The fixed facts of a stream. Times and durations are the log's integers (see `units`)."""

    id: str
    schema: Mapping[str, Any]
    """The tuples' schema, in the JSON that Spark gives and takes (`df.schema.jsonValue()`)."""
    key: tuple[str, ...]
    time: str
    partitions: int
    lateness: int | None = 0
    """How far behind the largest time a tuple may come; None: nothing is ever late."""
    retention: Retention | None = None
    created_by: str = ""
    created_us: int = 0
    upstream: Mapping[str, Any] | None = None
    operator: Mapping[str, Any] | None = None
    """The operator that computes this stream: window, aggregates, and the columns of its footprints."""
    begins: Beginning | None = None
    """Where its operator began in its inputs; None: with all that they held."""
    format: int = FORMAT
    added: int = 0
    """So many of the last columns came later, by commits: older blocks do not have them. stream.json has none."""
    arrow: pa.Schema = field(init=False, repr=False, compare=False)
    block: pa.Schema = field(init=False, repr=False, compare=False)
    """The columns of a block as they are read, `_offset` and `_kind` among them."""
    stored: pa.Schema = field(init=False, repr=False, compare=False)
    """The columns in a block's file."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", normalised(self.schema))
        self._check()
        object.__setattr__(self, "arrow", arrow_schema(self.schema))
        footprints = [(name, kind) for name, kind in (self.operator or {}).get("footprints", ())]
        object.__setattr__(self, "block", block_schema(self.arrow, footprints))
        object.__setattr__(self, "stored", self.block if self.is_stamped else self.arrow)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the tuples' own columns."""
        return tuple(f["name"] for f in fields_of(self.schema))

    @property
    def is_stamped(self) -> bool:
        """True if files have `_offset` and `_kind`: where footprints stand between the results, and in format 1.

        In other files tuple i is a result with the offset `first + i`, so two columns would say nothing.
        """
        return self.operator is not None or self.format == 1

    @property
    def time_is_timestamp(self) -> bool:
        """True if the time column is a timestamp (otherwise it is an integer)."""
        return self._type_of(self.time) in _TIMESTAMP_TYPES

    @property
    def time_kind(self) -> TimeKind:
        """The kind of the stream's times: on the clock of UTC, on an unknown clock, or numbers."""
        kind = self._type_of(self.time)
        return "timestamp" if kind == "timestamp" else "timestamp_ntz" if kind == "timestamp_ntz" else "integer"

    @property
    def is_written_in_order(self) -> bool:
        """True if the results of a batch are in the order of time.

        An outer join writes tuples without a match later. An operator with an `output` keeps the order of its input.
        """
        operator = self.operator or {}
        return "output" not in operator and operator.get("windows", {}).get("how", "inner") == "inner"

    @property
    def time_is_offset(self) -> bool:
        """True if times are offsets of a partition's input, as with count windows: then no two partitions compare."""
        operator = self.operator or {}
        return bool(operator.get("time_is_offset", operator.get("window", {}).get("kind") == "count"))

    @property
    def delta_encoded(self) -> tuple[str, ...]:
        """Columns stored as differences: the numbers in an operator's stream, which grow slowly or stay the same."""
        if self.operator is None:
            return ()
        return tuple(f.name for f in self.block if pa.types.is_int64(f.type) or pa.types.is_timestamp(f.type))

    @property
    def late(self) -> int:
        """The number under which the late side log goes beside the partitions 0 … P-1."""
        return self.partitions

    def folder(self, partition: int) -> str:
        """Returns the folder of the blocks of a partition (or of the late side log)."""
        return "late" if partition == self.late else f"blocks/p{partition:05d}"

    def file(self, partition: int, first: int, unique: str, reason: str | None = None) -> str:
        """Returns a name for a block, used once. It begins with the first offset; in the side log it has the reason.

        So a file alone shows where its tuples stand.
        """
        return f"{self.folder(partition)}/{first:020d}-{unique}{ending(reason)}"

    def to_json(self) -> bytes:
        """Returns the bytes of stream.json."""
        body = {name: getattr(self, name) for name in _SAID.split()}
        if self.operator is not None:
            body["operator"] = self.operator
        if self.begins is not None:
            body["begins"] = self.begins.to_json()
        if self.added:  # on its way to a task
            body["added"] = self.added
        return json.dumps({**body, "checksum": _checksum(body)}, indent=2).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes, where: str) -> StreamSpec:
        """Returns the spec that stream.json holds; raises an error that names `where` if it holds none."""
        try:
            body = json.loads(data)
            version = body["format"]
        except (ValueError, TypeError, KeyError):
            if not data or data.startswith(_HEAD):
                raise CorruptManifestError(
                    "stream.json is not complete: it is empty, or its end is missing",
                    where=where,
                    todo="restore stream.json from a copy; the other files of the stream are not affected",
                ) from None
            raise NotAStreamError(
                "Strandline has not written this stream.json",
                where=where,
                todo="choose another path, or restore the file",
            ) from None
        if version not in _READABLE:
            raise FormatVersionError(
                f"the stream has format version {version}, this Strandline reads versions up to {max(_READABLE)}",
                where=where,
                todo="upgrade Strandline",
            )
        if body.pop("checksum", None) != _checksum(body):
            raise CorruptManifestError(
                "stream.json is not what was written: its checksum does not match",
                where=where,
                todo="restore stream.json from a copy; do not edit it by hand",
            )
        try:
            found = {name: body[name] for name in _SAID.split()}
            found |= {"id": checked_id(body["id"], where), "key": tuple(body["key"])}
            begins = Beginning.from_json(body["begins"]) if "begins" in body else None
            return cls(**found, operator=body.get("operator"), begins=begins, added=body.get("added", 0))
        except KeyError as missing:
            raise NotAStreamError(f"stream.json lacks {missing}", where=where, todo="restore stream.json") from None

    @property
    def added_columns(self) -> tuple[str, ...]:
        """Names of the columns that older blocks may not have."""
        return self.columns[len(self.columns) - self.added :]

    def with_added(self, columns: Sequence[Mapping[str, Any]]) -> StreamSpec:
        """Returns the spec with further columns at its end, as far as it does not have them yet."""
        known = {f["name"]: type_name(f["type"]) for f in fields_of(self.schema)}
        for column in columns:
            if known.get(column["name"], type_name(column["type"])) != type_name(column["type"]):
                raise CorruptManifestError(
                    f"a commit adds {column['name']!r} as {type_name(column['type'])}, "
                    f"it is {known[column['name']]} already",
                    where=f"stream {self.id}",
                    todo="run `strandline verify` on the stream",
                )
        new = [column for column in columns if column["name"] not in known]
        schema = {"type": "struct", "fields": [*fields_of(self.schema), *new]}
        return replace(self, schema=schema, added=self.added + len(new)) if new else self

    def changed(self, added: Sequence[Mapping[str, Any]], revised: Mapping[str, Any] | None) -> StreamSpec:
        """Returns the spec with further columns, and with what a later version of its operator has changed."""
        found = self.with_added(added)
        return found if not revised else replace(found, operator={**(found.operator or {}), **revised})

    def additions(self, asked: StreamSpec) -> list[Mapping[str, Any]]:
        """Returns the columns that `asked` has behind all of this stream's; none if they differ otherwise."""
        ours, theirs = ([(f["name"], type_name(f["type"])) for f in fields_of(s.schema)] for s in (self, asked))
        if theirs[: len(ours)] != ours:
            return []
        return [{"name": f["name"], "type": f["type"]} for f in fields_of(asked.schema)[len(ours) :]]

    def require_same(self, asked: StreamSpec, where: str, words_of: WordsOf = kind_words) -> None:
        """Raises if `asked`, the stream of a program, does not fit this one; `words_of` gives texts of operators."""
        self._require_same_operator(asked, where, words_of)
        self._require_same_origin(asked, where)
        ours = {f["name"]: type_name(f["type"]) for f in fields_of(self.schema)}
        theirs = {f["name"]: type_name(f["type"]) for f in fields_of(asked.schema)}
        if list(ours.items()) != list(theirs.items()):
            raise SchemaError(
                f"the DataFrame's schema differs from the stream's: {schema_difference(ours, theirs)}",
                where=where,
                todo="select and cast the columns to the stream's schema, or write to a new stream"
                + self._way_on(asked),
            )
        for name in ("key", "time", "partitions", "lateness"):
            mine, wanted = getattr(self, name), getattr(asked, name)
            if mine != wanted:
                if name == "lateness" and self.time_is_timestamp:
                    mine, wanted = (None if us is None else exact_duration(us) for us in (mine, wanted))
                advice = ""
                if self.operator is None and name != "time":
                    advice = rekey_advice(wanted) if name == "key" else rekey_advice(self.key, **{name: wanted})
                raise StreamMismatchError(
                    f"the stream was created with {name}={mine!r}, this program says {name}={wanted!r}",
                    where=where,
                    todo=f"use {name}={mine!r}, or write to a new stream{advice}",
                )

    def _way_on(self, asked: StreamSpec) -> str:
        """Returns what else there is to do about a schema that differs."""
        if self.operator is not None or len(asked.columns) <= len(self.columns):
            return ""
        if self.additions(asked):
            return (
                '; or pass schema_evolution="add": the stream gets the new columns, which are null in all tuples so far'
            )
        has_all = all(f in fields_of(asked.schema) for f in fields_of(self.schema))
        return '; or put the new columns last and pass schema_evolution="add"' if has_all else ""

    def _require_same_operator(self, asked: StreamSpec, where: str, words_of: WordsOf) -> None:
        mine, wanted = self.operator, asked.operator
        if mine is None and wanted is None:
            return
        if mine is None or wanted is None:
            has = "was written by an entry point, not by an operator" if mine is None else "belongs to an operator"
            raise StreamMismatchError(f"the stream {has}", where=where, todo="write to a new stream")
        ours, theirs = mine.get("version", 1), wanted.get("version", 1)
        if theirs < ours:
            raise StreamMismatchError(
                f"the stream has gone on with version {ours} of its function, this program says version {theirs}",
                where=where,
                todo=f"use version {ours}, or give a new change of the function a later one: version={ours + 1}",
            )
        if mine.get("kind") != wanted.get("kind"):
            found = [f"it is made by {words_of(self).text}, in this program by {words_of(asked).text}"]
        else:
            found = list(differences(mine, wanted, is_timestamp=self.time_is_timestamp))
        before, now = (origins_of(s.upstream) for s in (self, asked))
        if [o.stream for o in before] != [o.stream for o in now]:
            found.append(f"its input is {' and '.join(map(str, before))}, here {' and '.join(map(str, now))}")
        if found:
            raise StreamMismatchError(
                f"the stream was computed by another operator: {'; '.join(found)}",
                where=where,
                todo=f"write to a new stream; only the checkpoint policy may change{version_advice(mine, wanted)}",
            )

    def _require_same_origin(self, asked: StreamSpec, where: str) -> None:
        """Raises if `rekey` would make the stream from another stream, or in another shape, than before."""
        mine, wanted = ({} if "shape" not in (s.upstream or {}) else dict(s.upstream or {}) for s in (self, asked))
        if [mine.get(n) for n in ("stream", "shape")] != [wanted.get(n) for n in ("stream", "shape")]:
            raise StreamMismatchError(
                f"the stream was made {origin_text(mine)}, this program makes it {origin_text(wanted)}",
                where=where,
                todo="write to a new stream",
            )

    def _type_of(self, column: str) -> str:
        for f in fields_of(self.schema):
            if f["name"] == column:
                return type_name(f["type"])
        raise SchemaError(
            f"there is no column {column!r}",
            where=f"columns: {', '.join(self.columns)}",
            todo="name one of these columns",
        )

    def _check(self) -> None:
        names = self.columns
        if len({n.lower() for n in names}) != len(names):
            raise SchemaError("two columns have the same name", where=", ".join(names), todo="rename one of them")
        for reserved in (OFFSET, KIND, PARTITION):
            if reserved in (n.lower() for n in names):
                raise SchemaError(f"the column name {reserved!r} is reserved", todo="rename the column")
        if not self.key:
            raise OptionError("a stream needs at least one key column", todo='pass key="column" or key=["a", "b"]')
        for column in self.key:
            kind = self._type_of(column)
            if kind not in _KEY_TYPES and not kind.startswith("decimal"):
                raise SchemaError(
                    f"key column {column!r} has type {kind}",
                    todo="keys are integers, strings, binary, dates, timestamps, booleans or decimals",
                )
        if self._type_of(self.time) not in _TIME_TYPES:
            raise SchemaError(
                f"time column {self.time!r} has type {self._type_of(self.time)}",
                todo="the time is a timestamp or an integer; cast it",
            )
        if type(self.partitions) is not int or not 1 <= self.partitions <= PARTITIONS_MAX:
            raise OptionError(
                f"partitions={self.partitions!r} is out of range", todo=f"use 1 to {PARTITIONS_MAX} partitions"
            )


def checked_id(found: object, where: str) -> str:
    """Returns the id of a stream; raises unless it is one plain name, because the state of operators lies under it."""
    if not isinstance(found, str) or not is_plain_name(found):
        raise CorruptManifestError(
            f"{found!r} cannot be the id of a stream: an id is one name of letters, digits, '-', '_', ':' and '.'",
            where=where,
            todo="restore stream.json from a copy; do not use a stream whose files you did not write",
        )
    return found


def _checksum(body: Mapping[str, Any]) -> str:
    """Returns a checksum over the values and their order, however the file is indented."""
    text = json.dumps(body, separators=(",", ":"))
    return f"xxh3:{xxhash.xxh3_64_hexdigest(text.encode())}"


def normalised(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the schema without nullability and metadata, neither of which changes what is stored."""
    return struct_json((f["name"], _nullable(f["type"])) for f in fields_of(schema))


def _nullable(kind: Any) -> Any:
    if not isinstance(kind, dict):
        return kind
    if kind["type"] == "struct":
        return normalised(kind)
    if kind["type"] == "array":
        return {"type": "array", "elementType": _nullable(kind["elementType"]), "containsNull": True}
    if kind["type"] == "map":
        key, value = _nullable(kind["keyType"]), _nullable(kind["valueType"])
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    return kind
