"""Two folders of files that never change, and lives and deaths of the program that joins them."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.log import Log
from tests.crash.lives import Life, Program, results

PROGRAM = Path(__file__).with_name("several_program.py")
FILES, ROWS = 5, 500


def write_files(root: Path) -> None:
    """Of each side a Parquet file a batch; nulls, ties, nested values, and some tuples that are late."""
    rng = np.random.default_rng(11)
    for side in ("left", "right"):
        where = root / f"{side}-files"
        where.mkdir(parents=True)
        for number in range(FILES):
            times = number * 4_000_000 + rng.integers(0, 400, ROWS) * 10_000
            times[:5] -= 3_900_000
            names = [None if n < 2 else f"{'name' * (n % 4)}{n}" for n in rng.integers(0, 20, ROWS)]
            tags = [None if n > 3 else list(range(n)) for n in rng.integers(0, 5, ROWS)]
            table = pa.table(
                {
                    "k": pa.array(rng.integers(0, 40, ROWS), mask=rng.random(ROWS) < 0.02),
                    "at": pa.array(times, pa.timestamp("us", tz="UTC")),
                    "v": pa.array(rng.random(ROWS), mask=rng.random(ROWS) < 0.1),
                    "more": pa.array(
                        [{"name": n, "tags": t} for n, t in zip(names, tags, strict=True)],
                        pa.struct([("name", pa.string()), ("tags", pa.list_(pa.int32()))]),
                    ),
                }
            )
            path = where / f"{number}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_000_000 + number, 1_000_000 + number))  # Spark takes the oldest file first


@dataclass(frozen=True)
class Deaths:
    """Streams under a folder, and the lives of who works on them."""

    root: Path
    how: str

    def live(self, number: int, life: Life) -> None:
        """Runs the program to its end or its death."""
        if "state" in life.lost:
            # The life before may have died of an input, before the operator had left any; that a state was lost
            # where it mattered is asserted by the recoveries that the manifests speak of.
            shutil.rmtree(self.root / "state", ignore_errors=True)
        if "spark checkpoint" in life.lost:
            for name in life.operators.split():
                shutil.rmtree(self.root / name / "spark_checkpoint", ignore_errors=True)
        self.program.live(life, number)

    @property
    def program(self) -> Program:
        """Who works on them."""
        return Program(PROGRAM, (self.how, str(self.root)), self.root, self.root / self.how)

    def check(self, *operators: str) -> None:
        """The results of each are those of the same one to which nothing happened: bit by bit, in their order."""
        for name in operators:
            found, expected = results(self.root / name), results(self.root / f"{name}-expected")
            assert [len(t) for t in found] == [len(t) for t in expected], name
            assert found == expected, name
            assert all(len(t) > 100 for t in found), name

    def deaths_survived(self, name: str) -> int:
        """How many recoveries the manifests of a stream speak of."""
        appends = (m for m in Log.open(LocalStorage(self.root / name)).after(-1) if isinstance(m, AppendCommit))
        standings = [enumerate(m.standings) for m in appends]
        return len({(p, s.recovered["at_input"]) for found in standings for p, s in found if s.recovered is not None})
