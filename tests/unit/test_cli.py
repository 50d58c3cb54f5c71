"""The commands as a user runs them: what they print, what they write, and how they fail."""

import datetime as dt
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.cli.arguments import size_value
from strandline.cli.replay import paced
from strandline.cli.terminal import bars, duration, out, rate, size
from strandline.cli.tuple_lines import RowPrinter, json_lines
from strandline.clock import ManualClock, SystemClock
from strandline.errors import OptionError
from strandline.log.reading.merge import BlockRun
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer, commit_key
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.consumer_registry import register
from tests.support.items import append_items, item_spec

SECOND = 1_000_000
NOON = 1_769_860_800 * SECOND
"""2026-01-31 12:00 UTC"""
COMMITS = 12
COMMANDS = ["inspect", "tail", "replay", "verify", "backup", "restore", "compact", "truncate", "consumers", "collect"]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions, a batch a second from noon on, five tuples a block; two late tuples."""
    folder = tmp_path_factory.mktemp("template")
    clock = ManualClock(NOON)
    spec = item_spec(2, time_type="timestamp", lateness=5 * SECOND)
    log = Log.create(LocalStorage(folder, durability="os"), spec, clock)
    for i in range(COMMITS):
        add_batch(log, i)
        clock.advance(1)
    append_items(log, {2: [(1, 1, NOON - SECOND), (2, 2, NOON)]}, writer=Writer("query", "run", COMMITS))
    return folder


@pytest.fixture
def log(template: Path, tmp_path: Path) -> Log:
    shutil.copytree(template, tmp_path / "items")
    return Log.open(LocalStorage(tmp_path / "items", durability="os"), ManualClock(NOON + COMMITS * SECOND))


def add_batch(log: Log, i: int) -> None:
    batch = {p: [(k, i, NOON + i * SECOND + k * 200_000 + p) for k in range(5)] for p in (0, 1)}
    append_items(log, batch, writer=Writer("query", "run", i))


@pytest.fixture
def path(log: Log) -> str:
    return log.storage.url


def run(*args: str) -> Any:
    return CliRunner(env={"COLUMNS": "120", "TERM": "dumb"}).invoke(app, list(args))


def good(*args: str) -> str:
    result = run(*args)
    assert result.exit_code == 0, result.output
    return str(result.stdout)


def lines(*args: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in good(*args).splitlines()]


def refused(*args: str) -> dict[str, Any]:
    """The error as JSON, after a look at how it is shown to people."""
    shown = run(*args)
    assert shown.exit_code == 1
    assert "what" in shown.stderr
    assert shown.stdout == "" or "truncate" in shown.stdout
    result = run(*args, "--json")
    assert result.exit_code == 1
    body: dict[str, Any] = json.loads(result.stdout)
    assert body["error"]
    assert body["todo"]
    return body


# ---------------------------------------------------------------------- the program


def test_help_is_short_and_has_an_example() -> None:
    assert all(command in good("--help") for command in COMMANDS)
    for command in COMMANDS:
        text = good(command, "--help")
        assert f"Example: strandline {command}" in text
        assert "--json" in text
        assert "<bool>" not in text


def test_the_version_is_printed() -> None:
    assert good("--version").startswith("strandline ")


def test_the_module_is_the_program() -> None:
    run = subprocess.run([sys.executable, "-m", "strandline", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout == good("--version")


def test_commands_are_there_without_spark_and_without_arrow() -> None:
    program = """
