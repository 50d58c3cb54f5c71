"""Reads a stream without Strandline: the format in seventy lines of Python, with pyarrow for the Parquet files.

`python plain_reader.py FOLDER` prints every tuple of every partition as JSON.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def read_stream(folder: Path) -> dict[str, list[dict[str, Any]]]:
    spec = json.loads((folder / "stream.json").read_text())
    partitions = spec["partitions"]
    files: list[dict[int, tuple[int, str]]] = [{} for _ in range(partitions + 1)]  # first offset: end offset, file
    starts = [0] * (partitions + 1)  # the late side log comes last
    folded = -1
    for mark in sorted((folder / "milestones").glob("?" * 20 + ".json"))[-1:]:  # commits before it may be dropped
        milestone = json.loads((folder / json.loads(mark.read_text())["file"]).read_text())
        folded, starts = milestone["state"]["seq"], milestone["state"]["starts"]
        for block in indexed(folder, milestone["children"]):
            files[block["partition"]][block["first"]] = block["end"], block["file"]
    for path in sorted((folder / "commits").glob("*.json")):
        if int(path.stem) <= folded:
            continue
        commit = json.loads(path.read_text())
        if commit["kind"] == "append":
            for p, part in enumerate([*commit["partitions"], commit["late"]]):
                for block in part.get("blocks", [part] if "file" in part else []):
                    files[p][block["first"]] = block["end"], block["file"]
        elif commit["kind"] == "compact":
            for block in commit["blocks"]:
                blocks = files[block["partition"]]
                for first in [f for f in blocks if block["first"] <= f < block["end"]]:
                    del blocks[first]
                blocks[block["first"]] = block["end"], block["file"]
        elif commit["kind"] == "truncate":
            starts = commit["starts"]
    return {
        str(p): [
            row
            for first in sorted(blocks)
            if blocks[first][0] > starts[p]
            for row in read(folder / blocks[first][1], first)
        ]
        for p, blocks in enumerate(files)
    }


def indexed(folder: Path, children: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The blocks that the leaves of a milestone list."""
    for child in children:
        if child["is_leaf"]:
            yield from pq.read_table(folder / child["file"]).to_pylist()
        else:
            yield from indexed(folder, json.loads((folder / child["file"]).read_text())["children"])


def read(file: Path, first: int) -> list[dict[str, Any]]:
    """Tuples with their offsets and kinds. A file without these columns has results only, counted from its first."""
    table = pq.read_table(file, page_checksum_verification=True)
    times = table.column("item_time").cast(pa.timestamp("us", tz="UTC")).to_pylist()
    rows = table.to_pylist()
    return [
        {"_offset": first + i, "_kind": 0, **row, "price": str(row["price"]), "item_time": time.isoformat()}
        for i, (row, time) in enumerate(zip(rows, times, strict=True))
    ]


if __name__ == "__main__":
    found = read_stream(Path(sys.argv[1]))
    assert "strandline" not in sys.modules
    print(json.dumps(found))
