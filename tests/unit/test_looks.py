"""What the commands look like: on a terminal of 80 columns and 24 rows, and in a pipe."""

import doctest
import importlib
import io
import itertools
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console
from typer.testing import CliRunner

from examples.demo import recovery_demo as demo
from examples.demo import recovery_picture
from examples.demo.recovery_picture import CommitPoint
from strandline import operator_texts, wording
from strandline.cli.app import app
from strandline.cli.inspect import _fitting
from strandline.clock import ManualClock
from strandline.errors import StreamMismatchError
from strandline.inputs.stream_definition import words_of
from strandline.log.operator_state import operator_words
from strandline.log.operator_state.standing import Standing
from strandline.log.reading.summary import summary
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream import block as blocks_
from strandline.log.stream.append_commit import Append
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer, commit_key
from strandline.log.stream.spec import StreamSpec
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.consumer_registry import operator_name, register, unregister
from strandline.log.upkeep.retention import apply_retention
from strandline.operators.aggregate import aggregates as agg
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.aggregate.windows import Window, count_window, session_window, time_window
from strandline.wording import exact_duration, plural
from tests.support.items import append_items, item_spec
from tests.support.operator_streams import struct

SECOND = 1_000_000
HOUR = 3_600 * SECOND
NOON = 1_769_860_800 * SECOND
COLUMNS = {"item_id": "long", "item_price": "double", "item_time": "timestamp"}
COMMANDS = ["inspect", "tail", "replay", "verify", "compact", "truncate", "consumers", "collect"]
UUID = "5c7d1bba-98f3-44ff-9fb8-0123456789ab"


def operator_spec(window: Window, partitions: int, **aggregates: agg.Aggregate) -> StreamSpec:
    chosen = aggregates or {"average": agg.avg("item_price"), "n": agg.count_all(), "most": agg.max("item_price")}
    plan = AggregateDefinition.of(window, chosen, COLUMNS, ["item_id"], "item_time")
    return StreamSpec(
        UUID,
        struct(plan.result_columns),
        ("item_id",),
        "window_end",
        partitions,
        operator={**plan.to_json(), "footprints": [list(c) for c in plan.control_columns]},
        upstream={"stream": "items", "path": "/data/streams/items"},
    )


def operator_stream(folder: Path, window: Window, partitions: int = 2, commits: int = 3) -> Log:
    """Results without an operator: each partition has five a commit, one hour or a hundred offsets apart."""
    log = Log.create(LocalStorage(folder, durability="os"), operator_spec(window, partitions), ManualClock(NOON))
    for commit in range(commits):
        blocks, last = [], []
        for p in range(partitions):
            ends = [100 * (commit + 1) + p * 10_000] * 5 if window.kind == "count" else [NOON + commit * HOUR] * 5
            last.append(ends[-1])
            starts = [end - (100 if window.kind == "count" else HOUR) for end in ends]
            values = {"item_id": range(5), "window_start": starts, "window_end": ends, "average": [44.25] * 5}
            values |= {"n": [10] * 5, "most": [98.75] * 5}
            columns = [pa.array(list(values[f.name]), pa.int64()).cast(f.type) if f.name.startswith("window")
                       else pa.array(list(values[f.name]), f.type) for f in log.spec.arrow]  # fmt: skip
            data = blocks_.encode_parts([(Kind.RESULT, columns)], log.spec, log.state.ends[p])
            file = log.spec.file(p, log.state.ends[p], f"commit{commit}")
            blocks.append(blocks_.describe(data, log.spec, p, log.state.ends[p], file))
            log.storage.create(file, data)
        input_ = 1_000 * (commit + 1)
        recovered = {"extent": 1_234, "load_s": 0.5, "replayed": 12_345, "replay_s": 0.25}
        standing = Standing(input_, commit, 400, input_ - 10, 5, 10, recovered=recovered)
        log.append(
            Append(blocks, writer=Writer(UUID, UUID, commit), standings=[standing] * partitions, boundaries=last)
        )
    return log


