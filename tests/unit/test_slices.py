"""What a task of Spark reads of a stream that changes under its hands."""

from pathlib import Path

from strandline.log.stream.append_commit import Append
from strandline.log.stream.log import Log
from strandline.log.upkeep.compaction import compact
from strandline.spark.read.read_options import ReadOptions
from strandline.spark.read.source import Slice, read_slice
from strandline.spark.read.source_schema import spark_schema
from strandline.spark.session.place import Place
from tests.support.items import append_items, item_spec, write_items

SIDE = 2


def test_reasons_are_known_of_tuples_that_were_compacted_and_collected_since(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "stream"), "os")
    log = Log.create(place.storage(), item_spec(2, lateness=10))
    append_items(log, {0: [(0, 0, 1_000)]})
    many = [(i, i * 7_919 % 1_000_003, 500) for i in range(20_000)]
    log.append(Append([write_items(log.storage, log.spec, SIDE, 0, many, "large")]))
    for i in range(16):  # every second one is outside of the time range, and not planned
        time = 600 if i % 2 else 1
        log.append(
            Append([write_items(log.storage, log.spec, SIDE, log.state.ends[SIDE], [(0, i, time)], f"small{i}")])
        )
    planned = list(log.blocks(SIDE, time_from=400))
    part = Slice(log.spec.to_json(), SIDE, 0, log.state.ends[SIDE], planned, times=(400, None))
    old = {b.file for b in log.blocks(SIDE)}
    compact(log, blocks_min=2, target_bytes=60_000)
    for file in old - {b.file for b in log.blocks(SIDE)}:
        log.storage.delete(file)
    options = ReadOptions.of({"path": place.url, "late": "true", "positions": "true"})
    read = list(read_slice(part, options, spark_schema(log.spec, late=True, positions=True)))
    assert sum(len(rows) for rows in read) == 20_000 + 8
    assert {reason for rows in read for reason in rows.column("_reason").to_pylist()} == {"late"}
