"""Count windows the way Spark offers for Python: `transformWithStateInPandas`, one value of state a key."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from benchmarks.harness import Input, batch_seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOW = 10


class CountWindows(StatefulProcessor):
    """The average of every ten prices of a key. The state is read once and written once a key and batch."""

    def init(self, handle: Any) -> None:
        """Spark calls this first."""
        self._state = handle.getValueState("window", "n long, total double")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        """Spark calls this for every key of a batch."""
        import pandas as pd

        n, total = self._state.get() or (0, 0.0)
        averages = []
        for frame in rows:
            for price in frame["item_price"].to_numpy():
                n, total = n + 1, total + price
                if n == WINDOW:
                    averages.append(total / WINDOW)
                    n, total = 0, 0.0
        self._state.update((int(n), float(total)))
        ids = pd.Series([key[0]] * len(averages), dtype="int64")
        yield pd.DataFrame({"item_id": ids, "average": pd.Series(averages, dtype="float64")})

    def close(self) -> None:
        """Spark calls this last."""


def missing() -> str | None:
    """Why it cannot run here."""
    found = {name: find_spec(name.partition(".")[0]) for name in ("google.protobuf", "pandas")}
    lacking = [name for name, spec in found.items() if spec is None]
    return f"it needs {' and '.join(lacking)}, not installed here" if lacking else None


def session(spark: SparkSession, config: Mapping[str, str]) -> SparkSession:
    """A session for it: its state begins with a snapshot, which the file system of `sl.session` cannot take."""
    own = spark.newSession()
    file_system = {"fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem", "fs.file.impl.disable.cache": "true"}
    for name, value in {**config, **file_system}.items():
        own.conf.set(name, value)
    return own


def run(own: SparkSession, data: Input, folder: Path) -> float:
    """Seconds of the median batch."""
    df = (
        data.stream(own)
        .groupBy("item_id")
        .transformWithStateInPandas(
            statefulProcessor=CountWindows(),
            outputStructType="item_id long, average double",
            outputMode="Append",
            timeMode="None",
        )
    )
    writer = df.writeStream.outputMode("append").format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder / "transform")).start()
    query.awaitTermination()
    shutil.rmtree(folder / "transform", ignore_errors=True)
    return batch_seconds(query)