@pytest.fixture
def items(tmp_path: Path) -> Log:
    """A batch an hour, three partitions of which the second has a consumer that lags behind."""
    spec = item_spec(2, time_type="timestamp", lateness=5 * SECOND)
    log = Log.create(LocalStorage(tmp_path / "items", durability="os"), spec, ManualClock(NOON))
    for i in range(12):
        rows = {p: [(k, i, NOON + i * HOUR + k * SECOND) for k in range(20 * (i + 1))] for p in (0, 1)}
        append_items(log, rows, writer=Writer(UUID, UUID, i))
    register(log, operator_name(UUID), [700, 900], writes="/data/streams/hourly", label="prices")
    register(log, "report", [0, 300])
    return log


def shown(*args: str, columns: int = 80, **env: str) -> str:
    """What a command prints on a terminal, without the escape codes."""
    result = CliRunner(env={"COLUMNS": str(columns), "FORCE_COLOR": "1", **env}).invoke(app, list(args))
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", result.output)


def piped(*args: str) -> str:
    return str(CliRunner(env={"COLUMNS": None, "FORCE_COLOR": None}).invoke(app, list(args)).output)


# ---------------------------------------------------------------------- 80 columns


@pytest.mark.parametrize(
    ("kind", "columns"),
    [("items", 80), ("items", 120), ("hourly", 80), ("hourly", 120), ("count", 80), ("empty", 80), ("one", 80)],
)
def test_no_command_prints_more_than_the_terminal_is_wide(kind: str, columns: int, items: Log, tmp_path: Path) -> None:
    path = tmp_path / kind
    if kind == "hourly":
        operator_stream(path, time_window("1 hour", advance="5 min"), partitions=20)
    elif kind == "count":
        operator_stream(path, count_window(10))
    elif kind != "items":
        log = Log.create(LocalStorage(path, durability="os"), item_spec(1, time_type="timestamp"))
        if kind == "one":
            append_items(log, {0: [(1, 1, NOON)]})
    for command in (
        ["inspect"],
        ["tail", "-n", "3"],
        ["replay", "--since", "2030-01-01"],
        ["verify"],
        ["consumers"],
        ["truncate", "--before", "2030-01-01", "--dry-run"],
        ["compact"],
        ["collect"],
    ):
        text = shown(command[0], str(path), *command[1:], columns=columns)
        assert text.strip()
        assert max(map(len, text.splitlines())) <= columns, text


def test_inspect_of_a_thousand_partitions_shows_some_of_them(tmp_path: Path) -> None:
    log = Log.create(LocalStorage(tmp_path, durability="os"), item_spec(1_000, time_type="timestamp"))
    append_items(log, {p: [(1, 1, NOON)] for p in (0, 999)})
    text = shown("inspect", str(tmp_path))
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) < 50
    assert "… and 984 more partitions; --json has them all" in text


def test_truncate_keeps_its_header_and_its_times_whole(items: Log) -> None:
    text = shown("truncate", items.storage.url, "--before", "2026-01-31 15:00", "--dry-run")
    heading = next(line for line in text.splitlines() if "starts at" in line)
    assert "then at" in heading
    assert "newest" in heading
    assert "2026-01-31 14:00:59" in text


def test_the_ends_of_the_chart_stand_apart_and_its_height_is_in_its_title(items: Log) -> None:
    lines = shown("inspect", items.storage.url).splitlines()
    assert any(re.search(r"tuples over time, at most [\d,]+ in \d+ min", line) for line in lines)
    assert any(re.fullmatch(r"│ 2026-01-31 12:00:00 {20,}2026-01-31 23:03:59 │", line) for line in lines)


def test_inspect_of_an_operator_says_durations_and_not_microseconds(tmp_path: Path) -> None:
    operator_stream(tmp_path, time_window("1 hour", advance="5 min"))
    text = shown("inspect", str(tmp_path))
    assert "time windows of 1 hour, a new one every 5 min" in text
    assert "3600000000" not in text
    assert "0.75 s" in text  # the last recovery


def test_inspect_of_an_operator_with_many_partitions_shows_some(tmp_path: Path) -> None:
    operator_stream(tmp_path, time_window("1 hour"), partitions=40)
    assert shown("inspect", str(tmp_path)).count("… and 24 more partitions") == 2


