"""The kit for tests is public: its examples run, and its short cuts give what the real things give."""

import doctest
import importlib

import pytest

from strandline.log.stream.log import Log
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.retention import truncate
from strandline.testing import MemoryStorage, ModelStream
from tests.support.items import append_items, item_spec, read_items
from tests.support.plain_codec import plain_codec


@pytest.mark.parametrize("module", ["faulty_storage", "memory_storage", "model"])
def test_the_examples_run(module: str) -> None:
    found = doctest.testmod(importlib.import_module(f"strandline.testing.{module}"))
    assert found.attempted > 0
    assert found.failed == 0


def test_a_stream_of_lists_a_stream_of_json_and_a_stream_of_parquet_are_one() -> None:
    batches = [{0: [(i, i, i), (i, i + 1, i + 1)], 1: [(i, 0, i)] if i % 2 else []} for i in range(6)]
    model = ModelStream(2, time=lambda item: item[2])  # type: ignore[return-value]
    for batch in batches:
        model.append(batch)
    model.truncate(before_offset={0: 3})
    expected = [model.read(p) for p in range(3)]

    def real() -> list[object]:
        log = Log.create(MemoryStorage(), item_spec(lateness=1))
        for i, batch in enumerate(batches):
            append_items(log, batch, f"batch{i}")
        truncate(log, before_offset={0: 3})
        compact(log, blocks_min=2)
        log.fold()
        return [read_items(Log.open(log.storage), p) for p in range(3)]

    assert real() == expected
    with plain_codec():
        assert real() == expected
