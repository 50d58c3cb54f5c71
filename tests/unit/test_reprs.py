"""What a prompt and a notebook show: never a failure, never a secret, never markup of somebody else's."""

import datetime as dt
import pydoc
from html.parser import HTMLParser

import pytest

import strandline as sl
from strandline.card import bars, card, spans
from strandline.checkpoint.policy import Policy
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.operators.aggregate.windows import Window
from strandline.spark.query.query import Query
from tests.support.items import append_items, item_spec
from tests.support.operator_streams import PLANS, Streams

CALLS = [
    "count_window(10)",
    "count_window(10, advance=3)",
    'time_window("1 hour", advance="5 min")',
    'time_window("1500 ms")',
    'session_window("30 min")',
    'cec(extent="2x", replay=500_000)',
    "cec(extent=1000)",
    "cec(replay=0)",
    'cec(recover_within="2 s")',
    'cec(extent="1.5x", interval="5 ms", period="100 ms")',
    'instant("1 min")',
    'partial("10 s")',
    "none()",
    "count_all()",
    'avg("item_price")',
    'first("a \\"quoted\\" column")',
]


class Checked(HTMLParser):
    """HTML whose tags are closed in order; `texts` is what a reader sees."""

    def __init__(self, markup):
        super().__init__()
        self.open, self.texts, self.tags = [], [], set()
        self.feed(markup)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.add(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.mark.parametrize("call", CALLS)
def test_a_repr_is_the_call_that_makes_the_same(call):
    made = eval(f"sl.{call}", {"sl": sl})
    assert repr(made) == call
    assert eval(f"sl.{made!r}", {"sl": sl}) == made
    assert call in Checked(made._repr_html_()).texts


@pytest.mark.parametrize("window", [sl.time_window(7), sl.time_window(3_001, advance=2), sl.session_window(1)])
def test_windows_of_odd_lengths(window):
    assert eval(f"sl.{window!r}", {"sl": sl}) == window
    assert "svg" in Checked(window._repr_html_()).tags


def test_every_text_in_a_card_is_escaped():
    evil = "<script>alert('x')</script>&\""
    checked = Checked(card(evil, {evil: evil, "none": None}, bars({evil: 3.0})))
    assert "script" not in checked.tags
    assert checked.texts.count(evil) == 3
    assert "none" not in checked.texts


def test_pictures_of_nothing_and_of_much():
    assert bars({}) == spans([]) == ""
    Checked(bars({"a": 0.0, "b": -1.0}))
    assert Checked(bars({str(i): float(i) for i in range(1_000)})).texts.__len__() == 16


class Broken:
    """A query whose every question fails."""

    def __getattr__(self, name):
        raise RuntimeError(f"{name}: Spark is gone")


def test_a_query_without_spark_can_be_shown():
    query = Query.__new__(Query)
    query._run = Broken()
    assert repr(query) == "Query(…)"
    assert "Query" in Checked(query._repr_html_()).texts


class Run:
    """What a query of an operator knows."""

    is_active = True
    running = {"input_tuples": 7, "seconds": 0.5}  # noqa: RUF012
    report = {"batch": 3, "commit": 9, "open_windows": 5_000, "replay": {0: 10, 1: 30}, "extent": {0: 1, 1: 2}}  # noqa: RUF012

    def exception(self):
        return None

    place = type("Place", (), {"url": "s3://user:hunter2-hunter2@bucket/<b>x</b>"})


def test_a_query_shows_where_it_stands_and_no_secret():
    query = Query.__new__(Query)
    query._run = Run()
    assert repr(query) == "Query(s3://***@bucket/<b>x</b>, active, batch 3, 5,000 open windows)"
    checked = Checked(query._repr_html_())
    assert "Query: s3://***@bucket/<b>x</b>" in checked.texts
    assert {"active", "5,000", "input_tuples 7, seconds 0.5", "replay of 1: 30"} <= set(checked.texts)
    assert "hunter2" not in query._repr_html_()


def test_a_query_with_a_bound_says_what_is_missing_and_no_number_of_a_batch_that_never_was():
    query = Query.__new__(Query)
    query._run = Run()
    query._run.report = {"batch": -1, "state": "UP_FAILURE", "missing": ["south", "west"], "open_windows": 1}
    assert repr(query) == "Query(s3://***@bucket/<b>x</b>, active, UP_FAILURE without south, west, 1 open window)"
    assert "UP_FAILURE without south, west" in Checked(query._repr_html_()).texts
    query._run.report = {"batch": 4, "state": "STABLE", "missing": [], "open_windows": 1}
    assert repr(query) == "Query(s3://***@bucket/<b>x</b>, active, batch 4, 1 open window)"
    query._run.report = {"batch": 4, "open_windows": 0}  # as of every operator without windows
    assert repr(query) == "Query(s3://***@bucket/<b>x</b>, active, batch 4)"


def test_builders_and_streams_show_what_they_are(tmp_path):
    from strandline.log.storage.storage_url import open_storage
    from strandline.log.stream.log import Log

    spec = Streams(PLANS["tumbling count"], lambda _: None, 2).input.spec
    Log.create(open_storage(str(tmp_path / "s")), spec)
    stream = sl.stream(str(tmp_path / "s"))
    assert repr(stream) == f"Stream('{tmp_path / 's'}', 2 partitions, 0 tuples)"
    assert "0" in Checked(stream._repr_html_()).texts
    windowed = stream.window(sl.count_window(10))
    assert repr(windowed) == f"Windowed({tmp_path / 's'}, count_window(10))"
    counts = windowed.aggregate(n=sl.count_all(), mean=sl.avg("x")).checkpoint(sl.cec(replay=7))
    assert (
        repr(counts) == f'Aggregation({tmp_path / "s"}, count_window(10), n=count_all(), mean=avg("x"), cec(replay=7))'
    )
    assert {'n=count_all(), mean=avg("x")', "cec(replay=7)", "count_window(10)"} <= set(
        Checked(counts._repr_html_()).texts
    )
    (tmp_path / "s" / "stream.json").unlink()  # a stream that is gone, or cannot be read, has a repr, too
    assert repr(stream).startswith("Stream(")
    Checked(stream._repr_html_())


def test_what_a_repr_stands_for_is_what_policies_and_windows_are_equal_by():
    assert Policy("cec", replay=5) == sl.cec(replay=5)
    assert Window("time", 60_000_000, 60_000_000) == sl.time_window(dt.timedelta(minutes=1))


def test_dir_has_the_names_of_the_api_and_no_others():
    assert {name for name in dir(sl) if not name.startswith("__")} == {*sl.__all__, "testing"} - {"__version__"}


@pytest.mark.parametrize("kind", [sl.Stream, sl.Entry, sl.Union, sl.Shaped, sl.Replicas])
def test_what_operators_ask_of_their_inputs_is_not_public(kind):
    assert {"bare", "shape", "members", "opened", "input_spec", "input_place"}.isdisjoint(dir(kind))


@pytest.mark.parametrize("name", ["source", "persist"])
def test_help_shows_the_name_that_was_asked_for(name):
    function = getattr(sl, name)
    assert pydoc.render_doc(function, renderer=pydoc.plaintext).splitlines()[2].startswith(f"{name}(df: ")
    with pytest.raises(TypeError, match=rf"^{name}\(\) missing"):
        function(None)


def test_describe_shows_a_field_a_line(tmp_path):
    log = Log.create(LocalStorage(tmp_path, "os"), item_spec(2))
    append_items(log, {0: [(1, 1, time) for time in range(100)]})
    shown = repr(sl.stream(str(tmp_path)).describe()).splitlines()
    assert shown[0] == "Summary"
    assert "  tuples: 100" in shown
    assert "  columns: k='long', v='long', t='long'" in shown
    assert max(map(len, shown)) <= 100