import importlib, sys, types
package = types.ModuleType("strandline")  # without what strandline/__init__.py itself imports
package.__path__ = [sys.argv[1]]
sys.modules["strandline"] = package
importlib.import_module("strandline.cli.app")
print(sorted({"pyspark", "pyarrow", "numpy", "pandas"} & set(sys.modules)))
"""
    import strandline

    folder = str(Path(strandline.__file__).parent)
    command = [sys.executable, "-c", program, folder]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def needed(command: str, folder: Path) -> list[str]:
    """The arguments that a command needs beside the path of a stream."""
    target = [str(folder / "target")]
    return {"truncate": ["--before", "2026-01-01"], "backup": target, "restore": target}.get(command, [])


@pytest.mark.parametrize("command", COMMANDS)
def test_a_path_without_a_stream_is_refused_with_what_where_and_what_to_do(command: str, tmp_path: Path) -> None:
    error = refused(command, str(tmp_path / "nothing"), *needed(command, tmp_path))
    assert error["kind"] == "StreamNotFoundError"
    assert error["where"].endswith("nothing")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_path_with_something_else_is_refused(command: str, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "notes.txt").write_text("not a stream")
    assert refused(command, str(tmp_path / "notes"), *needed(command, tmp_path))["kind"] == "NotAStreamError"
    assert not (tmp_path / "target").exists()


def test_a_path_with_dots_is_refused() -> None:
    assert refused("inspect", "a/../b")["kind"] == "OptionError"


def test_ctrl_c_ends_quietly(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemClock, "sleep", interrupting())
    result = run("tail", path, "--follow")
    assert result.exit_code == 130
    assert "Abort" not in result.output


def interrupting(*actions: Any) -> Any:
    """A `sleep` that does one thing after the other, and then is like the user's Ctrl-C."""
    waiting: Iterator[Any] = iter(actions)

    def sleep(_clock: SystemClock, _seconds: float) -> None:
        for action in waiting:
            action()
            return
        raise KeyboardInterrupt

    return sleep


# ---------------------------------------------------------------------- inspect


def test_inspect_shows_what_a_stream_is(log: Log, path: str) -> None:
    register(log, "average", [50, 60])
    text = good("inspect", path)
    for expected in (
        "timestamp",
        "key",
        "120",
        "late 2",
        "average",
        "2026-01-31 12:00:11",
        "of query query",
        "run run",
        "█",
    ):
        assert expected in text


def test_inspect_as_json_has_everything(path: str) -> None:
    (body,) = lines("inspect", path, "--json")
    assert body["tuples"] == 120
    assert body["late"]["tuples"] == 2
    assert [p["end"] for p in body["partitions"]] == [60, 60]
    assert sum(body["histogram"]["tuples"]) == 120


def test_inspect_of_a_stream_without_tuples(tmp_path: Path) -> None:
    Log.create(LocalStorage(tmp_path, durability="os"), item_spec(1))
    assert "never" in good("inspect", str(tmp_path))


def test_inspect_of_many_partitions_on_a_narrow_terminal(tmp_path: Path) -> None:
    log = Log.create(LocalStorage(tmp_path, durability="os"), item_spec(100, time_type="timestamp"))
    append_items(log, {p: [(0, 0, NOON)] for p in range(100)})
    text = good("inspect", str(tmp_path))
    assert "84 more partitions" in text
    narrow = CliRunner(env={"COLUMNS": "60", "TERM": "dumb"}).invoke(app, ["inspect", str(tmp_path)])
    assert all(len(line) <= 60 for line in narrow.stdout.splitlines())


def test_inspect_goes_on_looking(log: Log, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemClock, "sleep", interrupting(lambda: add_batch(log, COMMITS)))
    result = run("inspect", path, "--watch", "2", "--json")
    assert result.exit_code == 130
    assert [json.loads(line)["tuples"] for line in result.stdout.splitlines()] == [120, 130]
    monkeypatch.setattr(SystemClock, "sleep", interrupting(lambda: add_batch(log, COMMITS + 1)))
    assert run("inspect", path, "--watch", "2").exit_code == 130


# ---------------------------------------------------------------------- tail


def test_tail_shows_the_newest_tuples_merged_by_time(path: str) -> None:
    rows = lines("tail", path, "-n", "3", "--json")
    assert [(r["_partition"], r["_offset"]) for r in rows] == [(1, 58), (0, 59), (1, 59)]
    assert rows[-1] == {
        "_partition": 1,
        "_offset": 59,
        "t": "2026-01-31T12:00:11.800001Z",
        "k": 4,
        "v": 11,
    }
    text = good("tail", path, "-n", "3").splitlines()
    assert text[0].split() == ["partition", "offset", "k", "v", "t", "UTC"]
    assert text[-1].split() == ["1", "59", "4", "11", "2026-01-31", "12:00:11.800"]


