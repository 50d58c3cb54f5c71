"""`strandline graph`: streams written without Spark, drawn as a tree, as Mermaid text and as an image."""

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.cli.graph_svg import Arrow, Box, drawing
from strandline.clock import SYSTEM_CLOCK, ManualClock
from strandline.log.operator_state.operator_words import kind_words
from strandline.log.operator_state.upstream import Origin, group_of, upstream_of
from strandline.log.reading.stream_graph import stream_graph
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.storage.storage_url import open_storage
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.running.state.state_cache import StateCache
from tests.support.items import append_items, item_spec
from tests.support.operator_streams import PLANS, Streams, output_spec
from tests.support.written_replicas import Written

NOON_US = 1_769_860_800_000_000


def run(*arguments: str, columns: int = 80) -> Any:
    return CliRunner().invoke(app, ["graph", *arguments], env={"COLUMNS": str(columns), "TERM": "dumb"})


def good(*arguments: str, columns: int = 80) -> str:
    result = run(*arguments, columns=columns)
    assert result.exit_code == 0, result.output
    return str(result.stdout)


def streams(folder: Path | str) -> dict[str, dict[str, Any]]:
    body = json.loads(good(str(folder), "--json"))
    return {one["name"]: one for one in body["streams"]}


def source(folder: Path, name: str, commits: int = 1, clock: ManualClock | None = None) -> Log:
    """A stream of so many commits of ten tuples, a second from one to the next."""
    clock = clock or ManualClock(NOON_US)
    log = Log.create(LocalStorage(folder / name, durability="os"), item_spec(1, name=str(uuid4())), clock)
    for number in range(commits):
        append_items(log, {0: [(key, number, number) for key in range(10)]})
        clock.advance(1)
    return log


def operator(folder: Path, name: str, *inputs: Log, replicas: Sequence[Log] = ()) -> Log:
    """The stream of an operator that has not worked yet, over these inputs and over replicas."""
    origins = [Origin(log.spec.id, log.storage.url) for log in inputs]
    if replicas:
        paths = tuple(log.storage.url for log in replicas)
        origins.append(Origin(group_of(replicas[0].spec), paths[0], paths))
    spec = replace(output_spec(PLANS["tumbling time"]), id=str(uuid4()), upstream=upstream_of(origins))
    return Log.create(LocalStorage(folder / name, durability="os"), spec, ManualClock(NOON_US))


def rects(svg: str) -> list[tuple[float, float, float, float]]:
    """The boxes: left, top, width and height of each."""
    found = ElementTree.fromstring(svg).iterfind(".//{*}g/{*}rect")
    return [tuple(float(one.attrib[name]) for name in ("x", "y", "width", "height")) for one in found]  # type: ignore


# ---------------------------------------------------------------------- what is drawn


def test_each_stream_stands_once_below_what_it_is_made_of(tmp_path: Path) -> None:
    a, b = source(tmp_path, "a"), source(tmp_path, "b")
    both = operator(tmp_path, "both", a, b)
    operator(tmp_path, "deep/last", a, both)
    text = good(str(tmp_path))
    assert [line for line in text.splitlines() if re.search(r"source|windows of", line)] == [
        "  a  source",
        "  └── both  time windows of 10",
        "      └── deep/last  time windows of 10",
        "  b  source",
    ]
    assert text.count("and reads") == 2
    assert "4 streams, 0 live" in text
    assert "10 tuples, last batch" in text


def test_the_arrows_are_those_of_stream_json(tmp_path: Path) -> None:
    a, b = source(tmp_path, "a"), source(tmp_path, "b")
    operator(tmp_path, "both", a, b)
    text = good(str(tmp_path), "--mermaid")
    names = {name: s for s, name in re.findall(r"(s\d+)\(?\[\"([^<\"]+)", text)}
    assert text.startswith("flowchart LR\n")
    assert set(re.findall(r"(s\d+) --> (s\d+)", text)) == {(names["a"], names["both"]), (names["b"], names["both"])}
    body = streams(tmp_path)
    assert [read["url"] for read in body["both"]["reads"]] == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert (body["a"]["kind"], body["both"]["kind"]) == ("source", "operator")


