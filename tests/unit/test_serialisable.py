"""Which streams can be read as one, and what is said of the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.errors import OptionError, SchemaError, StrandlineError, StreamMismatchError
from strandline.inputs.serialisable import require_serialisable
from strandline.log.stream.spec import StreamSpec
from tests.support.items import item_spec

A, B = item_spec(2, name="a"), item_spec(2, name="b")


def spec_of(columns: dict[str, str], key: tuple[str, ...] = ("k",), time: str = "t") -> StreamSpec:
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in columns.items()]
    return StreamSpec("c", {"type": "struct", "fields": fields}, key, time, 2, 0)


def test_streams_that_agree_are_read_as_one() -> None:
    require_serialisable({"a": A, "b": B})
    require_serialisable({"a": A, "c": spec_of({"t": "long", "other": "string", "k": "long"})})


@pytest.mark.parametrize(
    ("other", "kind", "message"),
    [
        (A, OptionError, "a and other are the same stream"),
        (item_spec(3, name="b"), StreamMismatchError, "(?s)differ in partitions.*a: 2; other: 3"),
        (replace(B, lateness=None), OptionError, "other has no lateness"),
        (spec_of({"k": "string", "t": "long"}), SchemaError, "(?s)differ in key.*a: k long; other: k string"),
        (spec_of({"j": "long", "t": "long"}, ("j",)), SchemaError, "differ in key"),
        (spec_of({"k": "long", "t": "timestamp"}), SchemaError, "(?s)differ in time\n.*other: timestamp"),
        (
            replace(B, operator={"window": {"kind": "count"}, "footprints": []}),
            OptionError,
            "other holds results of count windows",
        ),
    ],
)
def test_others_are_refused_with_what_differs(other: StreamSpec, kind: type[StrandlineError], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        require_serialisable({"a": A, "other": other})
    assert caught.value.todo


def test_one_stream_has_to_keep_time_to_be_joined_with_itself() -> None:
    require_serialisable({"a": A})
    with pytest.raises(OptionError, match="a has no lateness"):
        require_serialisable({"a": replace(A, lateness=None)})
