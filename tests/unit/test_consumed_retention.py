"""`retention="consumed"`: what every registered consumer has passed goes, and nothing while there is none."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.clock import ManualClock
from strandline.errors import OptionError
from strandline.log.reading.summary import summary
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.log.stream.spec import StreamSpec
from strandline.log.upkeep import consumer_registry
from strandline.log.upkeep.consumer_registry import register, slowest, unregister
from strandline.log.upkeep.retention import apply_retention, planned
from strandline.spark.operator.housekeeping import Housekeeping
from strandline.spark.session.place import Place
from strandline.testing import MemoryStorage
from strandline.units import CONSUMED, retention_of
from tests.support.items import append_items, item_spec
from tests.support.plain_codec import plain_codec


@pytest.fixture(autouse=True)
def _plain_codec() -> Iterator[None]:
    with plain_codec():
        yield


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(5)


@pytest.fixture
def log(clock: ManualClock) -> Log:
    """Four blocks of one tuple in each of two partitions."""
    log = Log.create(MemoryStorage(clock), replace(item_spec(), retention=CONSUMED), clock)
    for i in range(4):
        append_items(log, {p: [(p, i, i)] for p in range(2)}, f"batch{i}")
    return log


def test_nothing_goes_while_no_consumer_is_registered(log: Log) -> None:
    apply_retention(log, CONSUMED)
    assert log.state.starts == (0, 0, 0)
    register(log, "reader", [3, 4])
    unregister(log, "reader")
    apply_retention(log, CONSUMED)
    assert log.state.starts == (0, 0, 0)


def test_what_all_have_passed_goes_partition_by_partition(log: Log) -> None:
    register(log, "fast", [3, 4])
    register(log, "slow", [1, 4])
    apply_retention(log, CONSUMED)
    assert log.state.starts == (1, 4, 0)
    register(log, "slow", [2, 4])
    apply_retention(log, CONSUMED)
    assert log.state.starts == (2, 4, 0)


def test_a_consumer_that_registers_anew_with_an_older_place_is_heard_of_at_once(log: Log) -> None:
    register(log, "reader", [3, 3])
    register(log, "reader", [1, 2])
    apply_retention(log, CONSUMED)
    assert log.state.starts == (1, 2, 0)


def test_an_old_word_of_an_earlier_registration_does_not_count(log: Log) -> None:
    """As after a crash between the commit of a registration and its file."""
    register(log, "reader", [4, 4])
    consumer_registry._publish(log, "reader", [1, 1])
    apply_retention(log, CONSUMED)
    assert log.state.starts == (1, 1, 0)


def test_the_slowest_are_those_for_which_something_is_kept(log: Log) -> None:
    assert slowest(log) == []
    register(log, "fast", [4, 4])
    assert slowest(log) == []
    register(log, "left", [1, 4])
    register(log, "right", [4, 2])
    assert sorted(c.name for c in slowest(log)) == ["left", "right"]


def test_a_plan_takes_one_bound(log: Log) -> None:
    with pytest.raises(OptionError, match="not both"):
        planned(log, before_time=3, consumed=True)


def test_the_option_is_a_span_or_a_word() -> None:
    assert retention_of("consumed") == CONSUMED
    assert retention_of("1 s") == 1_000_000
    assert retention_of(None) is None
    with pytest.raises(OptionError, match="retention='eaten' is not a duration"):
        retention_of("eaten")


def test_stream_json_and_commits_keep_the_choice(log: Log) -> None:
    assert StreamSpec.from_json(log.spec.to_json(), "there").retention == CONSUMED
    log.retention = CONSUMED
    other = Log.create(MemoryStorage(log.clock), item_spec(), log.clock)
    other.retention = CONSUMED
    append_items(other, {0: [(0, 1, 1)]}, "batch")
    assert other.state.retention == CONSUMED
    assert summary(other).retention == CONSUMED
    assert summary(other).retention_is_writers


def test_progress_says_for_whom_the_past_is_kept(log: Log) -> None:
    keeping = Housekeeping(Place("unused"), CONSUMED, "off")
    keeping.stop()  # its thread would find no stream at that place, and say so, now and then before the report
    assert keeping.report == {}
    keeping.after_batch(log, log.state.seq - 64)
    assert keeping.report == {"housekeeping": {"consumers": 0, "kept_for": []}}
    register(log, "fast", [4, 4])
    register(log, "slow", [1, 4])
    keeping.after_batch(log, log.state.seq - 64)
    assert keeping.report == {"housekeeping": {"consumers": 2, "kept_for": ["slow"]}}
    assert log.state.starts == (1, 4, 0)


def test_inspect_says_who_holds_what(tmp_path: object, clock: ManualClock) -> None:
    url = str(tmp_path)
    log = Log.create(LocalStorage(url), replace(item_spec(), retention=CONSUMED), clock)
    append_items(log, {0: [(0, 1, 1)]}, "batch")
    shown = CliRunner().invoke(app, ["inspect", url], env={"COLUMNS": "140"}).stdout
    assert "until consumed; everything, as no consumer is registered" in shown
    register(log, "report", [0, 0])
    shown = CliRunner().invoke(app, ["inspect", url], env={"COLUMNS": "140"}).stdout
    assert "until 1 consumer passed it" in shown
    assert "holds" in shown
    assert "report" in shown
