"""Users' classes with a real Spark: the object is found again, restarts, errors as a user sees them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import strandline as sl

pytestmark = pytest.mark.spark


class Numbered(sl.Operator):
    """Numbers the tuples of a partition, and says which objects it has been."""

    output = "k long, at timestamp, n long, lives long"
    time = "at"

    def __init__(self, poison: float) -> None:
        self.poison = poison
        self.n, self.lives = 0, 1

    def process(self, tuples: pa.Table) -> pa.Table:
        if self.poison in tuples.column("value").to_pylist():
            raise ValueError("poison")
        first, self.n = self.n, self.n + tuples.num_rows
        numbers = pa.array(range(first, self.n), pa.int64())
        lives = pa.array([self.lives] * tuples.num_rows, pa.int64())
        return tuples.select(["k", "at"]).append_column("n", numbers).append_column("lives", lives)

    def get_checkpoint(self) -> dict[str, Any]:
        return {"n": self.n, "lives": self.lives}

    def restore_checkpoint(self, state: dict[str, Any]) -> None:
        self.n, self.lives = state["n"], state["lives"] + 1


def files(spark: Any, folder: Path, rows: list[tuple[Any, ...]]) -> None:
    df = spark.createDataFrame(rows, "k long, s long, value double").selectExpr(
        "k", "timestamp_seconds(s) AS at", "value"
    )
    df.coalesce(1).write.mode("append").parquet(str(folder / "files"))


def start(spark: Any, folder: Path, **options: Any) -> None:
    schema = spark.read.parquet(str(folder / "files")).schema
    df = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "files"))
    items = sl.source(df, str(folder / "items"), key="k", time="at", partitions=2, lateness="1 s")
    operator = items.apply(Numbered(poison=-1.0)).checkpoint(sl.instant(every="1 hour"))
    operator.start(spark, str(folder / "numbered"), trigger="available-now", **options).await_termination()


def test_the_object_is_found_again_and_an_error_has_the_line_of_the_user(spark: Any, tmp_path: Path) -> None:
    for number in range(4):
        files(spark, tmp_path, [(i, number * 20 + i, float(i)) for i in range(20)])
    start(spark, tmp_path)
    stream = sl.stream(str(tmp_path / "numbered"))
    rows = stream.read(spark, positions=True).collect()
    for partition in (0, 1):
        own = sorted((row for row in rows if row["_partition"] == partition), key=lambda row: row["_offset"])
        assert [row["n"] for row in own] == list(range(len(own)))
        assert {row["lives"] for row in own} == {1}, "it was found in whatever worker Spark had chosen"
    assert len(rows) == 80

    files(spark, tmp_path, [(1, 200, -1.0), (2, 201, 1.0)])
    with pytest.raises(sl.InputError, match=r"Numbered.process raised ValueError: poison") as caught:
        start(spark, tmp_path)
    assert 'test_partition_wide.py, line 26, in process: raise ValueError("poison")' in caught.value.where
    assert {row["_name"] for row in stream.open_windows().to_pylist()} == {"n", "lives"}
