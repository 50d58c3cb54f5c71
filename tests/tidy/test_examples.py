"""What the documentation shows is true: its programs run and print what it says, its links lead somewhere."""

import re
import runpy
import subprocess
import sys
from itertools import accumulate, groupby
from pathlib import Path

import pytest

import strandline as sl
from tests.support.machine import patience

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
TABLE_ROW = re.compile(r"^\| *(\d+)\| *(\d+)\| *(\d+)\|$", re.MULTILINE)

killed = pytest.mark.drawn("examples that are killed")
each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)


def programs(document: Path) -> list[str]:
    return PROGRAMS.findall(document.read_text())


def run(program: Path, folder: Path) -> str:
    """What a program prints that runs in a folder of its own, with the interpreter of the tests."""
    command = [sys.executable, program]
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=patience(240))
    assert done.returncode == 0, f"{program.name} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_text(program: str, folder: Path) -> str:
    path = folder / "program.py"
    path.write_text(program)
    return run(path, folder)


def counts(output: str) -> tuple[int, ...]:
    """Tuples, distinct values and values sent, as the first example shows them."""
    row = TABLE_ROW.search(output)
    assert row, output
    return tuple(int(number) for number in row.groups())


@each_document
def test_programs_in_the_documentation_compile(document: Path) -> None:
    for program in programs(document):
        compile(program, document.name, "exec")


@each_document
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    for target in LINK.findall(document.read_text()):
        if "://" in target:
            continue
        name, _, heading = target.partition("#")
        path = (document.parent / name).resolve() if name else document
        assert path.exists(), f"{target} is not there"
        if heading:
            assert heading in anchors(path), f"{target}: no such heading"


