"""What a stream may be, and `stream.json`: every bad input is refused in words that name it."""

import json
from typing import Any

import pytest

from strandline.errors import (
    CorruptManifestError,
    FormatVersionError,
    NotAStreamError,
    OptionError,
    SchemaError,
    StrandlineError,
    StreamMismatchError,
)
from strandline.log.stream.spec import StreamSpec
from tests.support.items import item_spec


def field(name: str, kind: Any, *, nullable: bool = True) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {}}


def spec(**changes: Any) -> StreamSpec:
    fields = changes.pop("fields", [field("k", "long"), field("price", "double"), field("t", "timestamp")])
    settings: dict[str, Any] = {"id": "s", "key": ("k",), "time": "t", "partitions": 2}
    return StreamSpec(schema={"type": "struct", "fields": fields}, **(settings | changes))


def test_a_spec_comes_back_from_its_json() -> None:
    stream = spec(lateness=5, retention=7, created_by="test", created_us=9, upstream={"format": "rate"})
    assert StreamSpec.from_json(stream.to_json(), "here") == stream
    assert spec(lateness=None) == StreamSpec.from_json(spec(lateness=None).to_json(), "here")


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"key": ()}, OptionError, "at least one key"),
        ({"key": ("nope",)}, SchemaError, "'nope'"),
        ({"time": "nope"}, SchemaError, "'nope'"),
        ({"key": ("price",)}, SchemaError, "'price' has type double"),
        ({"time": "price"}, SchemaError, "'price' has type double"),
        ({"partitions": 0}, OptionError, "partitions=0"),
        ({"partitions": -1}, OptionError, "partitions=-1"),
        ({"partitions": 10_001}, OptionError, "partitions=10001"),
        ({"partitions": "2"}, OptionError, "partitions='2'"),
        ({"partitions": 2.0}, OptionError, "partitions=2.0"),
        ({"partitions": True}, OptionError, "partitions=True"),
        ({"fields": [field("k", "long"), field("K", "long"), field("t", "long")]}, SchemaError, "the same name"),
        ({"fields": [field("k", "long"), field("_offset", "long"), field("t", "long")]}, SchemaError, "'_offset'"),
        ({"fields": [field("k", "long"), field("_KIND", "long"), field("t", "long")]}, SchemaError, "'_kind'"),
        (
            {"fields": [field("k", "long"), field("t", "long"), field("x", "variant")]},
            SchemaError,
            "'x' has type variant",
        ),
        ({"fields": [field("k", "long"), field("t", "long"), field("x", "void")]}, SchemaError, "'x' has type void"),
    ],
)
def test_a_spec_that_cannot_work_is_refused(changes: dict[str, Any], error: type[StrandlineError], says: str) -> None:
    with pytest.raises(error) as refused:
        spec(**changes)
    assert says in refused.value.what
    assert refused.value.todo


@pytest.mark.parametrize(
    "kind", ["byte", "short", "integer", "long", "string", "binary", "date", "timestamp", "boolean", "decimal(10,2)"]
)
def test_key_types(kind: str) -> None:
    assert spec(fields=[field("k", kind), field("t", "long")]).key == ("k",)


@pytest.mark.parametrize(
    ("kind", "is_timestamp"),
    [("timestamp", True), ("timestamp_ntz", True), ("long", False), ("integer", False), ("short", False)],
)
def test_time_types(kind: str, is_timestamp: bool) -> None:
    assert spec(fields=[field("k", "long"), field("t", kind)]).time_is_timestamp == is_timestamp


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"partitions": 3}, StreamMismatchError, "partitions=2, this program says partitions=3"),
        ({"time": "k", "key": ("t",)}, StreamMismatchError, "key="),
        ({"lateness": 5}, StreamMismatchError, "lateness='0 s', this program says lateness='5 us'"),
        ({"fields": [field("k", "long"), field("t", "timestamp")]}, SchemaError, "'price' is missing"),
        (
            {"fields": [field("k", "long"), field("price", "float"), field("t", "timestamp")]},
            SchemaError,
            "'price' is float, in the stream double",
        ),
        (
            {"fields": [field("price", "double"), field("k", "long"), field("t", "timestamp")]},
            SchemaError,
            "the order is price, k, t",
        ),
    ],
)
def test_a_program_with_other_settings_is_told_which(
    changes: dict[str, Any], error: type[StrandlineError], says: str
) -> None:
    with pytest.raises(error) as refused:
        spec().require_same(spec(**changes), "s3://bucket/stream")
    assert says in refused.value.what
    assert refused.value.where == "s3://bucket/stream"


