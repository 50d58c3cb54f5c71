"""The stream.json of an operator behind `where` and `select` is read as ever: what it says, and what it computes.

`python -m tests.golden.test_shaped` makes the file; what is there is never written again. Its bytes may be others with
another Arrow, which is why only its texts are compared with those of today.
"""

import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from strandline.inputs.stream_definition import definition_of
from strandline.log.stream.spec import SHAPED_FORMAT, StreamSpec
from strandline.operators.aggregate import aggregates as agg
from strandline.operators.aggregate.windows import count_window
from tests.support.operator_streams import output_spec, plan, rows_table, select, where

FILE = Path(__file__).parent / "shaped" / "stream.json"


def make() -> StreamSpec:
    """A filter with a list, a product, a cast and a text function."""
    v, x, s = (pc.field(c) for c in "vxs")
    some = where(s.isin(["key1", "keykey2"]) & (x > -0.25))
    shape = select("k", some, product=v * x, half=(v / 2).cast("double"), upper=pc.utf8_upper(s))
    p = plan(count_window(3), ["k"], shape, total=agg.sum("product"), half=agg.max("half"), last=agg.last("upper"))
    return replace(output_spec(p), format=SHAPED_FORMAT)


def test_the_golden_stream_is_that_of_todays_program() -> None:
    golden = StreamSpec.from_json(FILE.read_bytes(), "golden")
    golden.require_same(make(), "golden")
    assert golden.format == 3


def test_the_golden_expressions_compute_what_they_always_did() -> None:
    golden = StreamSpec.from_json(FILE.read_bytes(), "golden")
    rows = [{"k": 1, "s": s, "v": 7, "x": x, "t": 5} for s, x in (("key1", 0.5), ("key1", -0.5), ("no", 1.0))]
    found = definition_of(golden, "golden").shape.over(rows_table(rows))
    kept = {"k": 1, "t": 5, "product": 3.5, "half": 3.0, "upper": "KEY1", "_offset": 0}
    assert found == pa.Table.from_pylist([kept], schema=found.schema)


if __name__ == "__main__":
    if FILE.exists():
        sys.exit(f"{FILE} is frozen")
    FILE.parent.mkdir()
    FILE.write_bytes(make().to_json())