def anchors(document: Path) -> set[str]:
    """The headings of a document as links name them."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_readme_has_at_most_200_lines() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200


def test_what_the_readme_shows_of_a_terminal_fits_80_columns() -> None:
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert [line for block in blocks for line in block.splitlines() if len(line) > 80] == []


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.drawn("examples")
def test_the_first_example_persists_every_number_once_and_goes_on_when_run_again(tmp_path: Path) -> None:
    program = (EXAMPLES / "01_persist_and_replay.py").read_text()
    first = run_text(program, tmp_path)
    tuples, distinct, sent = counts(first)
    assert tuples == distinct == sent > 0
    assert "1000 tuples in the last second" in first
    again = counts(run_text(program, tmp_path))
    assert again[0] == again[1] == again[2] > tuples
    read_without_us = run(EXAMPLES / "06_read_without_strandline.py", tmp_path)
    assert sum(int(n) for n in re.findall(r"(\d+) tuples", read_without_us)) == again[0]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.drawn("examples")
def test_a_reader_that_catches_up_reads_everything_once(tmp_path: Path) -> None:
    output = run(EXAMPLES / "05_follow_a_live_stream.py", tmp_path)
    published, read, distinct = (int(n) for n in re.findall(r"\d+", output))
    assert published == read == distinct > 0
    assert list(tmp_path.iterdir()) == [], "it leaves something behind"


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.drawn("examples")
@pytest.mark.parametrize("name", ["start.md", pytest.param("reference.md", marks=pytest.mark.long)])
def test_the_programs_of_a_document_run_one_after_the_other(name: str, tmp_path: Path) -> None:
    """As one program, as a reader would type them."""
    shown = programs(ROOT / "docs" / name)
    run_text("\n".join(program for program in shown if "# not run" not in program), tmp_path)


@pytest.mark.long
@pytest.mark.spark
def test_the_readme_program_gives_the_results_it_shows_and_goes_on_when_run_again(tmp_path: Path) -> None:
    program = programs(ROOT / "README.md")[0]
    first, again = run_text(program, tmp_path), run_text(program, tmp_path)
    readme = (ROOT / "README.md").read_text()
    assert f"```\n{first}```" in readme
    table, counted = again.split("results: ")
    assert first.startswith(table)
    results, windows = counted.split("\nwindows open: ")
    assert f"`results: {results}`, `windows open: {windows.strip()}`" in readme


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.drawn("examples")
def test_the_program_without_an_input_shows_what_is_tentative_and_what_is_not(tmp_path: Path) -> None:
    (program,) = (shown for shown in programs(ROOT / "docs" / "availability.md") if shown.startswith("import time\n"))
    failing, mended = run_text(program, tmp_path).split("STABLE missing: []")
    assert "UP_FAILURE missing: ['south']" in failing
    assert "|      true|" in failing
    assert "|      true|" not in mended
    ends = [re.findall(r"^\|hall\|[^|]+\|([^|]+)\|", part, re.MULTILINE) for part in (failing, mended)]
    assert ends[0] == ends[1] != []
    assert mended.count("| 40|     false|") == len(ends[1])


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.drawn("examples")
def test_the_average_price_is_shown_with_its_open_windows(tmp_path: Path) -> None:
    output = run(EXAMPLES / "02_average_price.py", tmp_path)
    assert "a recovery now would read" in output
    assert int(re.search(r"^(\d+) windows are open", output, re.MULTILINE)[1]) > 0  # type: ignore[index]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.drawn("examples")
def test_calls_out_of_order_are_averaged_over_an_hour(tmp_path: Path) -> None:
    output = run(EXAMPLES / "03_call_records.py", tmp_path)
    results, still_open, late = re.search(  # type: ignore[union-attr]
        r"^(\d+) results, (\d+) windows open, (\d+) calls too late", output, re.MULTILINE
    ).groups()
    assert int(results) > 0
    assert int(still_open) > 0
    assert int(late) == 0


@pytest.mark.long
@pytest.mark.spark
@killed
def test_a_query_that_is_killed_again_and_again_gives_the_same_results(tmp_path: Path) -> None:
    command = [sys.executable, EXAMPLES / "04_kill_and_recover.py", "1"]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=patience(240))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "identical, in the same order" in done.stdout


@pytest.mark.long
@pytest.mark.spark
@killed
def test_a_join_that_was_killed_gives_what_sql_gives(tmp_path: Path) -> None:
    output = run(EXAMPLES / "07_orders_and_payments.py", tmp_path)
    before, after = (int(n) for n in re.findall(r"(\d+) (?:results|orders were paid)", output))
    assert 0 < before < after
    assert "just what SQL makes of it" in output


@pytest.mark.long
@pytest.mark.spark
@killed
def test_an_as_of_join_that_was_killed_gives_what_sql_gives(tmp_path: Path) -> None:
    output = run(EXAMPLES / "15_as_of_join.py", tmp_path)
    assert 0 <= int(re.search(r"killed after (\d+) results", output)[1]) < 4000  # type: ignore[index]
    assert "4000 orders have their price; just what SQL makes of it" in output


@pytest.mark.long
@pytest.mark.spark
@killed
def test_a_pipeline_that_was_killed_gives_what_sql_gives(tmp_path: Path) -> None:
    output = run(EXAMPLES / "14_pipeline.py", tmp_path)
    assert output.startswith("flowchart LR\n")
    assert "317 totals; just what SQL makes of it" in output
    assert list(tmp_path.iterdir()) == [], "it leaves something behind"


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.drawn("examples")
def test_three_sensors_are_taken_in_as_one(tmp_path: Path) -> None:
    assert "12 results of 180 readings of 3 sensors" in run(EXAMPLES / "08_three_sensors.py", tmp_path)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.drawn("examples")
def test_results_without_a_sensor_are_tentative_undone_and_corrected(tmp_path: Path) -> None:
    output = run(EXAMPLES / "11_missing_sensor.py", tmp_path)
    assert "the operator is in UP_FAILURE; missing: south" in output
    undone, tentative = (
        re.findall(rf"^ *[\d.]+ s  (.* - .*)  {state}$", output, re.MULTILINE) for state in ("undone", "tentative")
    )
    assert undone == tentative != []
    assert "read(tentative=True) equals read()" in output
    assert "just those of a run in which no sensor was missing" in output
    assert max(map(len, output.splitlines())) <= 80
    assert list(tmp_path.iterdir()) == [], "it leaves something behind"


@pytest.mark.long
@pytest.mark.spark
@killed
def test_a_reader_goes_on_from_another_replica_when_the_one_it_reads_is_killed(tmp_path: Path) -> None:
    output = run(EXAMPLES / "12_replicas.py", tmp_path)
    victim, heir = re.findall(r"SIGKILL to (\w+), which is read|changed over to (\w+), [\d.]+ s after the kill", output)
    assert {victim[0], heir[1]} == {"one", "other"}
    read = re.findall(r"^ *[\d.]+ s  (one|other) +(\d+) +(\d+)  [\d:]+$", output, re.MULTILINE)
    assert [int(in_all) for *_, in_all in read] == list(accumulate(int(many) for _, many, _ in read))
    assert [name for name, _ in groupby(name for name, *_ in read)] == [victim[0], heir[1]]
    assert f"{read[-1][-1]} results, identical to those of a run without a kill" in output
    assert max(map(len, output.splitlines())) <= 80
    assert list(tmp_path.iterdir()) == [], "it leaves something behind"


@pytest.mark.long
@pytest.mark.spark
@killed
def test_alarms_of_a_function_that_was_killed_are_those_of_plain_python(tmp_path: Path) -> None:
    output = run(EXAMPLES / "10_zscore_alarms.py", tmp_path)
    before, after = (int(n) for n in re.findall(r"(\d+) alarms", output))
    assert 0 <= before < after
    assert "just those of plain Python, bit by bit" in output


def test_the_model_of_the_yield_gives_the_same_however_wafers_come() -> None:
    example = runpy.run_path(str(EXAMPLES / "09_yield_prediction.py"))
    sl.testing.check_operator(example["YieldModel"](rate=0.05), example["wafers"]().slice(0, 120), key="tool", runs=8)


@pytest.mark.long
@pytest.mark.spark
@killed
def test_a_model_that_was_killed_is_off_by_what_its_policy_lets_it_lose(tmp_path: Path) -> None:
    command = [sys.executable, EXAMPLES / "09_yield_prediction.py", "1", tmp_path]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=patience(400))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^(instant|partial|none) +([\d,]+) +([\d.]+)", done.stdout, re.MULTILINE)
    lost = {name: int(tuples.replace(",", "")) for name, tuples, _ in rows}
    rmse = {name: float(off) for name, _, off in rows}
    assert lost["instant"] == rmse["instant"] == 0
    assert 0 <= lost["partial"] < lost["none"]
    assert rmse["partial"] < rmse["none"] / 2
    lines = [line for line in done.stdout.splitlines() if str(tmp_path) not in line]  # which may be of any length
    assert max(map(len, lines)) <= 80
    assert (tmp_path / "errors.svg").read_text().startswith("<svg")