def test_inspect_watched_on_24_rows_shows_the_operator(tmp_path: Path) -> None:
    log = operator_stream(tmp_path, time_window("1 hour"), partitions=40)
    console = Console(width=80, height=24, force_terminal=True, file=io.StringIO())
    console.print(_fitting(log, console))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) <= 24
    text = "\n".join(lines)
    assert "operator" in text
    assert "open windows" in text
    assert "without --watch" in lines[-1]
    tall = Console(width=80, height=200, force_terminal=True, file=io.StringIO())
    tall.print(_fitting(log, tall))
    assert "without --watch" not in tall.file.getvalue()  # type: ignore[attr-defined]


def test_the_chart_shows_the_same_history_after_compaction(items: Log) -> None:
    before = summary(items, buckets=76).histogram
    assert compact(items).blocks_after == 2
    after = summary(items, buckets=76).histogram
    assert before is not None
    assert after is not None
    assert sum(after.tuples) == sum(before.tuples)
    # Twelve batches of a few minutes each, with nothing in between: 64 slices are nearly as fine as 76 columns.
    sums = [list(itertools.accumulate(h.tuples)) for h in (before, after)]
    assert max(abs(a - b) for a, b in zip(*sums, strict=True)) <= max(before.tuples)
    assert sum(1 for many in after.tuples if many == 0) > 40
    again = Log.open(items.storage, items.clock)
    assert summary(again, buckets=76).histogram == after


def test_what_compaction_joins_twice_keeps_its_profile(items: Log) -> None:
    for rounds in range(3):
        for i in range(12):
            n = 12 * (rounds + 1) + i
            append_items(items, {p: [(0, n, NOON + n * HOUR)] * (1 + i % 4) for p in (0, 1)})
        before = summary(items, buckets=40).histogram
        compact(items, blocks_min=2)
        after = summary(items, buckets=40).histogram
        assert before is not None
        assert after is not None
        sums = [list(itertools.accumulate(h.tuples)) for h in (before, after)]
        assert max(abs(a - b) for a, b in zip(*sums, strict=True)) <= max(before.tuples)


# ---------------------------------------------------------------------- tail and replay


def test_tail_of_an_operator_shows_the_aggregates_at_80_columns(tmp_path: Path) -> None:
    operator_stream(tmp_path, time_window("1 hour"))
    heading = shown("tail", str(tmp_path)).splitlines()[0]
    assert heading.split()[:5] == ["partition", "offset", "item_id", "average", "n"]
    text = shown("tail", str(tmp_path), columns=60)
    assert "No room for window_end, window_start: --columns chooses" in text
    assert shown("tail", str(tmp_path), "--columns", "item_id,average", "-n", "1").split() == [
        "item_id",
        "average",
        "4",
        "44.25",
    ]


def test_tail_of_columns_that_are_not_there_is_refused(items: Log) -> None:
    assert "there is no column 'prise'" in shown("tail", items.storage.url, "--columns", "v,prise")


@pytest.mark.parametrize("window", [count_window(10), time_window("1 hour")])
def test_tail_shows_every_partition_in_turn_where_times_do_not_tell(tmp_path: Path, window: Window) -> None:
    operator_stream(tmp_path, window)
    rows = [line.split() for line in shown("tail", str(tmp_path), "-n", "6").splitlines()[1:7]]
    assert [row[0] for row in rows] == ["0", "1"] * 3
    assert [row[1] for row in rows] == ["12", "12", "13", "13", "14", "14"]


def test_replay_past_the_end_says_where_the_end_is(items: Log) -> None:
    text = " ".join(shown("replay", items.storage.url, "--since-offset", "99999").split())
    assert "Nothing to replay" in text
    assert "partition 1 at offset 1,560" in text
    assert "2026-01-31 23:03:59" in text
    assert "no tuples were published yet" in shown("replay", empty(items))
    assert "No tuples yet" in shown("tail", empty(items))


def empty(log: Log) -> str:
    folder = Path(log.storage.url).parent / "empty"
    Log.create(LocalStorage(folder, durability="os"), log.spec)
    return str(folder)