def test_tail_of_one_partition_across_blocks(path: str) -> None:
    rows = lines("tail", path, "-n", "12", "--partition", "1", "--json")
    assert [(r["_partition"], r["_offset"]) for r in rows] == [(1, offset) for offset in range(48, 60)]


def test_tail_of_the_late_tuples(path: str) -> None:
    assert [(r["_offset"], r["k"]) for r in lines("tail", path, "--late", "--json")] == [(0, 1), (1, 2)]
    assert "partition" not in good("tail", path, "--late")


def test_tail_of_more_than_there_is_and_of_nothing(path: str) -> None:
    assert len(lines("tail", path, "-n", "1000", "--json")) == 120
    assert good("tail", path, "-n", "0") == ""


def test_tail_follows_what_is_published(log: Log, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    actions = [lambda: add_batch(log, COMMITS), lambda: None, lambda: add_batch(log, COMMITS + 1)]
    monkeypatch.setattr(SystemClock, "sleep", interrupting(*actions))
    result = run("tail", path, "-n", "1", "--follow", "--json")
    assert result.exit_code == 130
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(r["_partition"], r["_offset"]) for r in rows] == [
        (1, 59),
        *[(p, offset) for offset in range(60, 70) for p in (0, 1)],
    ]


def test_tail_of_a_partition_that_is_not_there_is_refused(path: str) -> None:
    assert "no partition 7" in refused("tail", path, "--partition", "7")["error"]
    assert "no partitions" in refused("tail", path, "--partition", "0", "--late")["error"]


# ---------------------------------------------------------------------- replay


def test_replay_emits_everything_in_the_order_of_time(path: str) -> None:
    rows = lines("replay", path, "--json")
    assert [r["t"] for r in rows] == sorted(r["t"] for r in rows)
    assert len(rows) == 120
    assert list(rows[0]) == ["k", "v", "t"]


def test_replay_from_one_point_in_time_to_another(path: str) -> None:
    rows = lines("replay", path, "--since", "2026-01-31 12:00:03", "--until", "2026-01-31T13:00:05+01:00", "--json")
    assert {r["v"] for r in rows} == {3, 4}
    assert len(rows) == 20


def test_replay_from_an_offset_of_a_partition(path: str) -> None:
    rows = lines("replay", path, "--since-offset", "57", "--partition", "0", "--positions", "--columns", "k", "--json")
    assert rows == [{"k": k, "_partition": 0, "_offset": 55 + k} for k in (2, 3, 4)]


def test_replay_for_people_has_a_heading(path: str) -> None:
    text = good("replay", path, "--columns", "t,k", "--until", "2026-01-31 12:00:01").splitlines()
    assert text[0].split() == ["t", "UTC", "k"]
    assert len(text) == 11


