"""One Spark for all of these tests, and streams with small inputs whose contents are known."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strandline as sl
from strandline.log.audit.stream_audit import verify
from strandline.log.storage.storage_url import open_storage
from strandline.log.stream.log import Log
from tests.support.jvm_end import end_of_jvm
from tests.support.machine import patience
from tests.unit.conftest import s3_endpoint, webhdfs_url  # noqa: F401 - fixtures

Row = dict[str, Any]
ITEMS = pa.schema([("k", pa.int64()), ("v", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])
SECOND = 1_000_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks every test of this folder: it needs a JVM."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Any:
    """Adds to the report of a failed test how the JVM ended, if it is gone."""
    report = yield
    if report.failed and (end := end_of_jvm()):
        report.sections.append(("the JVM of this test process", end))
    return report


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    session = sl.session(
        "local[2]",
        "strandline tests",
        spark_driver_memory="2g",
        spark_driver_extraJavaOptions="-XX:+UseSerialGC",
        spark_sql_shuffle_partitions="2",
    )
    yield session
    session.stop()


class Feed:
    """A folder of Parquet files that Spark reads as a stream, a file a batch unless told otherwise."""

    def __init__(self, spark: Any, folder: Path, schema: pa.Schema, files_per_batch: int) -> None:
        self._spark = spark
        self.folder = folder
        self.schema = schema
        self.files_per_batch = files_per_batch
        folder.mkdir()

    def add(self, rows: Sequence[Row]) -> None:
        self.add_table(pa.Table.from_pylist(list(rows), schema=self.schema))

    def add_table(self, table: pa.Table) -> None:
        """For values that Python cannot hold."""
        number = len(list(self.folder.iterdir()))
        path = self.folder / f"{number:05d}.parquet"
        hidden = self.folder.parent / f".{self.folder.name}-{path.name}"
        pq.write_table(table, hidden)
        os.utime(hidden, (1_700_000_000 + number,) * 2)  # Spark takes the oldest first
        hidden.rename(path)

    @property
    def df(self) -> Any:
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = from_arrow_schema(self.schema, prefer_timestamp_ntz=True)
        reader = self._spark.readStream.schema(schema).option("maxFilesPerTrigger", self.files_per_batch)
        return reader.parquet(str(self.folder))


@pytest.fixture(scope="session")
def feed_in(spark: Any) -> Callable[..., Feed]:
    """Makes a source in a folder: feed_in(folder, batch, batch, …), each a list of rows."""

    def make(folder: Path, *batches: Sequence[Row], schema: pa.Schema = ITEMS, files_per_batch: int = 1) -> Feed:
        made = Feed(spark, folder, schema, files_per_batch)
        for rows in batches:
            made.add(rows)
        return made

    return make


@pytest.fixture
def feed(feed_in: Callable[..., Feed], tmp_path: Path) -> Callable[..., Feed]:
    """Makes a source for one test: feed(batch, batch, …)."""
    return lambda *batches, name="feed", **options: feed_in(tmp_path / name, *batches, **options)


@pytest.fixture(scope="session")
def items() -> Callable[..., list[Row]]:
    """Rows of ITEMS, one a second: items(3), items(3, first=10), items(3, keys=2)."""

    def make(count: int, *, first: int = 0, keys: int = 5) -> list[Row]:
        return [{"k": i % keys, "v": f"v{i}", "at": i * SECOND} for i in range(first, first + count)]

    return make


@pytest.fixture(scope="session")
def drain() -> Callable[..., dict[str, Any]]:
    """Persists all that a source has, and returns the query's last progress."""

    def run(df: Any, path: Path | str, *, key: Any = "k", time: str = "at", **options: Any) -> dict[str, Any]:
        starting = {name: options.pop(name) for name in ("blocks", "spark_checkpoint_dir") if name in options}
        query = sl.persist(df, str(path), key=key, time=time, **options).start(trigger="available-now", **starting)
        assert query.await_termination(patience(120)), "it did not end"
        return query.progress

    return run


@pytest.fixture(scope="session")
def content() -> Callable[[Path | str], dict[int, list[Row]]]:
    """What a stream holds, per partition, after checking every invariant that `verify` knows."""

    def read(path: Path | str) -> dict[int, list[Row]]:
        log = Log.open(open_storage(str(path)))
        assert verify(log).problems == ()
        found = {p: [row for table in log.read(p) for row in table.to_pylist()] for p in range(log.spec.late)}
        for p, rows in found.items():
            first = log.state.starts[p]
            assert [r.pop("_offset") for r in rows] == list(range(first, log.state.ends[p])), f"partition {p}"
            assert {r.pop("_kind") for r in rows} <= {0}
        return found

    return read


@pytest.fixture(scope="session")
def replayed() -> Callable[..., list[Any]]:
    """What a streaming read gives until it has caught up: a list of rows a batch."""

    def run(df: Any, checkpoint: Path | str | None = None) -> list[Any]:
        batches: list[Any] = []
        writer = df.writeStream.foreachBatch(lambda batch, _number: batches.append(batch.collect()))
        if checkpoint is not None:
            writer = writer.option("checkpointLocation", str(checkpoint))
        assert writer.trigger(availableNow=True).start().awaitTermination(patience(120)), "it did not end"
        return batches

    return run


@pytest.fixture(scope="session")
def eventually() -> Callable[..., None]:
    """Waits until a condition holds."""

    def wait(condition: Callable[[], Any], seconds: float = 90) -> None:
        end = time.monotonic() + patience(seconds)
        while not condition():
            assert time.monotonic() < end, "it never happened"
            time.sleep(0.05)

    return wait