@pytest.mark.parametrize(
    ("changes", "way"),
    [
        ({"partitions": 3}, 'rekey("k", "new/path", partitions=3, start="earliest")'),
        ({"key": ("t",)}, 'rekey("t", "new/path", start="earliest")'),
        ({"key": ("k", "t")}, 'rekey(["k", "t"], "new/path", start="earliest")'),
        ({"lateness": 5}, 'rekey("k", "new/path", lateness=\'5 us\', start="earliest")'),
        ({"lateness": None}, 'rekey("k", "new/path", lateness=None, start="earliest")'),
    ],
)
def test_who_wants_another_key_or_other_partitions_or_another_lateness_is_told_the_way(
    changes: dict[str, Any], way: str
) -> None:
    with pytest.raises(StreamMismatchError) as refused:
        spec().require_same(spec(**changes), "s3://bucket/stream")
    assert f"sl.stream(…).{way}" in refused.value.todo


def test_nullability_and_metadata_are_no_difference() -> None:
    strict = [field("k", "long", nullable=False), field("price", "double"), field("t", "timestamp", nullable=False)]
    spec().require_same(spec(fields=strict), "here")
    nested = {"type": "array", "elementType": "long", "containsNull": False}
    loose = {"type": "array", "elementType": "long", "containsNull": True}
    others = [field("k", "long"), field("t", "long")]
    spec(fields=[*others, field("x", nested)]).require_same(spec(fields=[*others, field("x", loose)]), "here")


@pytest.mark.parametrize("data", [b"hello", b"[]", b"1", b"{}", b'{"id": "x"}', b"\xff\xfe"])
def test_a_file_of_somebody_else_is_no_stream(data: bytes) -> None:
    with pytest.raises(NotAStreamError) as refused:
        StreamSpec.from_json(data, "here/stream.json")
    assert refused.value.where == "here/stream.json"


def test_a_torn_stream_json_is_no_longer_to_be_trusted_wherever_it_was_cut() -> None:
    data = item_spec().to_json()
    for length in [0, 20, len(data) // 2, len(data) - 3]:
        with pytest.raises(CorruptManifestError, match="not complete") as refused:
            StreamSpec.from_json(data[:length], "here/stream.json")
        assert "restore" in refused.value.todo


def test_a_newer_format_is_named_and_so_is_the_remedy() -> None:
    body = json.loads(item_spec().to_json()) | {"format": 7, "something": "new"}
    with pytest.raises(FormatVersionError, match="version 7, this Strandline reads versions up to 6") as refused:
        StreamSpec.from_json(json.dumps(body).encode(), "here")
    assert refused.value.todo == "upgrade Strandline"


def test_a_changed_stream_json_is_not_trusted() -> None:
    data = item_spec(lateness=10).to_json()
    with pytest.raises(CorruptManifestError, match="checksum"):
        StreamSpec.from_json(data.replace(b'"lateness": 10', b'"lateness": 11'), "here")
    # How it is indented says nothing.
    assert StreamSpec.from_json(json.dumps(json.loads(data)).encode(), "here") == item_spec(lateness=10)


def test_every_flipped_bit_of_stream_json_is_noticed() -> None:
    data = item_spec().to_json()
    for position in range(len(data) * 8):
        rotten = bytearray(data)
        rotten[position // 8] ^= 1 << (position % 8)
        try:
            found = StreamSpec.from_json(bytes(rotten), "here")
        except StrandlineError:
            continue
        assert found == item_spec(), "only white space may change without a word"


@pytest.mark.parametrize(
    "name", ["../elsewhere", "a/b", "/etc", ".", "..", ".hidden", "", "a\0b", "a\n", "a b", "a" * 101, 7, None, ["a"]]
)
def test_an_id_that_is_no_plain_name_is_refused(name: Any) -> None:
    with pytest.raises(CorruptManifestError, match="the id of a stream") as refused:
        StreamSpec.from_json(spec(id=name).to_json(), "here/stream.json")
    assert refused.value.where == "here/stream.json"
    assert refused.value.todo