def test_an_operator_has_its_open_windows_and_what_waits_for_it(tmp_path: Path) -> None:
    storages = (LocalStorage(tmp_path / "in", "os"), LocalStorage(tmp_path / "out", "os"))
    made = Streams(PLANS["tumbling time"], lambda p: StateCache(tmp_path / f"state{p}"), storages=storages)
    row = {"k": 1, "s": "a", "v": 1, "x": 1.0}
    made.append([{**row, "t": t} for t in (1, 2, 3, 30, 31)])
    made.drain()
    made.append([{**row, "t": 32}, {**row, "t": 33}])
    found = streams(tmp_path)["out"]
    assert (found["tuples"], found["open_windows"], found["waiting"]) == (1, 1, 2)
    assert "1 result, last batch" in good(str(tmp_path))
    assert "1 open window, 2 waiting" in good(str(tmp_path))


def test_a_live_stream_has_a_rate_and_one_that_stands_still_has_not(tmp_path: Path) -> None:
    source(tmp_path, "live", 5, ManualClock(SYSTEM_CLOCK.now_us() - 6_000_000))
    source(tmp_path, "still", 5)
    found = streams(tmp_path)
    assert found["live"]["rate"] == pytest.approx(10.0)
    assert (found["live"]["is_live"], found["still"]["is_live"], found["still"]["rate"]) == (True, False, None)
    assert "50 tuples, 10 tuples/s" in good(str(tmp_path))
    assert "2 streams, 1 live" in good(str(tmp_path))


def test_an_operator_with_a_bound_has_its_state(tmp_path: Path) -> None:
    written = Written("guessing", LocalStorage(tmp_path / "guessing", "os"))
    written.append([(Kind.RESULT, 10), (Kind.TENTATIVE, 20)], state="UP_FAILURE")
    assert streams(tmp_path)["guessing"]["state"] == "UP_FAILURE"
    assert "UP_FAILURE" in good(str(tmp_path))
    assert "UP_FAILURE" in good(str(tmp_path), "--mermaid")


def test_replicas_are_read_one_at_a_time(tmp_path: Path) -> None:
    a = source(tmp_path, "a")
    replicas = [operator(tmp_path, f"count-{n}", a) for n in (1, 2)]
    operator(tmp_path, "behind", replicas=replicas)
    assert "reads one of count-1, count-2" in good(str(tmp_path))
    assert good(str(tmp_path), "--mermaid").count("-- or -->") == 2
    assert [read["is_replica"] for read in streams(tmp_path)["behind"]["reads"]] == [True, True]
    shutil.move(tmp_path, tmp_path.with_name("moved"))
    moved = streams(tmp_path.with_name("moved"))
    assert {read["url"].rpartition("/")[2] for read in moved["behind"]["reads"]} == {"count-1", "count-2"}
    assert all(one["problem"] is None for one in moved.values())


# ---------------------------------------------------------------------- where streams are


def test_an_empty_folder_has_no_streams_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    assert "no streams below" in good(str(tmp_path))
    assert json.loads(good(str(tmp_path), "--json"))["streams"] == []
    assert "no streams below" in draw(tmp_path, tmp_path)
    for path in (tmp_path / "nowhere", source(tmp_path, "a").storage.local_path("stream.json")):
        result = run(str(path), "--json")
        assert result.exit_code == 1
        body = json.loads(result.stdout)
        assert (body["kind"], body["where"]) == ("StreamNotFoundError", str(path))


def test_the_folder_may_be_a_stream_itself(tmp_path: Path) -> None:
    a = source(tmp_path, "a")
    operator(tmp_path, "b", a)
    found = streams(tmp_path / "b")
    assert found["b"]["kind"] == "operator"
    assert found[str(tmp_path / "a")]["is_elsewhere"], "its input, which lies beside the folder"
    assert found[str(tmp_path / "a")]["tuples"] == 10


def test_streams_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    for folder in ("one", "other"):
        operator(tmp_path, f"{folder}/counts", source(tmp_path, f"{folder}/items"))
    found = streams(tmp_path)
    assert set(found) == {"one/counts", "one/items", "other/counts", "other/items"}
    assert found["other/counts"]["reads"][0]["url"] == str(tmp_path / "other" / "items")