# ---------------------------------------------------------------------- words


def test_a_changed_operator_is_refused_in_the_words_of_the_program() -> None:
    mine = operator_spec(time_window("1 hour", advance="5 min"), 1)
    with pytest.raises(StreamMismatchError) as refused:
        mine.require_same(operator_spec(time_window("90 min"), 1), "streams/hourly")
    assert "it has time windows of 1 hour, a new one every 5 min, this program says time windows of 90 min" in str(
        refused.value
    )
    with pytest.raises(StreamMismatchError, match=r"it computes average=avg\(item_price\), n=count_all\(\), .* this"):
        mine.require_same(
            operator_spec(time_window("1 hour", advance="5 min"), 1, n=agg.count("item_price")), "streams/hourly"
        )


def test_sessions_are_said_in_words_too(tmp_path: Path) -> None:
    Log.create(LocalStorage(tmp_path, durability="os"), operator_spec(session_window("30 min"), 1))
    assert "sessions with gaps of at most 30 min" in shown("inspect", str(tmp_path))


@pytest.mark.parametrize("module", [wording, operator_texts, operator_words], ids=lambda module: str(module.__name__))
def test_the_examples_of_words_are_true(module: ModuleType) -> None:
    assert doctest.testmod(module).attempted > 2
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("kind", ["barrier", "join", "keyed"])
def test_the_examples_of_operators_texts_are_true(kind: str) -> None:
    found = doctest.testmod(importlib.import_module(f"strandline.operators.{kind}.definition"))
    assert found.attempted > 0
    assert found.failed == 0


def test_an_operator_of_a_later_kind_is_shown_by_its_kind(tmp_path: Path) -> None:
    known = operator_spec(session_window("30 min"), 1)
    log = Log.create(LocalStorage(tmp_path, durability="os"), replace(known, operator={"kind": "later"}))
    assert summary(log, words_of=words_of).operator.windows == "later"  # type: ignore[union-attr]
    with pytest.raises(StreamMismatchError, match="made by later, in this program by sessions with gaps"):
        log.spec.require_same(known, "streams/hourly", words_of)


def test_another_lateness_is_refused_with_durations() -> None:
    with pytest.raises(StreamMismatchError, match="lateness='10 s', this program says lateness='90 min'"):
        item_spec(1, time_type="timestamp", lateness=10 * SECOND).require_same(
            item_spec(1, time_type="timestamp", lateness=5_400 * SECOND), "streams/items"
        )


def test_one_is_singular() -> None:
    assert plural(1, "partition") == "1 partition"
    assert plural(1_000, "open window") == "1,000 open windows"


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0 s"),
        (1, "1 us"),
        (1_500, "1500 us"),
        (250_000, "250 ms"),
        (10 * SECOND, "10 s"),
        (HOUR, "1 hour"),
        (36 * HOUR, "36 hours"),
        (24 * HOUR, "1 day"),
    ],
)
def test_exact_durations_can_be_written_in_a_program(us: int, text: str) -> None:
    from strandline.units import duration_us

    assert exact_duration(us) == text
    assert duration_us(text, "size") == us


def test_collect_says_its_grace_time(items: Log) -> None:
    assert "2 hours: files are deleted that long" in shown("collect", items.storage.url, "--grace", "2 h")


def test_help_gives_each_example_once() -> None:
    for command in (
        "demo",
        "inspect",
        "graph",
        "tail",
        "replay",
        "verify",
        "compact",
        "truncate",
        "consumers",
        "collect",
        "bench",
    ):
        text = " ".join(shown(command, "--help").split())
        assert text.count(f"Example: strandline {command}") == 1


# ---------------------------------------------------------------------- retention