def test_replay_into_a_parquet_file(path: str, tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    (body,) = lines("replay", path, "--output", str(target), "--json")
    assert (body["tuples"], body["file"]) == (120, str(target))
    table = pq.read_table(target)
    assert table.column_names == ["k", "v", "t"]
    assert table.schema.field("t").type == pa.timestamp("us", tz="UTC")
    assert len(table) == 120
    assert "120 tuples in" in good("replay", path, "--output", str(target), "--positions")
    assert pq.read_table(target).column_names[-2:] == ["_partition", "_offset"]


def test_replay_into_a_file_of_json_lines(path: str, tmp_path: Path) -> None:
    target = tmp_path / "out.ndjson"
    good("replay", path, "-o", str(target))
    assert len([json.loads(line) for line in target.read_text().splitlines()]) == 120


def test_replay_of_nothing_makes_an_empty_file(path: str, tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    good("replay", path, "--since", "2030-01-01", "-o", str(target))
    assert len(pq.read_table(target)) == 0


@pytest.mark.parametrize(
    ("args", "kind", "about"),
    [
        (["--since", "yesterday"], "OptionError", "--since='yesterday'"),
        (["--until", "2026-13-01"], "OptionError", "--until='2026-13-01'"),
        (["--since", "2026-01-31", "--since-offset", "0"], "OptionError", "--since-offset"),
        (["--speed", "fast"], "OptionError", "--speed='fast'"),
        (["--speed", "0x"], "OptionError", "--speed='0x'"),
        (["--columns", "k,price"], "OptionError", "'price'"),
        (["--output", "out.csv"], "OptionError", "out.csv"),
        (["--output", "no/such/folder/out.parquet"], "StorageError", "cannot write"),
    ],
)
def test_replay_refuses_what_it_cannot_do(path: str, args: list[str], kind: str, about: str) -> None:
    error = refused("replay", path, *args)
    assert error["kind"] == kind
    assert about in error["error"]


def test_replay_at_a_speed_emits_each_tuple_when_its_time_has_come() -> None:
    clock = ManualClock(77)
    began_us = clock.now_us()
    times = np.array([0, 1, 1, 2, 10, 10]) * SECOND + NOON
    runs = [BlockRun(pa.table({"t": times[i : i + 3]}), times[i : i + 3]) for i in (0, 3)]
    emitted = [
        ((clock.now_us() - began_us) / SECOND, t)
        for table in paced(iter(runs), 2.0, clock)
        for t in table.column("t").to_pylist()
    ]
    for elapsed_s, t in emitted:
        assert elapsed_s == pytest.approx((t - NOON) / SECOND / 2, abs=0.05)
    assert len(emitted) == 6


def test_replay_at_a_speed_through_the_command(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = ManualClock(0)
    monkeypatch.setattr(SystemClock, "now_us", lambda _clock: now.now_us())
    monkeypatch.setattr(SystemClock, "sleep", lambda _clock, seconds: now.sleep(seconds))
    assert len(lines("replay", path, "--speed", "4x", "--json")) == 120
    assert now.now_us() / SECOND == pytest.approx(11.8 / 4, abs=0.05)


# ---------------------------------------------------------------------- verify, compact, truncate, collect


def test_verify_of_a_healthy_stream(path: str) -> None:
    assert "all good" in good("verify", path)
    (body,) = lines("verify", path, "--json")
    assert body["is_good"] is True
    assert body["tuples"] == 120


def test_verify_names_what_is_wrong_and_fails(log: Log, path: str) -> None:
    block = next(log.blocks(1, first=10))
    log.storage.put(block.file, log.storage.read(block.file)[:-1] + b"?")
    log.storage.put(commit_key(COMMITS), b"rotten")
    result = run("verify", path)
    assert result.exit_code == 1
    assert "2 problems" in result.stdout
    assert "offsets 10 to 14" in result.stdout
    assert block.file in result.stdout
    shown = run("verify", path, "--json")
    assert shown.exit_code == 1
    problems = json.loads(shown.stdout)["problems"]
    assert [p["file"] for p in problems] == [commit_key(COMMITS), block.file]


def test_compact_joins_blocks_and_changes_no_tuple(path: str) -> None:
    before = good("replay", path, "--positions", "--json")
    (body,) = lines("compact", path, "--json")
    assert (body["blocks_before"], body["blocks_after"], body["tuples"]) == (24, 2, 120)
    assert good("replay", path, "--positions", "--json") == before
    assert "Nothing to do" in good("compact", path)


def test_compact_says_what_it_did_and_takes_sizes(path: str) -> None:
    text = good("compact", path, "--target-size", "64 MiB")
    assert "24 became 2" in text
    assert "'large'" in refused("compact", path, "--target-size", "large")["error"]


def test_truncate_shows_what_goes_and_drops_it(path: str) -> None:
    shown = good("truncate", path, "--before", "2026-01-31 12:00:05", "--dry-run")
    assert "would drop 52 tuples" in shown
    assert lines("inspect", path, "--json")[0]["tuples"] == 120
    assert "will drop 52 tuples" in good("truncate", path, "--before", "2026-01-31 12:00:05")
    (body,) = lines("inspect", path, "--json")
    assert [p["start"] for p in body["partitions"]] == [25, 25]
    assert body["late"]["tuples"] == 0
    assert "Nothing to drop" in good("truncate", path, "--before", "2026-01-31 12:00:05")


def test_truncate_before_an_offset_of_one_partition_keeps_whole_blocks(path: str) -> None:
    (body,) = lines("truncate", path, "--before-offset", "17", "--partition", "1", "--json")
    assert body["starts"] == [0, 15, 0]
    assert [d["tuples"] for d in body["dropped"]] == [15]
    (body,) = lines("truncate", path, "--before", "2026-01-31 12:00:06", "--partition", "0", "--json")
    assert body["starts"] == [30, 15, 0]


def test_truncate_is_refused_with_the_consumer_named(log: Log, path: str) -> None:
    register(log, "average", [10, 10])
    error = refused("truncate", path, "--before-offset", "30")
    assert error["kind"] == "ConsumerError"
    assert "'average'" in error["error"]
    assert lines("inspect", path, "--json")[0]["tuples"] == 120


# ---------------------------------------------------------------------- consumers


def test_consumers_shows_who_holds_back_what_and_since_when(log: Log, path: str) -> None:
    register(log, "report", [57, 60])
    assert isinstance(log.clock, ManualClock)
    log.clock.advance(2 * 86_400)
    register(log, "operator-1f", [12, 50], writes="streams/averages")
    sizes = {p: [b.size_bytes for b in log.blocks(p)] for p in (0, 1)}
    (body,) = lines("consumers", path, "--json")
    report, operator = body["consumers"]
    assert (report["name"], report["writes"], report["needs"]) == ("report", "", [57, 60])
    # Blocks of five tuples: the one with the mark is kept whole.
    assert (report["held_tuples"], report["held_bytes"]) == (5, sizes[0][-1])
    assert (report["alone_tuples"], report["alone_bytes"]) == (0, 0)
    assert (operator["name"], operator["writes"], operator["needs"]) == ("operator-1f", "streams/averages", [12, 50])
    assert operator["held_tuples"] == 50 + 10
    assert operator["held_bytes"] == sum(sizes[0][2:]) + sum(sizes[1][-2:])
    assert operator["alone_tuples"] == 45 + 10
    assert operator["alone_bytes"] == operator["held_bytes"] - sizes[0][-1]
    assert operator["updated_us"] - report["updated_us"] == 2 * 86_400 * SECOND
    text = good("consumers", path)
    for expected in ("averages", "operator that writes streams/averages", "0:12, 1:50", "reader", "0:57", " ago"):
        assert expected in text


def test_what_a_consumer_holds_alone_is_what_truncation_drops_once_it_is_forgotten(log: Log, path: str) -> None:
    register(log, "report", [40, 57])
    register(log, "old", [12, 50])
    (body,) = lines("consumers", path, "--json")
    alone = body["consumers"][1]["alone_tuples"]
    good("truncate", path, "--before-offset", "12")
    refused("truncate", path, "--before-offset", "40")
    before = lines("inspect", path, "--json")[0]["tuples"]
    (body,) = lines("consumers", path, "--forget", "old", "--json")
    assert body["forgotten"]["name"] == "old"
    assert [c["name"] for c in body["consumers"]] == ["report"]
    good("truncate", path, "--before-offset", "40", "--partition", "0")
    good("truncate", path, "--before-offset", "55", "--partition", "1")
    after = lines("inspect", path, "--json")[0]["tuples"]
    assert before - after == alone + 40  # in partition 1 nobody needed what lies before offset 50


def test_consumers_forget_says_what_it_let_go(log: Log, path: str) -> None:
    register(log, "report", [50, 60])
    register(log, "other", [60, 60])
    text = " ".join(good("consumers", path, "--forget", "report").split())
    assert "Forgotten: report, reader. It held back 10 tuples" in text
    assert "no other consumer needs 10 of them" in text
    assert "No consumer" not in good("consumers", path)
    assert "It held nothing back" in good("consumers", path, "--forget", "other")
    assert "No consumer is registered" in good("consumers", path)


def test_consumers_forgets_nobody_it_does_not_know(log: Log, path: str) -> None:
    assert "nothing to do" in refused("consumers", path, "--forget", "report")["todo"]
    register(log, "report", [0, 0])
    register(log, "other", [0, 0])
    error = refused("consumers", path, "--forget", "reprot")
    assert error["kind"] == "OptionError"
    assert "'reprot'" in error["error"]
    assert "report, other" in error["todo"]
    assert len(lines("consumers", path, "--json")[0]["consumers"]) == 2


def test_consumers_fits_a_terminal_of_80_columns(tmp_path: Path) -> None:
    log = Log.create(LocalStorage(tmp_path, durability="os"), item_spec(100, time_type="timestamp"))
    append_items(log, {p: [(0, 0, NOON)] for p in range(100)})
    register(log, "operator-a81bc81b-dead-4e5d-abff-90865d1e13b1", [0] * 100, writes=f"file://{'a-long-folder/' * 9}")
    shown = CliRunner(env={"COLUMNS": "80", "TERM": "dumb"}).invoke(app, ["consumers", str(tmp_path)]).stdout
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "a-long-folder" in shown
    assert "0:0, 1:0" in shown
    assert "…" in shown


def test_truncate_needs_one_bound(path: str) -> None:
    refused("truncate", path)
    refused("truncate", path, "--before", "2026-01-01", "--before-offset", "3")
    refused("truncate", path, "--before", "noonish")


def test_collect_announces_then_deletes(log: Log, path: str) -> None:
    good("compact", path)
    (body,) = lines("collect", path, "--grace", "0 s", "--json")
    old = body["deleted"] or body["announced"]
    assert len(old) == 24
    assert "deleted" in good("collect", path, "--grace", "0 s")
    assert [f for f in old if log.storage.exists(f)] == []
    assert "all good" in good("verify", path)
    assert "--grace" in refused("collect", path, "--grace", "soon")["error"]


# ---------------------------------------------------------------------- lines, numbers, bars


def test_values_of_every_type_become_json() -> None:
    table = pa.table(
        {
            "x": pa.array([1.5, float("nan"), None]),
            "b": pa.array([b"\x00\xff", None, b""]),
            "d": pa.array(["1.20", None, "-3.00"]).cast(pa.decimal128(10, 2)),
            "at": pa.array([0, None, 2**62], pa.int64()).cast(pa.timestamp("us")),
            "m": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
            "s": pa.array(
                [{"l": [1, None], "day": dt.date(1970, 1, 1)}, None, {"l": [], "day": None}],
                pa.struct([("l", pa.list_(pa.int64())), ("day", pa.date32())]),
            ),
        }
    )
    first, second, third = (json.loads(line) for line in json_lines(table))
    assert first == {
        "x": 1.5,
        "b": "AP8=",
        "d": "1.20",
        "at": "1970-01-01T00:00:00.000000",
        "m": {"a": 1},
        "s": {"l": [1, None], "day": "1970-01-01"},
    }
    assert second == {"x": "nan", "b": None, "d": None, "at": None, "m": None, "s": None}
    assert third["at"] == 2**62
    RowPrinter(out()).print(table)


def test_long_and_wild_text_stays_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    RowPrinter(out()).print(pa.table({"text": ["a\nb\x1b[31m", "x" * 100, "漢字", None], "n": [1, 22, 3, 4]}))
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 5
    assert "\x1b" not in "".join(printed)
    assert printed[2].split()[0] == "x" * 39 + "…"


def test_sizes_are_read_as_people_write_them() -> None:
    assert [size_value(text, "--size") for text in ("128MB", "64 MiB", "1.5k", "500")] == [
        128_000_000,
        64 << 20,
        1_500,
        500,
    ]
    with pytest.raises(OptionError):
        size_value("-3MB", "--size")


def test_numbers_are_written_as_people_read_them() -> None:
    assert [size(n) for n in (0, 999, 12_345, 5_000_000_000_000_000)] == ["0 B", "999 B", "12.3 kB", "5,000.0 TB"]
    assert [duration(s * SECOND // 10) for s in (0, 5, 100, 615, 36_000, 75_000, 900_000 * 10)] == [
        "0 s",
        "500 ms",
        "10 s",
        "1 min 1 s",
        "1 h",
        "2 h 5 min",
        "10 d 10 h",
    ]
    assert [rate(r) for r in (None, 0.5, 1234.5)] == ["-", "0.5 tuples/s", "1,234 tuples/s"]


def test_bars_show_every_value_that_is_not_zero() -> None:
    assert bars([0, 1, 10_000], height=2) == ["  █", " ▁█"]
    assert bars([], height=1) == [""]
    assert bars([0, 0], height=1) == ["  "]


# ---------------------------------------------------------------------- backup and restore


def test_a_stream_is_backed_up_and_restored_by_commands(log: Log, path: str, tmp_path: Path) -> None:
    kept, back = str(tmp_path / "kept"), str(tmp_path / "back")
    done = json.loads(good("backup", path, kept, "--json"))
    commits = COMMITS + 1
    assert (done["source"], done["target"], done["commit"], done["tuples"]) == (path, kept, COMMITS, 10 * COMMITS)
    assert (done["files"], done["deleted"], done["damaged"]) == (2 * COMMITS + 1 + commits + 1, 0, [])
    assert "copied  0 files, 0 B" in good("backup", path, kept), "nothing is new"
    assert f"holds   {commits} commits, {10 * COMMITS} tuples" in good("restore", kept, back)
    assert good("replay", back, "--json") == good("replay", path, "--json")
    assert good("tail", back, "--late", "--json") == good("tail", path, "--late", "--json")
    compact(log)
    assert "that the stream no longer has" in good("backup", path, kept)


def test_backup_and_restore_say_what_is_wrong_with_their_places(path: str, tmp_path: Path) -> None:
    kept, back = str(tmp_path / "kept"), str(tmp_path / "back")
    good("backup", path, kept)
    good("restore", kept, back)
    assert refused("backup", str(tmp_path / "nothing"), kept)["kind"] == "StreamNotFoundError"
    assert refused("backup", path, back)["error"] == "the target is a stream"
    assert refused("restore", kept, back)["error"] == "the target is a stream"
    assert "backup.json" in refused("restore", path, str(tmp_path / "other"))["error"]


def test_a_block_that_a_backup_cannot_have_is_named_with_exit_code_1(log: Log, path: str, tmp_path: Path) -> None:
    lost = next(log.blocks(0)).file
    log.storage.delete(lost)
    result = run("backup", path, str(tmp_path / "kept"))
    assert result.exit_code == 1
    assert f"1 block lost or rotten: {lost}" in result.stdout
    result = run("restore", str(tmp_path / "kept"), str(tmp_path / "back"), "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["damaged"] == [lost]


# ---------------------------------------------------------------------- widths


def in_columns(width: int, *args: str) -> list[str]:
    result = CliRunner(env={"COLUMNS": str(width), "TERM": "dumb"}).invoke(app, list(args))
    assert result.exit_code == 0, result.output
    return str(result.stdout).splitlines()


def test_the_summary_of_every_command_fits_80_columns() -> None:
    cut = [line for line in in_columns(80, "--help") if "..." in line and "Usage" not in line]
    assert cut == []


def test_tail_in_a_pipe_keeps_the_order_of_columns_and_fits_the_width_asked_for(path: str) -> None:
    assert good("tail", path).split("\n", 1)[0].split() == ["partition", "offset", "k", "v", "t", "UTC"]
    assert in_columns(46, "tail", path)[0].split() == ["partition", "offset", "t", "UTC", "…"], "the most telling ones"
    assert in_columns(40, "tail", path)[0].split() == ["t", "UTC", "k", "v", "…"], "places alone say nothing"
    assert max(map(len, in_columns(40, "tail", path))) <= 40
    assert list(lines("tail", path, "--json")[0]) == ["_partition", "_offset", "k", "v", "t"]


@pytest.mark.parametrize("width", [50, 60, 80])
@pytest.mark.parametrize("command", ["consumers", "inspect"])
def test_no_line_is_too_long_and_no_path_is_cut_within_a_word(log: Log, path: str, command: str, width: int) -> None:
    writes = "/data/warehouse/production/streams/average-price/hourly"
    register(log, "operator-7", [0, 0], writes=writes, label="average-price.of_all-items-in-the-warehouse")
    shown = in_columns(width, command, path)
    assert max(map(len, shown)) <= width
    assert not [line for line in shown if re.search(r"hou$|pro$|/stre$|[a-z]+-it$", line.rstrip())]
    for word in ["average-", "warehouse", *(writes.split("/")[1:] if command == "consumers" else [])]:
        assert any(word in line for line in shown), word