def test_a_stream_that_is_gone_is_a_dashed_box_with_its_address(tmp_path: Path) -> None:
    gone = source(tmp_path, "gone")
    operator(tmp_path, "left", gone)
    shutil.rmtree(tmp_path / "gone")
    address = str(tmp_path / "gone")
    found = streams(tmp_path)[address]
    assert (found["kind"], found["problem"]) == ("missing", "there is no stream")
    assert address in "".join(line.strip(" └─│├") for line in good(str(tmp_path)).splitlines())
    assert ":::missing" in good(str(tmp_path), "--mermaid")
    assert "stroke-dasharray" in next(line for line in draw(tmp_path, tmp_path).split("<g>") if "gone" in line)


def test_a_folder_that_was_moved_keeps_its_arrows(tmp_path: Path) -> None:
    operator(tmp_path / "before", "b", source(tmp_path / "before", "a"))
    shutil.move(tmp_path / "before", tmp_path / "after")
    found = streams(tmp_path)
    assert set(found) == {"after/a", "after/b"}
    assert found["after/b"]["reads"][0]["url"] == str(tmp_path / "after" / "a")
    shutil.copytree(tmp_path / "after", tmp_path / "copy")
    assert streams(tmp_path)["copy/b"]["reads"][0]["url"] == str(tmp_path / "copy" / "a"), "the nearest copy"


def test_another_stream_in_the_place_of_an_input_is_not_that_input(tmp_path: Path) -> None:
    operator(tmp_path, "b", source(tmp_path, "a"))
    shutil.rmtree(tmp_path / "a")
    source(tmp_path, "a")
    found = streams(tmp_path)
    assert found["a"]["problem"] is None
    (missing,) = [one for one in found.values() if one["kind"] == "missing"]
    assert missing["problem"] == "another stream has taken its place"
    assert found["b"]["reads"][0]["url"] == missing["url"]


def test_a_damaged_stream_is_named_and_the_others_are_drawn(tmp_path: Path) -> None:
    a, torn = source(tmp_path, "a"), source(tmp_path, "torn")
    operator(tmp_path, "b", a, torn)
    file = tmp_path / "torn" / "stream.json"
    file.write_bytes(file.read_bytes()[:100])
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "stream.json").write_text("{}")
    shutil.rmtree(tmp_path / "a" / "commits")
    (tmp_path / "a" / "commits").write_text("not a folder")
    text = good(str(tmp_path))
    assert "stream.json is not complete" in text
    assert "Strandline has not written this stream.json" in text
    found = streams(tmp_path)
    assert found["torn"]["kind"] == found["theirs"]["kind"] == "damaged"
    assert found["b"]["kind"] == "operator"
    assert len(found) == 4
    draw(tmp_path, tmp_path)


def test_a_circle_that_no_program_can_write_is_drawn_and_named(tmp_path: Path) -> None:
    b = operator(tmp_path, "b", source(tmp_path, "a"))
    c = operator(tmp_path, "c", b)
    operator(tmp_path, "behind", c)
    origin = Origin(c.spec.id, c.storage.url)
    (tmp_path / "b" / "stream.json").write_bytes(replace(b.spec, upstream=upstream_of([origin])).to_json())
    text = good(str(tmp_path))
    assert text.count("which is made of its results") == 1
    assert all(text.count(f"{name}  ") == 1 for name in ("behind", "b", "c"))
    draw(tmp_path, tmp_path)


def test_what_lies_within_a_stream_is_no_stream_of_its_own(tmp_path: Path) -> None:
    a = source(tmp_path, "a")
    append_items(a, {1: [(1, 1, -100)]})
    for folder in ("late", "spark_checkpoint", "spark_checkpoint/sources", ".hidden"):
        (tmp_path / "a" / folder).mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / "a" / "stream.json", tmp_path / "a" / folder)
    source(tmp_path, "a/nested")
    assert set(streams(tmp_path)) == {"a", "a/nested"}


def test_streams_in_a_store_are_found_level_by_level() -> None:
    url = f"memory://{uuid4()}"
    a = Log.create(open_storage(f"{url}/deep/a"), item_spec(1, name="a"))
    append_items(a, {0: [(1, 1, 1)]})
    spec = replace(output_spec(PLANS["tumbling time"]), upstream=upstream_of([Origin("a", a.storage.url)]))
    Log.create(open_storage(f"{url}/b"), spec)
    found = streams(url)
    assert set(found) == {"deep/a", "b"}
    assert found["b"]["reads"][0]["url"] == f"{url}/deep/a"


