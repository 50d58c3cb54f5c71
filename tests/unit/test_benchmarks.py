"""The benchmarks that need no Spark, as small as can be: they run, their figures are there, their results are right."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from benchmarks.availability_figures import plots, tables
from benchmarks.averages import Windows
from benchmarks.checkpoint_cost import checkpoint_cost, records_per_touched_key
from benchmarks.join_steps import Taken
from benchmarks.orders import Matches
from strandline.cli.app import app

COMBINATIONS = [
    ("process/process", 3.2),
    ("delay/process", 3.3),
    ("process/delay", 3.2),
    ("delay/delay", 3.3),
    ("process/suspend", 12.0),
    ("delay/suspend", 15.0),
]
"""With delays that they might have had."""


def bench(name: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["bench", name, "--size", "tiny", "--repeat", "1", "--json"])
    assert done.exit_code == 0, done.output
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.fixture(autouse=True)
def files_beside_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_BENCH_DIR", str(tmp_path))


def test_kernel_reports_the_operator_beside_the_bare_loop() -> None:
    result = bench("kernel")
    assert result["results_match"]
    assert result["tuples_per_s"] > result["tuples_per_s_with_arrow"] > 0
    assert result["ratio_to_bare_loop"] > 0
    assert result["bytes_per_open_window"] > 0
    assert [row["window"] for row in result["table"]] == [10]


def test_recovery_finds_the_state_that_was_there(tmp_path: Path) -> None:
    result = bench("recovery")
    assert result["results_match"]
    assert result["target_results_match"]
    assert result["replayed"] <= 6_000
    assert result["extent"] <= 2 * result["open_windows"]
    assert 0 <= result["within_target"] <= 1
    assert {"load_s", "replay_s", "predicted_s", "cold_s", "age", "step_cost_ratio"} <= result.keys()
    assert result["cold_to_warm"] > 0
    assert result["container_to_process"] > 0
    assert result["compiled_in_container"] == 0, "a new container was given its kernels"
    assert list(tmp_path.iterdir()) == []


def test_policies_stand_side_by_side_and_give_the_same_results(tmp_path: Path) -> None:
    result = bench("policies")
    assert result["results_match"]
    table = {(row["regime"], row["policy"]): row for row in result["table"]}
    assert {regime for regime, _ in table} == {"fast", "slow", "mixed"}
    for (_, policy), row in table.items():
        assert row["lost"] == 0 or policy in ('partial("10 s")', "none()")
        assert row["lost"] > 0 or row["replays"] or not row["open_windows"]
        assert ("slow=" not in policy) or row["replay"] <= 11_000, "what came within H and an eighth, at most"
    checks = {policy: row["g_check"] for (regime, policy), row in table.items() if regime == "mixed"}
    assert 0 < checks['cec(slow="10 s")'] < checks["cec()"], "only windows that stay open are saved again"
    assert list(tmp_path.iterdir()) == []


def test_join_matches_what_numpy_finds_and_recovers_what_it_kept(tmp_path: Path) -> None:
    result = bench("join")
    assert result["results_match"]
    assert 0.4 < result["results_per_tuple"] < 0.6
    assert result["kernel_tuples_per_s"] > 0
    assert 0 < result["window_flatness"] <= 1
    assert [row["window"] for row in result["windows"]] == [512, 2_048]
    assert result["checkpoint_cost_pct"] < 100
    assert result["theta"]["results"] > 0
    assert result["theta"]["comparisons_per_s"] > 0
    assert result["live_tuples"] == 2_048
    assert result["recovery"]["replayed"]["extent"] == 0
    assert 2_048 <= result["recovery"]["loaded"]["extent"] <= 2 * 2_048
    assert result["load_s"] + result["replay_s"] > 0
    assert "tuples_per_s" not in result, "tiny needs no Spark"
    assert list(tmp_path.iterdir()) == []


def test_join_groups_compares_sizes_that_all_write_footprints(tmp_path: Path) -> None:
    result = bench("join_groups")
    assert result["results_match"]
    assert {(row["join"], row["replayed"]) for row in result["settings"]} == {
        (join, part) for join in ("one window", "50 windows", "50 windows, Zipf") for part in ("1/8", "1/2")
    }
    for row in result["settings"]:
        assert len(row["groups"]) == 2
        assert all(one["footprints_per_tuple"] > 0 and one["extent"] <= 2 * row["kept"] for one in row["groups"])
    assert list(tmp_path.iterdir()) == []


def test_a_cost_without_footprints_is_no_cost() -> None:
    taken = Taken(seconds=2.0, spread=0.1, footprints=0, extent=0, found=Matches(np.empty(0, int), np.empty(0, int)))
    with pytest.raises(RuntimeError, match="no footprint"):
        taken.cost_pct(replace(taken, seconds=1.0))
    assert replace(taken, footprints=1).cost_pct(replace(taken, seconds=1.0)) == 50.0


def test_expected_matches_are_those_of_the_same_id_within_so_many_numbers() -> None:
    left, right = np.array([7, 3, 7, 7]), np.array([7, 7, 3, 7])
    found = Matches.expected(left, right, -1, 1)
    assert list(zip(found.left, found.right, strict=True)) == [(0, 0), (0, 1), (1, 2), (2, 1), (2, 3), (3, 3)]


def test_aging_joins_small_blocks_and_changes_no_tuple(tmp_path: Path) -> None:
    result = bench("aging")
    assert result["results_match"]
    assert result["blocks"]["untouched"] == 2 * result["commits"]
    assert result["blocks"]["kept"] < result["blocks"]["untouched"] / 3
    assert 0 < result["write_amplification"] < 4
    files = result["files"]
    assert files["live_blocks_per_partition_max"] < 100
    assert files["over_time"][-1]["waiting_blocks"] > 1_000, "for the sake of readers, within the grace"
    assert result["ratio_pyarrow_to_large_batches"] > 0
    assert list(tmp_path.iterdir()) == []


def test_checkpoint_cost_compares_the_same_batches(tmp_path: Path) -> None:
    row = checkpoint_cost(10, keys=500, batch=2_000, batches=4, settle=1, repeat=1, folder=tmp_path)
    assert row["tuples_per_s"].keys() == {"cec", "none"}
    assert row["cost_pct_of_step"] < 100


def test_windows_of_one_tuple_leave_no_footprints() -> None:
    assert records_per_touched_key(1, keys=1_000, batches=2) == 0


def test_expected_windows_are_cut_by_key_in_order_of_offsets() -> None:
    ids, prices = np.array([7, 3, 7, 7, 3, 7, 7]), np.array([1.0, 10.0, 3.0, 5.0, 30.0, 7.0, 9.0])
    windows = Windows.expected(ids, prices, np.arange(100, 107), 2)
    found = zip(windows.ids, windows.starts, windows.ends, windows.averages, strict=True)
    assert [tuple(w) for w in found] == [(7, 100, 102, 2.0), (3, 101, 104, 20.0), (7, 103, 105, 6.0)]


# ---------------------------------------------------------------------- availability


@pytest.mark.long
def test_availability_keeps_its_bound_and_its_stable_results_are_those_of_a_run_without_failures(
    tmp_path: Path,
) -> None:
    result = bench("availability")
    assert result["bound_kept"]
    assert 0 < result["over_bound_max_s"] <= 2 * result["step_max_s"], "bounds are not missed by more than it says"
    assert result["stable_match"]
    assert result["delay_new_max_s"].keys() == result["tentative"].keys() == {row[0] for row in COMBINATIONS}
    for name, _ in COMBINATIONS:
        assert 0.6 <= result["delay_new_max_s"][name]["1.5"] < 30, "nothing is guessed before the bound has run out"
    assert result["tentative"]["process/process"]["1.5"] > 0
    assert [row["depth"] for row in result["figure11"]] == [1] * 3 + [2] * 3
    assert result["switch_s"] > 0
    assert result["reconcile_tuples_per_s"] > 0
    assert result["overhead_ratio"] is None, "tiny needs no Spark"
    assert plots(result).keys() >= {"figure9-delay.svg", "figure10-tentative.svg", "figure12-state.svg"}
    assert list(tmp_path.iterdir()) == []


def found_by_availability() -> dict[str, Any]:
    rows = [
        {
            "combination": name,
            "failure_s": seconds,
            "bound_s": 3.0,
            "depth": 1,
            "delay_new_max_s": delay_s,
            "tentative": 1_234_567,
        }
        for name, delay_s in COMBINATIONS
        for seconds in (2.0, 5.0, 10.0)
    ]
    ways = {"seconds": {"redo": 0.1, "undo": 0.2}}
    figure12 = {"state": [{"state": 100, **ways}], "failure": [{"tentative": 3_000, **ways}]}
    return {"bound_s": 3.0, "figure9": rows, "figure10": rows, "slow": [], "figure11": rows, "figure12": figure12}


def test_the_figures_of_availability_are_pictures_with_a_line_for_each_combination() -> None:
    pictures = plots(found_by_availability())
    assert len(pictures) == 8, "there is nothing to draw of runs that were not made"
    drawn = ElementTree.fromstring(pictures["figure10-delay.svg"])
    texts = [element.text for element in drawn.iter() if element.tag.endswith("text")]
    assert {name for name, _ in COMBINATIONS} <= set(texts)
    assert "the bound" in texts
    counted = ElementTree.fromstring(pictures["figure10-tentative.svg"])
    assert "1,600,000" in [element.text for element in counted.iter()], "numbers have no exponents"
    assert len([element for element in drawn.iter() if element.tag.endswith("circle")]) == 18


def test_the_tables_of_availability_fit_into_a_terminal() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    for table in tables(found_by_availability()):
        console.print(table)
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80
    assert any("process/suspend" in line and line.count("12.0 / 1,234,567") == 3 for line in lines), "nothing is folded"


def test_a_benchmark_that_draws_nothing_says_so() -> None:
    done = CliRunner().invoke(app, ["bench", "kernel", "--size", "tiny", "--plots", "figures"])
    assert done.exit_code != 0
    assert "the benchmark kernel draws nothing" in done.output
