"""Read a stream with nothing but json and pyarrow. Run 01_persist_and_replay.py first, in the same folder."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq


def live_blocks(stream: Path) -> dict[int, list[dict]]:
    """Per partition, what the commits say of the blocks that hold its tuples now, in the order of their offsets."""
    partitions = json.loads((stream / "stream.json").read_text())["partitions"]
    blocks: dict[int, list[dict]] = {p: [] for p in range(partitions)}
    folded = -1
    for mark in sorted((stream / "milestones").glob("?" * 20 + ".json"))[-1:]:  # the commits up to it may be dropped
        milestone = json.loads((stream / json.loads(mark.read_text())["file"]).read_text())
        folded = milestone["state"]["seq"]
        for block in leaves(stream, milestone["children"]):
            blocks.get(block["partition"], []).append(block)
    for path in sorted((stream / "commits").glob("*.json")):
        if int(path.stem) <= folded:
            continue
        commit = json.loads(path.read_text())
        if commit["kind"] == "append":  # new blocks
            for p, part in enumerate(commit["partitions"]):
                blocks[p] += part.get("blocks", [part] if "file" in part else [])  # a large batch has several
        elif commit["kind"] == "compact":  # one block in the place of several
            for new in commit["blocks"]:
                old = blocks.get(new["partition"], [])  # the late side log is not among ours
                old[:] = [b for b in old if b["end"] <= new["first"] or new["end"] <= b["first"]] + [new]
                old.sort(key=lambda b: b["first"])
        elif commit["kind"] == "truncate":  # whole blocks go
            for p, start in enumerate(commit["starts"][:partitions]):
                blocks[p] = [b for b in blocks[p] if b["end"] > start]
    return blocks


def leaves(stream: Path, children: list[dict]) -> Iterator[dict]:
    """The blocks that a milestone lists, in order."""
    for child in children:
        if child["is_leaf"]:
            yield from pq.read_table(stream / child["file"]).to_pylist()
        else:
            yield from leaves(stream, json.loads((stream / child["file"]).read_text())["children"])


stream = Path(sys.argv[1] if len(sys.argv) > 1 else "streams/readings")
for partition, blocks in live_blocks(stream).items():
    tuples = 0
    for block in blocks:
        table = pq.read_table(stream / block["file"], page_checksum_verification=True)
        if "_kind" in table.column_names:  # an operator's: its open windows stand between the results
            table = table.filter(pq.filters_to_expression([("_kind", "=", 0)]))  # and `_offset` says where
        tuples += table.num_rows  # without these two columns, row i has the offset block["first"] + i
    print(f"partition {partition}: {tuples} tuples in {len(blocks)} files")