def test_a_folder_of_too_many_folders_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.log.reading.stream_graph._FOLDERS_MAX", 5)
    for number in range(6):
        (tmp_path / f"folder{number}").mkdir()
    result = run(str(tmp_path))
    assert result.exit_code == 1
    assert "more than 5 folders" in result.output


def test_the_cost_does_not_grow_with_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    for name in ("_read", "names", "exists", "list"):
        call = getattr(LocalStorage, name)
        counting = lambda *a, _call=call, **o: (calls.append(1), _call(*a, **o))[1]  # noqa: E731
        monkeypatch.setattr(LocalStorage, name, counting)
    costs = []
    for commits in (100, 1_000):
        source(tmp_path / str(commits), "a", commits)
        calls.clear()
        assert len(stream_graph(str(tmp_path / str(commits)), kind_words)) == 1
        costs.append(len(calls))
    assert costs[1] < costs[0] + 80, "the commits since the last index, at most, and a few leaves"


# ---------------------------------------------------------------------- pictures


def draw(folder: Path, into: Path) -> str:
    file = into / "graph.svg"
    assert good(str(folder), "--svg", str(file)) == ""
    text = file.read_text()
    ElementTree.fromstring(text)
    file.unlink()
    return text


def test_a_hundred_streams_fit_the_terminal_and_do_not_overlap(tmp_path: Path) -> None:
    rng, made = Random(7), [source(tmp_path, f"source{n}") for n in range(10)]
    for number in range(90):
        made.append(operator(tmp_path, f"operator{number}", *rng.sample(made, rng.randint(1, 3))))
    text = good(str(tmp_path))
    assert len(re.findall(r"\b(?:source|operator)\d+  ", text)) == 100
    boxes = rects(draw(tmp_path, tmp_path))
    assert len(boxes) == 100
    for n, (x, y, width, height) in enumerate(boxes):
        for x2, y2, width2, height2 in boxes[:n]:
            assert x + width <= x2 or x2 + width2 <= x or y + height <= y2 or y2 + height2 <= y


def test_very_long_names_are_folded(tmp_path: Path) -> None:
    long = "/".join(["a-stream-with-a-name" * 5, "x" * 200])
    operator(tmp_path, "b", source(tmp_path, long))
    result = CliRunner().invoke(app, ["graph", str(tmp_path)], env={"COLUMNS": "80", "TERM": "dumb"})
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert long in "".join(line.strip() for line in lines)
    (_, _, width, height), *_ = rects(picture := draw(tmp_path, tmp_path))
    assert width < 300
    assert height < 200
    assert long in picture, "as a tooltip"


def test_markup_in_names_is_only_text() -> None:
    name = "[bold]<b>&\"'`#"
    text = drawing({"a": Box(0, name, name, (name,), problem=name, state=name)}, [])
    assert name in [one.text for one in ElementTree.fromstring(text).iterfind(".//{*}text")]


@pytest.mark.parametrize("seed", range(20))
def test_arrows_go_from_left_to_right_and_around_boxes(seed: int) -> None:
    rng = Random(seed)
    boxes: dict[str, Box] = {}
    arrows = []
    for number in range(rng.randint(1, 30)):
        read = rng.sample(sorted(boxes), min(len(boxes), rng.randint(0, 3)))
        level = 1 + max((boxes[one].level for one in read), default=-1)
        boxes[str(number)] = Box(level, str(number), "what", ("figure",) * rng.randint(0, 9))
        arrows += [Arrow(one, str(number)) for one in read]
    text = drawing(boxes, arrows)
    found = rects(text)
    paths = [p.attrib["d"] for p in ElementTree.fromstring(text).iterfind("{*}path")]
    assert len(paths) == len(arrows)
    for path in paths:
        for x, y, x2 in re.findall(r"([\d.]+) ([\d.]+) H([\d.]+)", path):
            for left, top, width, height in found:
                assert not (left < float(x2) and float(x) < left + width and top < float(y) < top + height)
        numbers = [float(x) for x in re.findall(r"[MC ]?([\d.]+) [\d.]+(?= |$)", path)]
        assert numbers[0] < numbers[-1]


def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    assert run(str(tmp_path), "--json", "--mermaid").exit_code == 1
    result = run(str(tmp_path), "--svg", str(tmp_path / "nowhere" / "graph.svg"))
    assert result.exit_code == 1
    assert "cannot be written" in result.output
