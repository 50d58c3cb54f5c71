"""Triggers, however they are written."""

import datetime as dt

import pytest

import strandline as sl
from strandline.spark.query.trigger import interval_s, plain_trigger, trigger_arguments


@pytest.mark.parametrize(
    ("given", "arguments", "seconds"),
    [
        (None, {"processingTime": "0 seconds"}, 0),
        ("200 ms", {"processingTime": "200 milliseconds"}, 0.2),
        (dt.timedelta(seconds=3), {"processingTime": "3000 milliseconds"}, 3),
        ({"processingTime": "1 second"}, {"processingTime": "1000 milliseconds"}, 1),
        ({"processingTime": "0 seconds"}, {"processingTime": "0 milliseconds"}, 0),
        ("available-now", {"availableNow": True}, 0),
        ({"availableNow": True}, {"availableNow": True}, 0),
    ],
    ids=str,
)
def test_a_trigger_may_be_written_our_way_or_pysparks(given, arguments, seconds):
    plain = plain_trigger(given)
    assert trigger_arguments(plain) == arguments
    assert interval_s(plain) == seconds


@pytest.mark.parametrize(
    "given",
    [
        "often",
        200,
        True,
        {},
        {"once": True},
        {"continuous": "1 second"},
        {"availableNow": False},
        {"processingTime": 5},
        {"processingTime": "often"},
        {"processingTime": "1 second", "availableNow": True},
    ],
    ids=str,
)
def test_a_trigger_that_is_none_is_refused(given):
    with pytest.raises(sl.OptionError, match="is not a trigger"):
        plain_trigger(given)


def test_every_name_of_pysparks_query_is_one_of_ours():
    from pyspark.sql.streaming.query import StreamingQuery

    names = {name for name in vars(StreamingQuery) if not name.startswith("_")}
    assert {name for name in names if not hasattr(sl.Query, name)} == set()
    for name in names:  # a property there is a property here
        assert isinstance(getattr(StreamingQuery, name), property) == isinstance(getattr(sl.Query, name), property), (
            name
        )
