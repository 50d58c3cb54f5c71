"""Waiting for a stream that somebody is about to create."""

import threading

import pytest

import strandline as sl
from strandline.clock import ManualClock
from strandline.errors import StreamNotFoundError
from strandline.spark.read.stream import once_there


def missing():
    raise StreamNotFoundError("there is no stream", where="here")


def test_a_stream_that_does_not_come_is_waited_for_as_long_as_was_said():
    clock = ManualClock()
    with pytest.raises(StreamNotFoundError):
        once_there(missing, 10_000_000, clock)
    assert clock.now_us() == 10_000_000


def test_without_patience_it_is_looked_for_once():
    clock = ManualClock()
    with pytest.raises(StreamNotFoundError):
        once_there(missing, 0, clock)
    assert clock.now_us() == 0


def test_other_errors_are_not_waited_out():
    clock = ManualClock()
    with pytest.raises(ZeroDivisionError):
        once_there(lambda: 1 // 0, 10_000_000, clock)
    assert clock.now_us() == 0


def test_a_handle_on_a_stream_whose_writer_starts_later(tmp_path):
    from strandline.log.storage.storage_url import open_storage
    from strandline.log.stream.log import Log
    from tests.support.operator_streams import PLANS, Streams

    spec = Streams(PLANS["tumbling count"], lambda _: None, 2).input.spec
    writer = threading.Timer(0.2, lambda: Log.create(open_storage(str(tmp_path / "s")), spec))
    writer.start()
    assert sl.stream(str(tmp_path / "s"), wait="30 s").partitions == 2
    writer.join()
    with pytest.raises(sl.StreamNotFoundError):
        sl.stream(str(tmp_path / "other"), wait="10 ms")
    with pytest.raises(sl.OptionError, match="wait"):
        sl.stream(str(tmp_path / "other"), wait="a while")
