"""The writer of an entry point: a second writer is noticed, whenever it publishes."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from strandline.clock import ManualClock
from strandline.errors import SecondWriterError
from strandline.log.index import index
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.append_commit import Append
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.spark.entry.batch_writer import BatchWriter
from strandline.spark.session.place import Place
from tests.support.items import item_spec

OTHER = Writer("another query", "another run", 0)


def writer_of(folder: Path) -> tuple[BatchWriter, Log]:
    log = Log.create(LocalStorage(folder, "os"), item_spec(lateness=2_000_000), ManualClock(1_767_268_800_000_000))
    nothing: Any = mock.Mock(report={})
    nothing.source.return_value = None
    with mock.patch("strandline.spark.entry.batch_writer.ArrowBlocks") as blocks:  # which need a JVM
        blocks.return_value.write.return_value = []
        writer = BatchWriter(
            Place(str(folder), "os"), log, nothing, by_spark=False, housekeeping=nothing, max_ahead=None
        )
    spark: Any = mock.Mock(id="query", runId="run")
    writer.begin(spark)
    return writer, log


def test_a_second_writer_that_publishes_while_the_first_one_folds_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fold reads on to the newest root: the state after an own append may have the append of another writer."""
    writer, log = writer_of(tmp_path)
    rows: Any = mock.Mock()
    for batch in range(index.FOLD_EVERY - 1):
        writer.publish(rows, batch)
    folds = Log.fold

    def after_the_other(own: Log, *, at_least: int = 1) -> Any:
        if own is log:
            with monkeypatch.context() as as_before:
                as_before.setattr(Log, "fold", folds)
                other = Log.open(LocalStorage(tmp_path, "os"))
                other.append(Append(writer=OTHER))
                other.fold()
        return folds(own, at_least=at_least)

    monkeypatch.setattr(Log, "fold", after_the_other)
    with pytest.raises(SecondWriterError, match="another writer has published"):
        for batch in range(index.FOLD_EVERY - 1, index.FOLD_EVERY + 1):
            writer.publish(rows, batch)


def test_a_second_writer_between_two_batches_is_noticed(tmp_path: Path) -> None:
    writer, log = writer_of(tmp_path)
    rows: Any = mock.Mock()
    writer.publish(rows, 0)
    Log.open(LocalStorage(tmp_path, "os")).append(Append(writer=OTHER))
    with pytest.raises(SecondWriterError):
        writer.publish(rows, 1)
    assert log.state.writer in (OTHER, Writer("query", "run", 0))
