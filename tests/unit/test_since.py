"""`start(…, since=…)`: a new output begins at a time, at the latest or at offsets, and keeps where it began."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import strandline as sl
from strandline.errors import OptionError, StreamMismatchError, TruncatedError
from strandline.inputs.replicas.replica_check import require_same_operator
from strandline.log.audit.stream_audit import verify
from strandline.log.operator_state.upstream import group_of
from strandline.log.stream.appends import before_append_at
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import commit_key
from strandline.log.stream.spec import StreamSpec
from strandline.log.upkeep import retention
from strandline.recovery.window_report import current_windows
from strandline.running.since import require_same_beginning, since_of
from strandline.testing.faulty_storage import flipped
from strandline.testing.feed import Feed
from strandline.testing.run import Run
from tests.support.available_case import Case
from tests.support.inputs_over import inputs_over
from tests.support.operator_streams import published_results
from tests.support.user_operators import Running

LATENESS = 6
SINCE = 60
Row = tuple[int, int, float]


@sl.keyed(state="n long, total double", output="n long, total double")
def totals(state: Any, row: Any, out: Any) -> Any:
    state.n += 1
    state.total += row.x
    out.n = state.n
    out.total = state.total
    return sl.EMIT


class Learning(Running):
    """Over the columns of this file."""


ONE_STREAM: Any = SimpleNamespace(takes_offsets=True)
"""An element over one stream."""


def stream(partitions: int = 2) -> Feed:
    return sl.testing.stream("k long, t long, x double", key="k", time="t", lateness=LATENESS, partitions=partitions)


def one(feeds: Sequence[Feed]) -> Feed:
    return feeds[0]


def both(feeds: Sequence[Feed]) -> Any:
    return sl.union(*feeds)


AGGREGATES = {"n": sl.count_all(), "mean": sl.avg("x"), "last": sl.last("x")}
Operator = Callable[[Sequence[Feed]], Any]
OPERATORS: dict[str, Operator] = {
    "count window": lambda f: one(f).window(sl.count_window(3)).aggregate(**AGGREGATES),
    "time window": lambda f: one(f).window(sl.time_window(8, advance=4)).aggregate(**AGGREGATES),
    "session": lambda f: one(f).window(sl.session_window(gap=3)).aggregate(**AGGREGATES),
    "keyed": lambda f: one(f).apply(totals),
    "class": lambda f: one(f).apply(Learning()).checkpoint(sl.instant("1 ms")),
    "union, time window": lambda f: both(f).window(sl.time_window(8)).aggregate(**AGGREGATES),
    "union, count window": lambda f: both(f).window(sl.count_window(3)).aggregate(**AGGREGATES),
    "union, keyed": lambda f: both(f).apply(totals),
    "union, class": lambda f: both(f).apply(Learning()).checkpoint(sl.instant("1 ms")),
    "join": lambda f: f[0].join(f[1].select("k", "t", y="x"), within=5, how="full"),
    "join of counts": lambda f: f[0].join(f[1], left=sl.count_window(0), right=sl.count_window(1)),
    "barrier": lambda f: sl.barrier(a=f[0], b=f[1]),
}
every_operator = pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)


def batches(rng: Random, until: int) -> list[list[Row]]:
    """Times wander upwards and back, never by more than the lateness."""
    found, now = [], 0
    while now < until:
        now += rng.randint(0, 3)
        found.append([(rng.randrange(5), max(0, now - rng.randrange(LATENESS)), rng.uniform(-1, 1)) for _ in range(4)])
    return found


def both_told(rng: Random) -> list[tuple[int, list[Row]]]:
    """Batches of two streams, of which now one is ahead and now the other; no tuple is late."""
    left = [batches(rng, 120), batches(rng, 120)]
    told = []
    while any(left):
        number = rng.choice([n for n in (0, 1) if left[n]])
        told.append((number, left[number].pop(0)))
    return told


def shown(run: Run) -> list[pa.Table]:
    """The results of each partition in order, without offsets of the input, which count windows have for times."""
    log = run.input_log
    kept = [n for n in log.spec.columns if not (log.spec.time_is_offset and n.startswith("window_"))]
    return [published_results(log, p).select(kept) for p in range(log.spec.partitions)]


def finished(operator: Operator, told: Sequence[tuple[int, list[Row]]]) -> Run:
    """The results of these tuples, all of which were there before the first step."""
    feeds = [stream(), stream()]
    for number, rows in told:
        feeds[number].add(rows)
    for feed in feeds:
        feed.finish()
    run = sl.testing.run(operator(feeds))
    run.step()
    return run


def since_then(told: Sequence[tuple[int, list[Row]]], time: int) -> list[tuple[int, list[Row]]]:
    return [(number, [row for row in rows if row[1] >= time]) for number, rows in told]


@every_operator
@pytest.mark.parametrize("seed", range(2))
def test_the_results_since_a_time_are_those_of_the_tuples_since_then_whatever_crashes(
    operator: Operator, seed: int
) -> None:
    rng = Random(seed)
    told, feeds = both_told(rng), [stream(), stream()]
    before = rng.randrange(len(told))
    for number, rows in told[:before]:
        feeds[number].add(rows)
    run = sl.testing.run(operator(feeds), since=SINCE, max_tuples_per_batch=20)
    for number, rows in told[before:]:
        if rng.random() < 0.2:
            run.crash()
        if rng.random() < 0.3:
            run.step()
        feeds[number].add(rows)
    for feed in feeds:
        feed.finish()
    run.crash()
    run.step()
    wanted = finished(operator, since_then(told, SINCE))
    assert shown(run) == shown(wanted)
    assert run.results.num_rows > 20
    assert run.input_log.state.finished
    assert not verify(run.input_log).problems


@every_operator
def test_the_latest_is_what_it_was_when_the_output_was_created_also_after_a_crash_before_its_first_commit(
    operator: Operator,
) -> None:
    rng = Random(5)
    told, feeds = both_told(rng), [stream(), stream()]
    half = len(told) // 2
    for number, rows in told[:half]:
        feeds[number].add(rows)
    asked = operator(feeds)
    run = sl.testing.run(asked, since="latest")
    bounds = [feed.input_log.state.boundary for feed in feeds]
    for number, rows in told[half:]:
        feeds[number].add(rows)
        run.crash()  # before it has published anything
    for feed in feeds:
        feed.finish()
    run.step()
    is_one = len(asked.inputs) == 1
    left = told[half:] if is_one else since_then(told, min(b for b in bounds if b is not None))
    assert shown(run) == shown(finished(operator, left))
    assert run.results.num_rows > 20


@pytest.mark.parametrize("operator", [OPERATORS["time window"], OPERATORS["join"]])
def test_the_latest_of_finished_inputs_is_a_finished_stream_without_results(operator: Operator) -> None:
    feeds = [stream(), stream()]
    for number, rows in both_told(Random(1)):
        feeds[number].add(rows)
    for feed in feeds:
        feed.finish()
    run = sl.testing.run(operator(feeds), since="latest")
    run.step()
    assert run.input_log.state.finished
    assert run.results.num_rows == 0


def test_it_begins_at_the_offsets_that_are_named_and_elsewhere_with_all_that_is_there() -> None:
    feed = stream()
    for number, rows in both_told(Random(3)):
        if number == 0:
            feed.add(rows)
    run = sl.testing.run(feed.window(sl.count_window(1)).aggregate(n=sl.count_all()), since={1: 7})
    run.crash()
    run.step()
    ends = feed.input_log.state.ends
    found = [published_results(run.input_log, p).column("window_end").to_pylist() for p in (0, 1)]
    assert found == [list(range(ends[0])), list(range(7, ends[1]))]


@pytest.mark.parametrize(
    ("since", "what"),
    [
        ({0: 10**6}, "partition 0 ends at"),
        ({7: 0}, "gives no valid offset"),
        ({0: -1}, "gives no valid offset"),
        ({}, "gives no valid offset"),
        ("the day before", "not a point in time"),
        (dt.datetime(2026, 1, 1), "holds integers"),
    ],
)
def test_what_is_no_place_of_the_input_is_refused(since: Any, what: str) -> None:
    feed = stream()
    feed.add([(1, 1, 0.5)])
    with pytest.raises(OptionError, match=what):
        sl.testing.run(feed.apply(totals), since=since)


def test_offsets_are_no_place_in_several_streams() -> None:
    with pytest.raises(OptionError, match="offsets are places in one stream"):
        sl.testing.run(OPERATORS["union, keyed"]([stream(), stream()]), since={0: 1})


def test_offsets_that_were_dropped_are_refused() -> None:
    feed = stream(1)
    feed.add([(1, t, 0.5) for t in range(4)])
    feed.add([(1, 9, 0.5)])
    retention.truncate(feed.input_log, before_offset={0: 4})
    with pytest.raises(TruncatedError):
        sl.testing.run(feed.apply(totals), since={0: 2})


def test_a_stream_that_exists_keeps_where_it_began_and_says_so() -> None:
    feed = stream()
    new = sl.testing.run(feed.apply(totals), since=SINCE).input_log.spec
    old = sl.testing.run(feed.apply(totals)).input_log.spec
    words: list[tuple[StreamSpec, Any, bool]] = [
        (new, None, True),
        (new, SINCE, True),
        (new, SINCE + 1, False),
        (new, "earliest", False),
        (new, "latest", False),
        (old, None, True),
        (old, "earliest", True),
        (old, {0: 0}, False),
    ]
    for spec, since, fits in words:
        asked = since_of(since, [feed._input_spec], dt.UTC, ONE_STREAM)
        if fits:
            require_same_beginning(asked, spec, feed._input_spec, "streams/out")
            continue
        with pytest.raises(StreamMismatchError, match=r"the stream began with since=.*, this program says since="):
            require_same_beginning(asked, spec, feed._input_spec, "streams/out")
    assert (new.format, old.format) == (6, 3)
    assert StreamSpec.from_json(new.to_json(), "here") == new


@pytest.mark.parametrize("operator", [OPERATORS["count window"], OPERATORS["union, time window"], OPERATORS["join"]])
def test_a_recovery_from_the_beginning_reads_nothing_before_it(operator: Operator) -> None:
    told, feeds = both_told(Random(2)), [stream(), stream()]
    for number, rows in told:
        feeds[number].add(rows)
    run = sl.testing.run(operator(feeds).checkpoint(sl.cec(extent=1_000_000, replay=0)), since=SINCE)
    inputs = [feed.input_log for feed in feeds][: len(run.input_log.spec.begins.offsets)]  # type: ignore[union-attr]
    for number, log in enumerate(inputs):
        kept = inputs_over(inputs).needs(number, run.input_log.state.standings, run.input_log.spec.begins)
        assert all(kept), "nothing before the beginning is asked for, also before the first commit"
        retention.truncate(log, before_offset=dict(enumerate(kept)))
    run.step()
    for p in range(2):
        for block in run.input_log.blocks(p):
            run.input_log.storage.put(block.file, flipped(run.input_log.storage.read(block.file), 100))
    before = [published for published in run.input_log.state.standings if published.open]
    assert before
    run.crash()
    windows = current_windows(run.input_log, inputs)
    assert windows.num_rows == sum(s.open for s in run.input_log.state.standings)


@pytest.mark.parametrize("operator", [OPERATORS["count window"], OPERATORS["union, count window"]])
def test_without_checkpoints_what_is_open_and_what_was_lost_count_from_the_beginning(operator: Operator) -> None:
    told, feeds = both_told(Random(2)), [stream(1), stream(1)]
    for number, rows in told:
        feeds[number].add(rows)
    run = sl.testing.run(operator(feeds).checkpoint(sl.none()), since=SINCE)
    run.step()
    inputs = [feed.input_log for feed in feeds][: len(run.input_log.spec.begins.offsets)]  # type: ignore[union-attr]
    (standing,) = run.input_log.state.standings
    assert current_windows(run.input_log, inputs).num_rows == standing.open > 0
    begin = 0 if standing.marks else run.input_log.spec.begins.first(0)  # type: ignore[union-attr]
    run.crash()
    feeds[0].add([(1, 130, 1.0)])
    feeds[1].add([(1, 130, 1.0)])
    run.step()
    (after,) = run.input_log.state.standings
    assert after.losses is not None
    assert after.losses.tuples == standing.input - begin


def test_few_commits_are_read_to_find_the_first_one() -> None:
    feed = stream(1)
    log = feed.input_log
    for t in range(300):
        feed.add([(1, t, 0.5)])
    for offset in (0, 1, 150, 299, 300):
        assert before_append_at(log, [offset]) == (offset - 2 if offset else -1)
    read: list[str] = []
    opened = Log.open(log.storage)
    one_by_one = opened.commit

    def commit(seq: int) -> Any:
        read.append(commit_key(seq))
        return one_by_one(seq)

    opened.commit = commit  # type: ignore[method-assign]
    assert before_append_at(opened, [150]) == 148
    assert len(read) <= 9


def test_with_a_bound_guesses_and_corrections_know_nothing_from_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(tmp_path, monkeypatch, since=15)
    case.write(0, 0, 40)
    case.write(1, 0, 12)
    for _ in range(15):
        case.tick()
    assert set(case.told()) == {"tentative"}
    assert case.shown("window_start")[0] == 10
    assert case.shown("n")[:2] == [5, 10]
    case.write(1, 12, 40)
    for _ in range(15):
        case.tick()
    assert published_results(Log.open(case.place.storage()), 0).column("n").to_pylist() == [10, 20, 20]


def test_streams_that_began_at_other_places_are_no_replicas_of_each_other() -> None:
    feed = stream()
    places = (None, SINCE, SINCE, SINCE + 1, "latest")
    specs = [sl.testing.run(feed.apply(totals), since=since).input_log.spec for since in places]
    feed.add([(k, 5, 0.5) for k in range(9)])
    specs.append(sl.testing.run(feed.apply(totals), since="latest").input_log.spec)
    assert len({group_of(spec) for spec in specs}) == 5
    require_same_operator(specs[1], specs[2], "here")
    with pytest.raises(StreamMismatchError, match="other places in their inputs: since 60, and since 61"):
        require_same_operator(specs[1], specs[3], "here")
    with pytest.raises(StreamMismatchError, match="other places in their inputs"):
        require_same_operator(specs[4], specs[5], "here")