def test_inspect_tells_of_the_retention_that_the_writer_was_started_with(items: Log) -> None:
    path = items.storage.url
    assert "everything is kept" in shown("inspect", path)
    writer = Log.open(items.storage, items.clock)
    writer.retention = HOUR
    append_items(writer, {0: [(0, 0, NOON + 12 * HOUR)]})
    assert "retention  1 hour (set by its writer)" in shown("inspect", path)
    for i in range(70):  # also from the snapshot
        append_items(writer, {0: [(0, i, NOON + 12 * HOUR)]})
    assert summary(Log.open(items.storage, items.clock)).retention == HOUR
    for name in (operator_name(UUID), "report"):
        unregister(writer, name)
    apply_retention(writer, HOUR)
    assert "1 hour (set by its writer), 2,640 offsets dropped so far" in shown("inspect", path)
    # One that was started without keeps what is left.
    append_items(Log.open(items.storage, items.clock), {0: [(0, 0, NOON + 13 * HOUR)]})
    assert "nothing goes by itself, 2,640 offsets dropped so far" in shown("inspect", path)


def test_a_retention_that_the_stream_was_created_with_is_no_news(tmp_path: Path) -> None:
    spec = replace(item_spec(1, time_type="timestamp"), retention=7 * 24 * HOUR)
    log = Log.create(LocalStorage(tmp_path, durability="os"), spec)
    append_items(log, {0: [(1, 1, NOON)]})
    assert log.state.retention is None
    assert b"retention" not in log.storage.read(commit_key(0))
    assert "retention  7 days " in shown("inspect", str(tmp_path))


# ---------------------------------------------------------------------- pipes and colours


@pytest.mark.parametrize("command", ["inspect", "verify", "consumers", "collect"])
def test_in_a_pipe_there_are_no_frames_no_colours_and_no_folded_lines(items: Log, command: str) -> None:
    path = items.storage.url
    register(items, operator_name(UUID), [700, 900], writes=f"/data/{'streams/' * 20}hourly", label="prices")
    text = piped(command, path)
    assert not re.search("[\u2500-\u257f\x1b]", text), text
    assert all(line == line.rstrip() for line in text.splitlines())
    if command == "consumers":
        assert f"operator that writes /data/{'streams/' * 20}hourly" in text


def test_errors_in_a_pipe_are_three_lines_below_their_name(tmp_path: Path) -> None:
    text = piped("inspect", str(tmp_path / "nothing")).splitlines()
    assert text[0] == "StreamNotFoundError"
    assert [line.split()[0] for line in text[1:]] == ["what", "where", "to"]


def test_no_color_is_heard(items: Log) -> None:
    result = CliRunner(env={"COLUMNS": "80", "FORCE_COLOR": "1", "NO_COLOR": "1"}).invoke(
        app, ["inspect", items.storage.url]
    )
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", result.output)


# ---------------------------------------------------------------------- the demo


def test_the_demo_is_80_columns_wide() -> None:
    row: dict[str, Any] = {"item_id": 9_999, "window_start": 302_104, "window_end": 1_302_713, "average": 99.995}
    assert len(f"   {demo._short(row)} │ {demo._short(row)}") <= 80
    assert len(demo._HEADING) == len(demo._short(row))
    moments = [CommitPoint(float(i), i, i, 1_000_000, 1_000_000, "a" if i < 5 else "b") for i in range(10)]
    assert max(map(len, recovery_picture.sketch(moments))) <= 80


def test_the_picture_of_the_demo_says_how_long_nothing_ran_and_draws_nothing_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.setattr(pyplot, "close", lambda _figure: None)
    seconds = [0.0, 1.0, 2.0, 16.0, 17.0]
    moments = [CommitPoint(s, i, 10, 10, 10, "a" if s < 9 else "b") for i, s in enumerate(seconds)]
    assert recovery_picture.draw(moments, tmp_path / "picture.png", 0.16) == tmp_path / "picture.png"
    figure = pyplot.gcf()
    monkeypatch.undo()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "Q = 2 x open windows",
        "SIGKILL",
        "14 s: Python and Spark start, recovery 0.16 s",
    ]
    for axis in figure.axes:
        assert list(axis.texts) == [], "no label lies on a curve"
        curves = [list(line.get_xdata()) for line in axis.lines]
        assert not [xs for xs in curves if min(xs) < 2.0 and max(xs) > 2.0], "no curve crosses the gap"
    pyplot.close(figure)
